"""WindowCutter: the cuts depend on the ramp and the length alone, cover everything once, and end once."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from legato.synth.windows import Window, WindowCutter


@dataclass(frozen=True)
class Ramp:
    steps: tuple[int, ...]
    left: int
    right: tuple[int, ...]

    def cutter(self) -> WindowCutter:
        return WindowCutter(self.steps, self.left, self.right)

    def step(self, cut: int) -> int:
        return self.steps[min(cut, len(self.steps) - 1)]

    def ahead(self, cut: int) -> int:
        return self.right[min(cut, len(self.right) - 1)]


def ramps(least_ahead: int) -> st.SearchStrategy[Ramp]:
    return st.builds(
        Ramp,
        steps=st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple),
        left=st.integers(0, 9),
        right=st.lists(st.integers(least_ahead, 7), min_size=1, max_size=3).map(tuple),
    )


PUSHES = st.lists(st.integers(0, 20), max_size=12)


def cut(ramp: Ramp, pushes: list[int], *, end_apart: bool) -> list[Window]:
    """All windows, each cut as soon as the cutter gives it; the end comes with the last push or after it."""
    cutter, available, windows = ramp.cutter(), 0, []
    arrivals = [(push, not end_apart and i == len(pushes) - 1) for i, push in enumerate(pushes)]
    for push, ended in arrivals if pushes and not end_apart else [*arrivals, (0, True)]:
        available += push
        while (window := cutter.next(available, ended)) is not None:
            windows.append(window)
        if not ended:
            number = len(windows)
            done = windows[-1].keep_stop if windows else 0
            assert available < done + ramp.step(number) + ramp.ahead(number), "it waits for longer than it must"
    assert cutter.next(available, True) is None
    return windows


@given(ramps(least_ahead=1), PUSHES, st.booleans())
def test_cuts_do_not_depend_on_arrival(ramp: Ramp, pushes: list[int], end_apart: bool) -> None:
    windows = cut(ramp, pushes, end_apart=end_apart)
    assert windows == cut(ramp, [sum(pushes)], end_apart=False)
    assert windows[-1].keep_stop > windows[-1].keep_start or not sum(pushes)


@given(ramps(least_ahead=0), PUSHES, st.booleans())
def test_without_look_ahead_only_an_empty_end_may_be_added(ramp: Ramp, pushes: list[int], end_apart: bool) -> None:
    """A window that ends where the stream does may be cut before the end is known; then the end comes by itself."""

    def kept(windows: list[Window]) -> list[tuple[int, int, int, int]]:
        return [(w.load_start, w.load_stop, w.keep_start, w.keep_stop) for w in windows if w.keep_stop > w.keep_start]

    assert kept(cut(ramp, pushes, end_apart=end_apart)) == kept(cut(ramp, [sum(pushes)], end_apart=False))


@settings(max_examples=200)
@given(ramps(least_ahead=0), PUSHES, st.booleans())
def test_windows_cover_all_and_load_little(ramp: Ramp, pushes: list[int], end_apart: bool) -> None:
    total, windows = sum(pushes), cut(ramp, pushes, end_apart=end_apart)
    stops = [0, *(window.keep_stop for window in windows)]
    assert [window.keep_start for window in windows] == stops[:-1] and stops[-1] == total
    assert [window.final for window in windows] == [False] * (len(windows) - 1) + [True]
    for number, window in enumerate(windows):
        length, step = window.keep_stop - window.keep_start, ramp.step(number)
        assert length <= step if window.final else length == step
        assert window.load_start == max(0, window.keep_start - ramp.left)
        assert window.load_stop == min(total, window.keep_start + step + ramp.ahead(number))


def test_an_utterance_of_nothing_ends() -> None:
    cutter = WindowCutter((2,), 0, (1,))
    assert cutter.next(0, False) is None
    assert cutter.next(0, True) == Window(0, 0, 0, 0, True)
    assert cutter.next(0, True) is None
