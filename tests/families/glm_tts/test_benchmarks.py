"""The benchmarks' own logic: the timeline on the real core, the decode loop, the sums. No durations are tested."""

from __future__ import annotations

import importlib
import json
import time
from argparse import Namespace
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from legato.families.glm_tts.config import LMFacts
from legato.families.glm_tts.tokenizer import SpecialIds
from legato.nn.decoder import DecoderConfig

pytest.importorskip("wetext")
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FIRST_WINDOW_TOKENS = 20 + 10
"""Kept of the first window, and looked at beyond."""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def timeline(load: Any) -> ModuleType:
    module: ModuleType = load("glm_timeline")
    return module


def test_sound_leaves_after_the_first_window_while_tokens_are_made(timeline: ModuleType, tmp_path: Path) -> None:
    """On a fast device: after thirty tokens and one window, long before the language model is done, and no gap."""
    line = timeline.run("h200", 1, 100, tmp_path)
    summary = line.summary()
    assert summary["tokens"] == 100
    assert summary["tokens_at_first_sound"] == FIRST_WINDOW_TOKENS
    assert summary["first_sound_s"] < 0.5 * summary["lm_done_s"]
    assert summary["longest_gap_s"] == 0
    assert summary["audio_s"] == pytest.approx(4.0)
    flow = [event for event in line.events if event.lane == "flow"]
    before = [event for event in line.events if event.lane == "LM" and event.start_s < flow[0].start_s]
    assert len(before) == FIRST_WINDOW_TOKENS
    timeline.show_all(line, Console(file=(shown := StringIO()), width=200))
    assert shown.getvalue().count("▲") == len(line.tokens_at_chunk)
    pytest.importorskip("matplotlib")
    timeline.plot(line.events, timeline.LANES, "title", tmp_path / "line.png")
    assert (tmp_path / "line.png").stat().st_size > 5000


def test_stages_follow_one_another_and_cost_what_is_said(timeline: ModuleType, tmp_path: Path) -> None:
    """One loop: nothing overlaps, and every stretch has the length of its cost."""
    line = timeline.run("h200", 2, 45, tmp_path)
    work = [event for event in line.events if event.lane != "audio"]
    assert all(a.stop_s == b.start_s for a, b in zip(work, work[1:], strict=False))
    assert {event.request for event in line.events if event.lane == "audio"} == {0, 1}
    lm = [event for event in work if event.lane == "LM"]
    assert all(event.stop_s - event.start_s == pytest.approx(line.costs.lm_s(event.amount)) for event in lm)
    assert any(event.request is None for event in lm)


def test_costs_follow_the_device(timeline: ModuleType) -> None:
    """Weights bound a small step, kernels a fast device, work a large step; windows add up."""
    size = timeline.ReleasedSize()
    slow, fast = (timeline.Costs(timeline.DEVICES[name]) for name in ("cpu", "h200"))
    assert slow.lm_s(1) == pytest.approx(2 * size.lm_weights / slow.device.bytes_per_s)
    assert fast.lm_s(1) == pytest.approx(size.lm_kernels * fast.device.launch_s)
    assert slow.lm_s(512) == pytest.approx(2 * size.lm_weights * 512 / slow.device.half_flops)
    assert slow.flow_s([400, 400]) == pytest.approx(2 * slow.flow_s([400]))
    assert slow.vocoder_s([100, 50]) == pytest.approx(1.5 * slow.vocoder_s([100]))


def test_decode_steps_are_counted_and_compared_with_the_floor(load: Any) -> None:
    speed, real_size = load("lm_speed"), load("glm_real_size")
    facts = LMFacts(DecoderConfig(64, 2, 4, 2, 16, 96, 10000.0, 1e-5, qkv_bias=False), 512, tied=True)
    net = real_size.random_lm(facts)
    matrices = 2 * (64 * 128 + 64 * 64 + 2 * 64 * 96 + 96 * 64) + 512 * 64
    assert speed.weight_bytes(net) == 2 * (matrices + 5 * 64)
    bandwidth = speed.Bandwidth(2**20, time.perf_counter)
    special = SpecialIds(200, 455, 180, 181, 182)
    figures = speed.measure(net, lambda sequences, _: real_size.prompts(special, sequences), [1, 3], 4, bandwidth)
    json.dumps(figures)
    assert [each["sequences"] for each in figures["batches"]] == [1, 3]
    for each in figures["batches"]:
        assert each["step_ms"] >= each["net_ms"] > 0
        assert each["net_over_floor"] == pytest.approx(each["net_ms"] / figures["floor_ms"])


def test_ratios_are_those_of_the_medians(load: Any) -> None:
    side_by_side = load("glm_side_by_side")
    firsts = {"ours": 1, "ours unheld": 0.5, "ours offline": 3, "released": 4, "released stream": 8}
    found = {
        name: [{"first_s": first * scale, "total_s": 2 * first * scale, "audio_s": 1.0} for scale in (1, 100, 0.01)]
        for name, first in firsts.items()
    }
    result = side_by_side.summarised(found)
    assert result["ratios"]["first sound, ours / released"] == 0.25
    assert result["ratios"]["first sound, ours unheld / released"] == 0.125
    assert result["ratios"]["total, ours offline / released"] == 0.75
    assert result["medians"]["released"] == {"first_s": 4, "total_s": 8, "audio_s": 1.0}


def test_case_tells_the_reference_all_it_needs(load: Any, tmp_path: Path) -> None:
    random, side_by_side = load("glm_random"), load("glm_side_by_side")
    from legato import families
    from legato.protocols import LoadOptions

    model = families.load(random.build(tmp_path, "tiny"), LoadOptions())
    options = Namespace(tokens=30, threads=1, cpu_time=False)
    path = side_by_side.write_case(model, random.voice(model), "tiny", options, tmp_path / "case.json")
    case = json.loads(path.read_text())
    assert case["special"]["ate"] - case["special"]["ats"] + 1 == case["codes"] == 64
    assert len(case["text"]) == random.TEXT_IDS and case["tokens"] % len(case["text"]) == 0
    assert max(case["speech"]) < case["codes"]
    assert len(case["speaker"]) == 192 and len(case["mel"][0]) == 80
