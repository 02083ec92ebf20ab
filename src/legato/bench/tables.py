"""Benchmark figures for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from .compare import CACHE, NO_CACHE, STREAMING, Trial, medians
from .sweep import Level

NOTHING = "–"


def sweep_table(levels: Sequence[Level]) -> Table:
    """One row per concurrency. Columns that this speaker cannot fill are left out."""
    summaries = [level.summary() for level in levels]
    columns: list[tuple[str, str, str, float]] = [
        ("at\nonce", "concurrency", "{:.0f}", 1),
        ("requests", "requests", "{:.0f}", 1),
        ("TTFA\np50 ms", "ttfa_p50_s", "{:.0f}", 1000),
        ("TTFA\np95 ms", "ttfa_p95_s", "{:.0f}", 1000),
        ("RTF\np50", "rtf_p50", "{:.2f}", 1),
        ("underrun\nworst ms", "underrun_worst_s", "{:.0f}", 1000),
        ("within\n100 ms", "continuous_share", "{:.0f} %", 100),
        ("tokens\n/ s", "tokens_per_s", "{:.0f}", 1),
        ("pages\npeak", "kv_pages_peak", "{:.0f}", 1),
        ("req\n/ s", "requests_per_s", "{:.2f}", 1),
        ("audio\ns / s", "audio_s_per_s", "{:.1f}", 1),
        ("failed", "failed", "{:.0f}", 1),
    ]
    needed = [c for c in columns if c[1] != "failed" or any(summary["failed"] for summary in summaries)]
    shown = [c for c in needed if any(summary[c[1]] is not None for summary in summaries)]
    table = _table()
    for title, *_ in shown:
        table.add_column(title, justify="right", no_wrap=True)
    for summary in summaries:
        table.add_row(*(_cell(summary[key], form, factor) for _, key, form, factor in shown))
    return table


def _table() -> Table:
    """Plain columns, narrow enough for 80 characters."""
    return Table(box=None, header_style="bold", pad_edge=False, collapse_padding=True)


def _cell(value: float | None, form: str, factor: float = 1) -> str:
    return NOTHING if value is None else form.format(value * factor)


def compare_table(trials: list[Trial]) -> Table:
    """Median seconds to the first sound and to the last, by length of text; one column where they are the same."""
    table = _table()
    table.add_column("text", no_wrap=True)
    whole = [f"{way}\nall at end" for way in (NO_CACHE, CACHE)]
    stream = [f"{STREAMING}\n{moment}" for moment in ("first", "last")]
    for title in ("audio", *whole, *stream, *(f"sooner\nthan\n{way}" for way in (NO_CACHE, CACHE))):
        table.add_column(title, justify="right", no_wrap=True)
    for row in medians(trials):
        seconds = [row["audio_s"], *(row[way]["total_s"] for way in (NO_CACHE, CACHE))]
        seconds += [row[STREAMING][figure] for figure in ("first_sound_s", "total_s")]
        gains = [_gain(row, way) for way in (NO_CACHE, CACHE)]
        table.add_row(row["kind"], *(_cell(value, "{:.2f} s") for value in seconds), *gains)
    return table


def _gain(row: dict[str, Any], way: str) -> str:
    """How many times sooner the stream sounds."""
    first_s, other_s = row[STREAMING]["first_sound_s"], row[way]["first_sound_s"]
    return f"{other_s / first_s:.1f} ×" if first_s and other_s else NOTHING
