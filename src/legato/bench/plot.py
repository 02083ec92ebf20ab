"""The sweep as a picture: first sound and underrun against concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from legato.errors import SpeechError
from legato.report import CONTINUITY_LIMIT_S

from .sweep import Level

BLUE, ORANGE, GREY = "#1f5fa8", "#d1701f", "#777777"


def check_plotting() -> None:
    """Raise SpeechError, saying what to install, when pictures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SpeechError("--plot needs the package matplotlib: pip install 'legato-speech[bench]'") from None


def plot_sweep(levels: Sequence[Level], title: str, path: Path) -> None:
    """Write the picture; the ending chooses its format. Raises SpeechError when that is none of matplotlib's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    summaries = [level.summary() for level in levels if level.reports]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    first, gap = figure.subplots(1, 2)
    figure.suptitle(title, fontsize=11)
    _line(first, summaries, "ttfa_p95_s", ORANGE, "p95")
    _line(first, summaries, "ttfa_p50_s", BLUE, "p50 (median)")
    _label(first, summaries, "Time to first sound", "first sound after the request (ms)")
    _line(gap, summaries, "underrun_worst_s", BLUE, "worst stream")
    gap.axhline(1000 * CONTINUITY_LIMIT_S, color=GREY, linestyle="--", linewidth=1, label="100 ms: heard as a gap")
    _label(gap, summaries, "Worst underrun", "sound missing at the listener (ms)")
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise SpeechError(f"cannot write {path}: {error}") from None


def _line(axes: Any, summaries: Sequence[dict[str, Any]], key: str, color: str, label: str) -> None:
    x = [summary["concurrency"] for summary in summaries]
    y = [1000 * summary[key] for summary in summaries]
    axes.plot(x, y, color=color, marker="o", label=label)
    for at, value in zip(x, y, strict=True):
        axes.annotate(f"{value:.0f}", (at, value), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8)


def _label(axes: Any, summaries: Sequence[dict[str, Any]], title: str, y_label: str) -> None:
    levels = [summary["concurrency"] for summary in summaries]
    axes.set_xscale("log", base=2)
    axes.set_xticks(levels, [str(level) for level in levels])
    axes.minorticks_off()
    axes.margins(x=0.08)
    axes.set_ylim(0, 1.18 * axes.get_ylim()[1])
    axes.set(title=title, xlabel="listeners at the same time", ylabel=y_label)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
