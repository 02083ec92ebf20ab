"""Speaking: one request on its way through the engine, and the order in which its sound may leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from legato.lm.stage import LMUsage
from legato.protocols import Splitter
from legato.types import ChatRequest, Samples, SpeechRequest, Usage, Voice

TEXT = -1
"""Stands among a reply's utterances in flight for its text."""

Sound = tuple[np.ndarray | None, int]
"""A stretch of what a user says and its rate; None is the end."""


@dataclass
class Speaking:
    """State of one request; it dies with the request.

    Of a text: `splitter` cuts what comes, `texts` are utterances that have not started. Of a conversation: `prepared`
    until its reply starts, `heard` until the conversation takes it, `listening` while its user speaks. `started`
    utterances were begun; those `in_flight` have not all left, those `composing` are in the language model. The next to
    leave is number `delivering`; `early` holds samples of later ones, `held` the first ones while they must wait.
    """

    id: int
    request: SpeechRequest | ChatRequest
    splitter: Splitter | None = None
    voice: Voice | None = None
    prepared: Any = None
    heard: deque[Sound] = field(default_factory=deque)
    listening: bool = False
    texts: deque[str] = field(default_factory=deque)
    text_chars: int = 0
    text_ended: bool = False
    started: int = 0
    in_flight: set[int] = field(default_factory=set)
    composing: int = 0
    history: list[tuple[str, list[int]]] = field(default_factory=list)
    delivering: int = 0
    early: dict[int, list[Samples]] = field(default_factory=dict)
    held: list[Samples] = field(default_factory=list)
    next_sample: int = 0
    taken_samples: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def done(self) -> bool:
        """Whether everything there will be has left."""
        return self.text_ended and not self.texts and not self.in_flight

    @property
    def in_work(self) -> bool:
        """Whether something of it is being made, rather than waited for."""
        return bool(self.in_flight or self.texts or self.prepared is not None) and not self.listening

    def in_order(self, samples: Samples) -> Iterator[Samples]:
        """What may leave now that these samples are there, in the order of the text; what came early is kept."""
        self.early.setdefault(samples.utterance.index, []).append(samples)
        while pieces := self.early.get(self.delivering):
            piece = pieces.pop(0)
            if piece.final:
                del self.early[self.delivering]
                self.in_flight.discard(self.delivering)
                self.delivering += 1
            yield piece

    def bill(self, cost: LMUsage) -> None:
        """Add what an utterance cost in a language model."""
        self.usage.prompt_tokens += cost.prompt_tokens
        self.usage.generated_tokens += cost.generated_tokens
        self.usage.lm_steps += cost.steps
        self.usage.pages_peak = max(self.usage.pages_peak, cost.pages)
        self.usage.page_operations += cost.page_operations
