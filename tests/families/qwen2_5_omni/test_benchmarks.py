"""The benchmarks' own logic: what is counted, and which steps. No durations are tested."""

from __future__ import annotations

import importlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from legato.families.qwen2_5_omni.parts import ThinkerConfig

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_the_thinkers_decode_loop(monkeypatch: pytest.MonkeyPatch, thinker_config: ThinkerConfig) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script, speed = (importlib.import_module(name) for name in ("qwen_real_thinker", "lm_speed"))
    net = script.random_thinker(replace(thinker_config, vocabulary=100_000))
    figures = speed.measure(net, script.prompts, [1, 3], 4, speed.Bandwidth(2**20, time.perf_counter))
    sizes = thinker_config.decoder
    qkv = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    layer = sizes.width * (qkv + sizes.heads * sizes.head_dim + 3 * sizes.inner + 2) + qkv
    assert speed.weight_bytes(net) == 2 * (sizes.layers * layer + sizes.width + 100_000 * sizes.width)
    assert [each["sequences"] for each in figures["batches"]] == [1, 3]
    assert all(each["step_ms"] >= each["net_ms"] > 0 for each in figures["batches"])
