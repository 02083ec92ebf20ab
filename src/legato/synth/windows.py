"""Cut a growing stream into windows whose kept part no longer depends on what has not come yet. Integers only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """Load [load_start, load_stop) of the input, keep [keep_start, keep_stop) of it. All positions are absolute."""

    load_start: int
    load_stop: int
    keep_start: int
    keep_stop: int
    final: bool


@dataclass
class WindowCutter:
    """Cuts by a fixed ramp: `steps` are the kept lengths of the first, second, … window, `right` how far each looks
    ahead; the last entry of either repeats.

    The cuts depend on the ramp and on where the stream ends, never on when its parts arrive. The last window may be
    short or even empty: an end is always announced.
    """

    steps: tuple[int, ...]
    left: int
    right: tuple[int, ...]
    done: int = 0
    cut: int = 0
    finished: bool = False

    def next(self, available: int, ended: bool) -> Window | None:
        """The next window, given that [0, available) has come and whether that is all; None if it must wait."""
        if self.finished:
            return None
        stop = self.done + self.steps[min(self.cut, len(self.steps) - 1)]
        right = self.right[min(self.cut, len(self.right) - 1)]
        if stop + right > available and not ended:
            return None
        self.finished = ended and stop >= available
        stop = available if self.finished else stop
        window = Window(
            load_start=max(0, self.done - self.left),
            load_stop=min(available, stop + right),
            keep_start=self.done,
            keep_stop=stop,
            final=self.finished,
        )
        self.done, self.cut = stop, self.cut + 1
        return window
