"""Many listeners at once: the same texts at growing concurrency, every stream measured by the one who reads it.

A level of concurrency c is c readers; each asks for the next text as soon as it has heard the last one to its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from legato.errors import SpeechError
from legato.report import CONTINUITY_LIMIT_S, StreamReport

from .speakers import Speaker
from .texts import sweep_texts

LEAST_ROUNDS = 2
"""A level has at least this many requests per reader: the first ones all start in the same moment."""


@dataclass(frozen=True)
class Task:
    """One request of a benchmark."""

    text: str
    seed: int


@dataclass(frozen=True)
class Take:
    """One stream, as its reader had it: a report, or the error that ended it."""

    task: Task
    report: StreamReport | None = None
    error: str = ""
    pages_seen: int = 0

    def as_dict(self) -> dict[str, Any]:
        figures = {"error": self.error} if self.report is None else self.report.as_dict()
        return {"text": self.task.text, "seed": self.task.seed} | figures


@dataclass
class Level:
    """What happened at one concurrency."""

    concurrency: int
    counts_work: bool
    wall_s: float = 0.0
    takes: list[Take] = field(default_factory=list)

    @property
    def reports(self) -> list[StreamReport]:
        """Streams that were heard to their end."""
        return [take.report for take in self.takes if take.report is not None]

    def summary(self) -> dict[str, Any]:
        """The figures of the level. Those of nothing, and those that cannot be seen from here, are None."""
        reports, wall_s = self.reports, self.wall_s
        underruns = [report.underrun_s for report in reports]
        tokens = sum(report.usage.generated_tokens for report in reports)
        return {
            "concurrency": self.concurrency,
            "requests": len(reports),
            "failed": len(self.takes) - len(reports),
            "wall_s": wall_s,
            "ttfa_p50_s": percentile([report.ttfa_s for report in reports], 50),
            "ttfa_p95_s": percentile([report.ttfa_s for report in reports], 95),
            "rtf_p50": percentile([report.rtf for report in reports], 50),
            "rtf_p95": percentile([report.rtf for report in reports], 95),
            "underrun_worst_s": max(underruns, default=None),
            "continuous_share": _share(underruns),
            "tokens_per_s": tokens / wall_s if self.counts_work else None,
            "kv_pages_peak": max((take.pages_seen for take in self.takes), default=0) if self.counts_work else None,
            "requests_per_s": len(reports) / wall_s,
            "audio_s_per_s": sum(report.audio_s for report in reports) / wall_s,
        }


def percentile(values: Iterable[float | None], share: float) -> float | None:
    """The percentile of those that are there, with linear interpolation; None of nothing."""
    there = [value for value in values if value is not None]
    return float(np.percentile(there, share)) if there else None


def _share(underruns: Sequence[float]) -> float | None:
    if not underruns:
        return None
    return sum(underrun <= CONTINUITY_LIMIT_S for underrun in underruns) / len(underruns)


def sweep(
    speaker: Speaker, levels: Sequence[int], requests: int, seed: int, on_take: Callable[[int, Take], None]
) -> list[Level]:
    """Run every level: a warm-up that is not counted, then `requests` texts, two rounds at least.

    All levels speak the same texts with the same seeds. `on_take(concurrency, take)` is told of every counted stream,
    by the reader's thread. Streams that fail are counted as failed and do not stop the others.
    """
    done = []
    for concurrency in levels:
        count = max(requests, LEAST_ROUNDS * concurrency)
        tasks = [Task(text, seed + index) for index, text in enumerate(islice(sweep_texts(), count))]
        run_level(speaker, concurrency, tasks[:concurrency], lambda _: None)
        done.append(run_level(speaker, concurrency, tasks, partial(on_take, concurrency)))
    return done


def run_level(speaker: Speaker, concurrency: int, tasks: Sequence[Task], on_take: Callable[[Take], None]) -> Level:
    """Let `concurrency` readers work through the tasks."""
    level = Level(concurrency, speaker.counts_work)
    waiting = iter(tasks)
    lock = threading.Lock()

    def read() -> None:
        while True:
            with lock:
                task = next(waiting, None)
            if task is None:
                return
            take = listen(speaker, task)
            with lock:
                level.takes.append(take)
            on_take(take)

    # Daemons: Ctrl-C must not wait for streams that nobody will look at.
    readers = [threading.Thread(target=read, name=f"reader-{i}", daemon=True) for i in range(concurrency)]
    began_s = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    level.wall_s = time.perf_counter() - began_s
    return level


def listen(speaker: Speaker, task: Task, use_cache: bool = True) -> Take:
    """Hear one task to its end."""
    pages = 0
    try:
        with speaker.speak(task.text, task.seed, use_cache) as heard:
            for _ in heard:
                pages = max(pages, speaker.pages_used())
    except SpeechError as error:
        return Take(task, error=str(error))
    return Take(task, heard.report, pages_seen=pages)
