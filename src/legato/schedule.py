"""Who goes next: playback deadlines. Pure Python, no clock of its own.

Every listener has a moment at which the sound delivered so far runs out. Among stages and within a batch the request
whose listener runs dry first goes first. A request without a first sound is due at once; only listeners about to run
dry come before it.
"""

from __future__ import annotations

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

    It decides when a first sound may leave, never what is in it.
    """

    SMOOTHING = 0.2
    MARGIN = 1.75

    def __init__(self, lm_steps: int, flow_blocks: int) -> None:
        """The next chunk takes that many LM steps, and evaluations of single flow blocks."""
        self._runs = {"writer": lm_steps, "lm": lm_steps, "flow": flow_blocks, "vocoder": 1}
        self._cost_s = dict.fromkeys(self._runs, 0.0)

    def note(self, stage: str, took_s: float, parts: int) -> None:
        """A run took that long for so many flow blocks, or vocoder windows. An LM step serves everyone at once."""
        cost_s = took_s if stage in SERVES_ALL else took_s / max(1, parts)
        known_s = self._cost_s[stage]
        self._cost_s[stage] = cost_s if not known_s else known_s + self.SMOOTHING * (cost_s - known_s)

    def gap_s(self, listeners: int, writing: bool = False) -> float:
        """Seconds between two chunks of one listener when `listeners` are served in turn, with a margin.

        While a model is `writing` what another one speaks, it takes a step for each of the other's.
        """
        shared_s = sum(self._runs[stage] * self._cost_s[stage] for stage in SERVES_ALL[not writing :])
        own_s = sum(self._runs[stage] * self._cost_s[stage] for stage in ("flow", "vocoder"))
        return self.MARGIN * (shared_s + listeners * own_s)


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
