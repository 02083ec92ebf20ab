"""Sequence: a prompt, what followed it, and the pages that hold its keys and values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from legato.protocols import Prompt
from legato.types import UtteranceId


@dataclass
class Sequence:
    """`ids` are all input ids known so far (prompt, sampled, fed by the host); of these `computed` are in the cache.

    `vectors` holds one row per id (None: nothing is added) when the prompt came with vectors. `generator` is the
    request's own source of randomness. A sequence that `waits_for_host` has been sampled from and was fed nothing yet.
    """

    prompt: Prompt
    ids: list[int]
    vectors: list[Any] | None = None
    generator: Any = None
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    emitted: int = 0
    sampled: list[int] = field(default_factory=list)
    finished: bool = False
    prompt_computed: bool = False
    waits_for_host: bool = False
    page_operations: int = 0

    @property
    def utterance(self) -> UtteranceId:
        return self.prompt.utterance

    @property
    def pending(self) -> int:
        """Ids whose keys and values shall be computed now; none while the host is late, even if pages were lost."""
        return 0 if self.waits_for_host else len(self.ids) - self.computed

    @property
    def decoding(self) -> bool:
        """One id is pending and the prompt is behind us."""
        return self.pending == 1 and self.prompt_computed and self.prompt.use_cache

    def feed(self, ids: tuple[int, ...], vectors: Any = None) -> None:
        """Append input ids, with one vector each if this sequence has vectors. No ids: the host will be late."""
        self.ids.extend(ids)
        self.waits_for_host = not ids
        if self.vectors is not None and ids:
            self.vectors.extend([None] * len(ids) if vectors is None else vectors)


@dataclass(frozen=True)
class Scheduled:
    """Ids [start, start + length) of a sequence, computed in this step. Length 1 is a decode; there is no phase.

    `drafts` are guesses of the ids that follow, computed with them.
    """

    sequence: Sequence
    start: int
    length: int
    drafts: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        return self.length + len(self.drafts)

    @property
    def samples(self) -> bool:
        """Whether the span reaches the end of what is known, so that its last row is sampled from."""
        return self.start + self.length == len(self.sequence.ids)
