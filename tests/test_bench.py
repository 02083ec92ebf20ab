from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from legato.bench import sweep as sweeping
from legato.bench.compare import CACHE, NO_CACHE, STREAMING, WAYS, Trial, compare, medians
from legato.bench.machine import machine_facts
from legato.bench.plot import plot_sweep
from legato.bench.sweep import Level, Take, Task, percentile, run_level, sweep
from legato.bench.tables import compare_table, sweep_table
from legato.bench.texts import SENTENCE_KINDS, TEXTS
from legato.cli import app
from legato.errors import Overloaded, SpeechError
from legato.playback import Heard
from legato.report import StreamReport
from legato.types import AudioChunk


class FakeSpeaker:
    """Speaks two chunks at once; refuses the texts it is told to."""

    name, counts_work = "fake", True

    def __init__(self, refuse: str = "") -> None:
        self.refuse = refuse
        self.asked: list[tuple[str, int, bool]] = []
        self.now = self.most = 0
        self.lock = threading.Lock()

    def speak(self, text: str, seed: int, use_cache: bool = True) -> Heard:
        if text == self.refuse:
            raise Overloaded(3, 2)
        with self.lock:
            self.asked.append((text, seed, use_cache))
            self.now += 1
            self.most = max(self.most, self.now)
        report = StreamReport(24000, seed, "fake", "ada")
        report.usage.generated_tokens = 50
        return Heard(self._chunks(), report, self._leave)

    def _chunks(self) -> Iterator[AudioChunk]:
        for index in range(2):
            yield AudioChunk(0, 24000 * index, np.zeros(24000, np.float32), 24000, 0, index == 1)

    def _leave(self) -> None:
        with self.lock:
            self.now -= 1

    def pages_used(self) -> int:
        return 10 * self.now


def report_of(*chunks: tuple[float, int]) -> StreamReport:
    report = StreamReport(24000, model="fake")
    for at_s, samples in chunks:
        report.add(at_s, samples)
    report.usage.generated_tokens = 100
    return report


def level_of(concurrency: int, *reports: StreamReport, failed: int = 0, counts_work: bool = True) -> Level:
    takes = [Take(Task("Hello.", i), report, pages_seen=7 + i) for i, report in enumerate(reports)]
    takes += [Take(Task("Hello.", 99), error="refused")] * failed
    return Level(concurrency, counts_work, 10.0, takes)


# --- texts ---


def test_texts_are_of_the_length_they_claim() -> None:
    assert sum(len(TEXTS[kind]) for kind in SENTENCE_KINDS) == 24 and len(TEXTS["paragraph"]) == 3
    limits = {"short": (1, 40), "medium": (50, 100), "long": (130, 200), "paragraph": (250, 400)}
    for kind, texts in TEXTS.items():
        least, most = limits[kind]
        assert all(least <= len(text) <= most for text in texts), kind
    assert len({text for texts in TEXTS.values() for text in texts}) == 27


def test_sweep_texts_mix_lengths_from_the_first_on() -> None:
    texts = sweeping.sweep_texts()
    first = [next(texts) for _ in range(24)]
    assert [len(text) < 50 for text in first[:6]] == [True, False, False] * 2
    assert next(texts) == first[0] and len(set(first)) == 24


# --- the sweep ---


def test_every_level_speaks_the_same_after_a_warm_up_that_is_not_counted() -> None:
    speaker, told = FakeSpeaker(), []
    levels = sweep(speaker, [1, 2], 3, 100, lambda concurrency, take: told.append((concurrency, take.task.seed)))
    assert [len(level.takes) for level in levels] == [3, 4], "two rounds at least"
    assert sorted(told) == [(1, 100), (1, 101), (1, 102), (2, 100), (2, 101), (2, 102), (2, 103)]
    assert len(speaker.asked) == 1 + 3 + 2 + 4
    by_seed = {seed: text for text, seed, _ in speaker.asked}
    assert {(text, seed) for text, seed, _ in speaker.asked} == {(text, seed) for seed, text in by_seed.items()}


def test_readers_read_at_the_same_time_and_no_more_than_asked() -> None:
    speaker, together = FakeSpeaker(), threading.Barrier(3, timeout=5)
    speaker.pages_used = lambda: together.wait() and 0  # type: ignore[method-assign]
    level = run_level(speaker, 3, [Task("Hello.", i) for i in range(6)], lambda _: None)
    assert len(level.reports) == 6 and speaker.most == 3 and speaker.now == 0


def test_failed_streams_are_counted_and_stop_nobody() -> None:
    level = run_level(FakeSpeaker("b"), 2, [Task(text, 0) for text in "abab"], lambda _: None)
    summary = level.summary()
    assert (summary["requests"], summary["failed"]) == (2, 2)
    errors = {take.error for take in level.takes}
    assert any("requests are waiting" in error for error in errors)
    assert {"error", "text", "seed"} == set(level.takes[[bool(t.error) for t in level.takes].index(True)].as_dict())


def test_figures_of_a_level() -> None:
    steady = report_of((0.2, 24000), (0.7, 24000))
    late = report_of((0.4, 24000), (1.9, 24000))  # 0.5 s of silence in the middle
    summary = level_of(2, steady, late, failed=1).summary()
    assert summary == {
        "concurrency": 2,
        "requests": 2,
        "failed": 1,
        "wall_s": 10.0,
        "ttfa_p50_s": pytest.approx(0.3),
        "ttfa_p95_s": pytest.approx(0.39),
        "rtf_p50": pytest.approx((0.35 + 0.95) / 2),
        "rtf_p95": pytest.approx(0.35 + 0.95 * 0.6),
        "underrun_worst_s": pytest.approx(0.5),
        "continuous_share": 0.5,
        "tokens_per_s": 20.0,
        "kv_pages_peak": 8,
        "requests_per_s": 0.2,
        "audio_s_per_s": 0.4,
    }


def test_what_an_endpoint_does_not_show_is_none_and_not_zero() -> None:
    summary = level_of(1, report_of((0.2, 24000)), counts_work=False).summary()
    assert summary["tokens_per_s"] is None and summary["kv_pages_peak"] is None


def test_figures_of_nothing_are_none() -> None:
    summary = level_of(1, failed=2).summary()
    assert summary["ttfa_p50_s"] is summary["underrun_worst_s"] is summary["continuous_share"] is None
    assert percentile([None, 3.0], 50) == 3.0 and percentile([], 50) is None


# --- the comparison ---


def test_ways_take_turns_on_every_text() -> None:
    speaker = FakeSpeaker()
    trials = compare(speaker, 2, 5, 1, lambda _: None)  # type: ignore[arg-type]
    counted = speaker.asked[len(WAYS) :]
    assert [trial.way for trial in trials] == [*WAYS] * 8
    assert [use_cache for *_, use_cache in counted] == [False, True, True] * 8
    assert all(len({row[:2] for row in counted[i : i + 3]}) == 1 for i in range(0, 24, 3)), "one text, one seed"


def test_only_the_stream_is_heard_before_its_end() -> None:
    take = Take(Task("Hello.", 0), report_of((0.2, 24000), (0.8, 24000)))
    trials = [Trial("short", way, 0, take) for way in WAYS]
    assert [trial.first_sound_s for trial in trials] == [0.8, 0.8, 0.2]
    assert {trial.total_s for trial in trials} == {0.8}
    row = medians(trials)[0]
    assert row["kind"] == "short" and row["audio_s"] == 2.0
    assert row[STREAMING] == {"first_sound_s": 0.2, "total_s": 0.8} and row[CACHE]["first_sound_s"] == 0.8
    assert medians(trials)[3][NO_CACHE] == {"first_sound_s": None, "total_s": None}


# --- what is shown ---


def shown(table: object) -> str:
    console = Console(width=80, file=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_tables_fit_a_terminal_and_hold_the_figures() -> None:
    text = shown(sweep_table([level_of(c, report_of((0.123, 240), (12.5, 24000)), failed=1) for c in (1, 16)]))
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    assert "123" in text and "12367" in text and "failed" in text
    remote = shown(sweep_table([level_of(1, report_of((0.1, 24000)), counts_work=False)]))
    assert "tokens" not in remote and "failed" not in remote
    take = Take(Task("Hello.", 0), report_of((0.2, 240000), (80.0, 24000)))
    compared = shown(compare_table([Trial(kind, way, 0, take) for kind in TEXTS for way in WAYS]))
    assert "…" not in compared and "400.0 ×" in compared


def test_plot_is_a_picture(tmp_path: Path) -> None:
    levels = [level_of(c, report_of((0.1 * c, 24000))) for c in (1, 2, 16)] + [level_of(32, failed=1)]
    plot_sweep(levels, "fake · a machine", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SpeechError, match="plot.xyz"):
        plot_sweep(levels, "fake", tmp_path / "plot.xyz")


def test_machine_facts_name_what_a_figure_depends_on() -> None:
    facts = machine_facts()
    assert {"cpu", "cores", "threads", "torch", "legato", "python"} <= facts.keys() and facts["cpu"]


# --- the command ---


def test_command_measures_the_embedded_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "sweep_texts", lambda: iter(["Good morning."] * 9))
    options = ["--concurrency", "1,2", "--requests", "1", "--json", str(tmp_path / "b.json")]
    result = CliRunner().invoke(app, ["bench", *options, "--plot", str(tmp_path / "b.png")])
    assert result.exit_code == 0, result.stderr
    assert "TTFA" in result.stderr and not result.stdout
    report = json.loads((tmp_path / "b.json").read_text())
    assert report["kind"] == "sweep" and report["date"].endswith("Z") and report["machine"]["cores"]
    assert [level["concurrency"] for level in report["levels"]] == [1, 2]
    assert [len(level["streams"]) for level in report["levels"]] == [2, 4]
    for level in report["levels"]:
        assert level["kv_pages_peak"] > 0 and level["tokens_per_s"] > 0
        assert all(stream["chunks"] and stream["lm"]["generated_tokens"] for stream in level["streams"])
    assert (tmp_path / "b.png").exists()


def test_command_says_why_an_endpoint_was_not_heard() -> None:
    result = CliRunner().invoke(app, ["bench", "--url", "http://127.0.0.1:9", "--concurrency", "1", "--requests", "1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no stream was heard: http://127.0.0.1:9/v1/audio/speech cannot be reached")


@pytest.mark.parametrize(
    "options",
    [["--concurrency", "two"], ["--concurrency", "0"], ["--requests", "0"], ["--compare", "--url", "http://h"]],
)
def test_command_refuses_what_makes_no_sense(options: list[str]) -> None:
    assert CliRunner().invoke(app, ["bench", *options]).exit_code == 2
