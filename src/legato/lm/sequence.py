"""Sequence: a prompt, what followed it, and the pages that hold its keys and values."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from legato.protocols import Place, Prompt, Step
from legato.types import UtteranceId


@dataclass
class Sequence:
    """`ids` are all input ids known so far (prompt, sampled, fed by the host); of these `computed` are in the cache.

    `vectors` holds one row per id (None: nothing is added) once any came with vectors; `places` and `keys` are as in
    Prompt. `generator` is the request's own source of randomness. A sequence that `waits_for_host` has been sampled
    from and was fed nothing yet. While its prompt is `open` it is not sampled from; `prompt_length` counts what came of
    it. Rows of the first `relayed` positions were passed on.
    """

    prompt: Prompt
    ids: list[int]
    vectors: list[Any] | None = None
    places: list[Place] | None = None
    keys: list[int] | None = None
    generator: Any = None
    open: bool = False
    prompt_length: int = 0
    relayed: int = 0
    furthest: int = -1
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    emitted: int = 0
    sampled: list[int] = field(default_factory=list)
    finished: bool = False
    prompt_computed: bool = False
    waits_for_host: bool = False
    page_operations: int = 0

    @classmethod
    def begin(cls, prompt: Prompt, generator: Any) -> Sequence:
        """A sequence of a prompt of which nothing is computed yet."""
        return cls(
            prompt=prompt,
            ids=list(prompt.token_ids),
            vectors=None if prompt.vectors is None else list(prompt.vectors),
            places=None if prompt.places is None else list(prompt.places),
            keys=None if prompt.keys is None else list(prompt.keys),
            generator=generator,
            open=prompt.open,
            prompt_length=len(prompt.token_ids),
            furthest=max((axis for place in prompt.places or () for axis in place), default=-1),
        )

    @property
    def utterance(self) -> UtteranceId:
        return self.prompt.utterance

    @property
    def wants_input(self) -> bool:
        """Whether the host may have something to feed: the rest of a prompt, or what follows the last sample."""
        return self.open or self.waits_for_host

    def shareable(self, tokens: int) -> tuple[int, ...]:
        """What stands in the prefix cache for the first `tokens` ids, as far as they may be shared: up to the first
        negative key, which nobody else has."""
        keys = (self.ids if self.keys is None else self.keys)[: min(tokens, self.prompt.shared_tokens)]
        return tuple(takewhile(lambda key: key >= 0, keys))

    @property
    def pending(self) -> int:
        """Ids whose keys and values shall be computed now; none while the host is late, even if pages were lost."""
        return 0 if self.waits_for_host else len(self.ids) - self.computed

    @property
    def decoding(self) -> bool:
        """One id is pending and the prompt is behind us."""
        return self.pending == 1 and self.prompt_computed and self.prompt.use_cache

    @property
    def plain(self) -> bool:
        """Whether its inputs are ids and nothing else, so that they can be guessed."""
        return self.vectors is None and self.places is None

    def feed(self, step: Step) -> None:
        """Append a step's inputs. No ids: the host will be late, or the next part of an open prompt is."""
        known, count = len(self.ids), len(step.feed)
        self.ids.extend(step.feed)
        self.waits_for_host = not count and not self.open
        if step.vectors is not None and self.vectors is None:
            self.vectors = [None] * known
        if self.vectors is not None:
            self.vectors.extend([None] * count if step.vectors is None else step.vectors)
        if step.keys is not None and self.keys is None:
            self.keys = self.ids[:known]
        if self.keys is not None:
            self.keys.extend(step.feed if step.keys is None else step.keys)
        if self.places is not None:
            self._place(count, step.places)
        if self.open:
            self.open, self.prompt_length = step.more, len(self.ids)

    def _place(self, count: int, given: Seq[Place] | None) -> None:
        """Where the next `count` ids stand: as given, or each one behind the furthest so far on every axis."""
        assert self.places is not None
        if given is None:
            given = [(self.furthest + 1 + offset,) * len(self.places[0]) for offset in range(count)]
        self.places.extend(given)
        self.furthest = max((self.furthest, *(axis for place in given for axis in place)))


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
        return self.start + self.length == len(self.sequence.ids) and not self.sequence.open
