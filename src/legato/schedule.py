"""Who goes next: playback deadlines. Pure Python, no clock of its own.

Every listener has a moment at which the sound delivered so far runs out. Among stages and within a batch the request
whose listener runs dry first goes first. A request without a first sound is due at once; only listeners about to run
dry come before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from legato.types import UtteranceId

SERVES_ALL = ("writer", "lm")
"""Stages whose step is about as long for one listener as for all of them."""


@dataclass
class Listener:
    """One request as its listener hears it: sound starts at `first_sound_s` and `delivered_s` of it are there."""

    accepted_s: float
    first_sound_s: float | None = None
    delivered_s: float = 0.0

    def deliver(self, now_s: float, audio_s: float) -> None:
        """Note that `audio_s` seconds of sound left at `now_s`. A listener that had run dry starts anew from here."""
        if not audio_s:
            return
        if self.first_sound_s is None or self.dry_at_s < now_s:
            self.first_sound_s, self.delivered_s = now_s, 0.0
        self.delivered_s += audio_s

    @property
    def dry_at_s(self) -> float:
        """When the sound delivered so far ends; the moment of acceptance while there is none."""
        return self.accepted_s if self.first_sound_s is None else self.first_sound_s + self.delivered_s


class Pace:
    """How long work takes lately, and so how long a listener waits for its next chunk while others are served too.

    It decides when a request may begin and when its first sound may leave, never what is in it.
    """

    SMOOTHING = 0.2
    MARGIN = 1.75
    LOAD = 0.75
    """Of the machine's time, how much may be promised to listeners."""

    MEMORY_S = 5.0
    """Seconds of work after which what was measured counts for a third."""

    ENOUGH_AUDIO_S = 1.0
    UNKNOWN_LISTENERS = 4
    """As many may begin before that much sound was made."""

    def __init__(self, lm_steps: int, flow_blocks: int, chunk_s: float = math.inf) -> None:
        """The next chunk, `chunk_s` of sound, takes that many LM steps, and evaluations of single flow blocks."""
        self._chunk_s = chunk_s
        self._worked_s = self._audio_s = 0.0
        self._runs = {"writer": lm_steps, "lm": lm_steps, "flow": flow_blocks, "vocoder": 1}
        self._cost_s: dict[str, float] = {}

    def note(self, stage: str, took_s: float, parts: int) -> None:
        """A run took that long for so many flow blocks, or vocoder windows. An LM step serves everyone at once."""
        kept = math.exp(-took_s / self.MEMORY_S)
        self._worked_s, self._audio_s = self._worked_s * kept + took_s, self._audio_s * kept
        cost_s = took_s if stage in SERVES_ALL else took_s / max(1, parts)
        known_s = self._cost_s.get(stage, cost_s)
        self._cost_s[stage] = known_s + self.SMOOTHING * (cost_s - known_s)

    def gap_s(self, listeners: int, writing: bool = False) -> float:
        """Seconds between two chunks of one listener when `listeners` are served in turn, with a margin; 0 when chunks
        take longer than they last, so that no waiting could keep the listener from running dry.

        While a model is `writing` what another one speaks, it takes a step for each of the other's.
        """
        took_s = {stage: runs * self._cost_s.get(stage, 0.0) for stage, runs in self._runs.items()}
        shared_s = sum(took_s[stage] for stage in SERVES_ALL[not writing :])
        between_s = shared_s + listeners * (took_s["flow"] + took_s["vocoder"])
        return self.MARGIN * between_s if between_s <= self._chunk_s else 0.0

    def deliver(self, audio_s: float) -> None:
        """Note that so much sound has left, for whomever."""
        self._audio_s += audio_s

    def bears(self, listeners: int) -> bool:
        """Whether so many can be served without any of them running dry, going by what sound has cost lately."""
        if self._audio_s < self.ENOUGH_AUDIO_S:
            return listeners <= self.UNKNOWN_LISTENERS
        return listeners * self._worked_s <= self.LOAD * self._audio_s


class Schedule:
    """Orders utterances by the deadlines of their requests.

    `guard_s` is the slack below which a listener comes before requests that have not sounded yet: a few times the
    longest step.
    """

    def __init__(self, guard_s: float) -> None:
        self.guard_s = guard_s
        self.listeners: dict[int, Listener] = {}

    def urgency(self, request: int, now_s: float) -> tuple[int, float]:
        """Sort key: about to run dry, then not yet sounding (first come first), then by deadline."""
        listener = self.listeners[request]
        if listener.first_sound_s is None:
            return 1, listener.accepted_s
        return (0 if listener.dry_at_s - now_s < self.guard_s else 2), listener.dry_at_s

    def order(self, utterances: Seq[UtteranceId], now_s: float) -> list[UtteranceId]:
        """Most urgent first; utterances of one request in their order."""
        return sorted(utterances, key=lambda u: (self.urgency(u.request, now_s), u.request, u.index))

    def choose(self, ready: Seq[Seq[UtteranceId]], now_s: float) -> list[int]:
        """Stages by urgency, given the utterances each has work for, nearest the listener first.

        Equal urgency goes to the stage nearer the listener. Stages without work are left out.
        """
        busy = [i for i, utterances in enumerate(ready) if utterances]
        return sorted(busy, key=lambda i: (min(self.urgency(u.request, now_s) for u in ready[i]), i))
