"""Three ways to speak the same text, side by side: without a cache, with it, and with it as a stream.

The first two wait for the whole speech, so their first sound comes with their last. The ways take turns on every text,
so that a machine that is busy for a moment is busy for all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .speakers import EngineSpeaker
from .sweep import Take, Task, listen, percentile
from .texts import TEXTS

NO_CACHE, CACHE, STREAMING = "no cache", "cache", "streaming"
WAYS = (NO_CACHE, CACHE, STREAMING)


@dataclass(frozen=True)
class Trial:
    """One text spoken in one way."""

    kind: str
    way: str
    round: int
    take: Take

    @property
    def total_s(self) -> float | None:
        return None if self.take.report is None else self.take.report.wall_s

    @property
    def first_sound_s(self) -> float | None:
        """When the listener hears something: at the very end, unless it is a stream."""
        if self.take.report is None or self.way != STREAMING:
            return self.total_s
        return self.take.report.ttfa_s

    @property
    def audio_s(self) -> float | None:
        return None if self.take.report is None else self.take.report.audio_s

    def as_dict(self) -> dict[str, Any]:
        place = {"kind": self.kind, "way": self.way, "round": self.round}
        return place | {"first_sound_s": self.first_sound_s, "total_s": self.total_s} | self.take.as_dict()


def compare(
    speaker: EngineSpeaker, rounds: int, seed: int, texts_per_kind: int, on_trial: Callable[[Trial], None]
) -> list[Trial]:
    """Speak the first texts of every kind in all three ways, `rounds` times; a short warm-up is not counted."""
    for way in WAYS:
        listen(speaker, Task(TEXTS["short"][0], seed), use_cache=way != NO_CACHE)
    trials = []
    for kind, task, number in _order(rounds, seed, texts_per_kind):
        for way in WAYS:
            trial = Trial(kind, way, number, listen(speaker, task, use_cache=way != NO_CACHE))
            on_trial(trial)
            trials.append(trial)
    return trials


def _order(rounds: int, seed: int, texts_per_kind: int) -> Iterator[tuple[str, Task, int]]:
    for number in range(rounds):
        for kind, texts in TEXTS.items():
            for index, text in enumerate(texts[:texts_per_kind]):
                yield kind, Task(text, seed + index), number


def medians(trials: list[Trial]) -> list[dict[str, Any]]:
    """One row per kind of text: seconds of audio, and median first sound and total of every way."""
    rows = []
    for kind in TEXTS:
        mine = [trial for trial in trials if trial.kind == kind]
        row: dict[str, Any] = {"kind": kind, "audio_s": percentile([trial.audio_s for trial in mine], 50)}
        for way in WAYS:
            here = [trial for trial in mine if trial.way == way]
            row[way] = {
                "first_sound_s": percentile([trial.first_sound_s for trial in here], 50),
                "total_s": percentile([trial.total_s for trial in here], 50),
            }
        rows.append(row)
    return rows
