"""When what happens in an engine core: events of its stages, as bars in a terminal and as a picture."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BAR_COLUMNS = 68
CHUNKS = "audio"


@dataclass(frozen=True)
class Event:
    """A stretch of one lane, of one request (None: of several). `amount` is rows, frames or milliseconds of sound."""

    lane: str
    start_s: float
    stop_s: float
    request: int | None
    amount: float


class Recorder:
    """Notes every run of the stages it is given, by a clock of its own or a made-up one."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.events: list[Event] = []

    def watch(self, stage: Any, lane: str, utterance_of: Callable[[Any], Any]) -> None:
        """Note the runs of a stage; `utterance_of` gives the utterance of an item of its batches."""
        run = stage.run

        def noted(batch: Any) -> Any:
            start_s = self.now()
            result = run(batch)
            requests = {utterance_of(item).request for item in batch}
            request = requests.pop() if len(requests) == 1 else None
            self.events.append(Event(lane, start_s, self.now(), request, len(batch)))
            return result

        stage.run = noted

    def chunk(self, request: int, audio_s: float) -> None:
        """Note a chunk that leaves now."""
        self.events.append(Event(CHUNKS, self.now(), self.now(), request, 1000 * audio_s))


def merged(events: Sequence[Event]) -> Iterator[Event]:
    """Runs of steps of one lane and request that follow one another, as one event each."""
    for (lane, request), group in groupby(events, key=lambda event: (event.lane, event.request)):
        steps = list(group)
        if lane == CHUNKS:
            yield from steps
        else:
            yield Event(lane, steps[0].start_s, steps[-1].stop_s, request, len(steps))


def show(events: Sequence[Event], lanes: Sequence[str], console: Console) -> None:
    """The lanes as bars."""
    end_s = max(event.stop_s for event in events)
    for lane in lanes:
        bar = [" "] * (BAR_COLUMNS + 1)
        for event in events:
            if event.lane == lane:
                first, last = (int(BAR_COLUMNS * at / end_s) for at in (event.start_s, event.stop_s))
                bar[first : last + 1] = ("▲" if lane == CHUNKS else "█") * (last + 1 - first)
        console.print(f"{lane:>8} {''.join(bar)}", highlight=False)
    console.print(f"{'':>8} 0 s{'':{BAR_COLUMNS - 8}}{end_s:.2f} s", highlight=False)


def show_chunks(events: Sequence[Event], beside: Sequence[Any], title: str, console: Console) -> None:
    """When every chunk left, with what was known at that moment beside it."""
    table = Table("chunk", "left at", "sound", title, box=None, pad_edge=False)
    chunks = [event for event in events if event.lane == CHUNKS]
    for index, (chunk, known) in enumerate(zip(chunks, beside, strict=True)):
        table.add_row(str(index), f"{1000 * chunk.start_s:.0f} ms", f"{chunk.amount:.0f} ms", str(known))
    console.print(table)


def plot(events: Sequence[Event], lanes: Sequence[str], title: str, path: Path) -> None:
    """The lanes as a picture."""
    from legato.bench.plot import BLUE, GREY, ORANGE, check_plotting

    check_plotting()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.6 * len(lanes) + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    palette = (BLUE, ORANGE, GREY)
    for event in merged(events):
        index = lanes.index(event.lane)
        row = len(lanes) - 1 - index
        if event.lane == CHUNKS:
            axes.plot(event.start_s, row, marker="^", color="black")
            axes.annotate(f"{event.amount:.0f} ms", (event.start_s, row), xytext=(0, -14), textcoords="offset points",
                          ha="center", fontsize=7)  # fmt: skip
        else:
            color = palette[index % len(palette)]
            axes.barh(row, event.stop_s - event.start_s, left=event.start_s, height=0.6, color=color)
    axes.set_yticks(range(len(lanes)), list(reversed(lanes)))
    axes.set(title=title, xlabel="seconds since the request", ylim=(-0.8, len(lanes) - 0.4))
    figure.savefig(path, dpi=150)
