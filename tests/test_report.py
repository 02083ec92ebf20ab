"""First sound, real-time factor and underrun, by hand."""

from __future__ import annotations

import pytest

from legato.report import StreamReport


def report(*chunks: tuple[float, int]) -> StreamReport:
    made = StreamReport(sample_rate_hz=1000)
    for at_s, samples in chunks:
        made.add(at_s, samples)
    return made


def test_no_sound() -> None:
    silent = report((0.5, 0))
    assert (silent.ttfa_s, silent.rtf, silent.underrun_s, silent.audio_s) == (None, None, 0.0, 0.0)
    assert silent.line() == "no sound"


def test_figures() -> None:
    made = report((0.1, 500), (0.4, 500), (1.0, 1000))
    assert made.ttfa_s == 0.1
    assert made.audio_s == 2.0
    assert made.rtf == pytest.approx(0.5)
    assert made.underrun_s == 0.0


@pytest.mark.parametrize(
    ("chunks", "underrun_s"),
    [
        (((0.0, 500), (0.7, 500)), 0.2),
        (((0.0, 500), (0.7, 500), (1.3, 100)), 0.3),
        (((2.0, 500), (2.5, 500)), 0.0),
        (((0.0, 100), (0.05, 100), (0.5, 1)), 0.3),
    ],
)
def test_underrun_is_the_largest_deficit_of_a_player_that_never_stops(
    chunks: tuple[tuple[float, int], ...], underrun_s: float
) -> None:
    assert report(*chunks).underrun_s == pytest.approx(underrun_s)


def test_stats_have_their_stable_shape() -> None:
    stats = report((0.1, 500)).as_dict()
    assert list(stats) == [
        "ttfa_s", "wall_s", "audio_s", "rtf", "underrun_s", "sample_rate_hz", "seed", "model", "voice", "chunks",
        "lm", "kv",
    ]  # fmt: skip
    assert stats["chunks"] == [{"t_s": 0.1, "samples": 500}]
    assert list(stats["lm"]) == ["prompt_tokens", "generated_tokens", "steps"]
    assert list(stats["kv"]) == ["pages_peak", "page_operations"]
