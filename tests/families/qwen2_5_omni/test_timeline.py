"""A reply as it happens: the parts overlap in the order that makes the first sound early. No durations are tested."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("qwen_timeline", BENCHMARKS / "qwen_timeline.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "qwen_timeline", module)
    spec.loader.exec_module(module)
    return module


def test_the_parts_overlap(timeline: ModuleType, tmp_path: Path) -> None:
    """The talker begins while the thinker writes, sound leaves after 36 codes while the talker goes on."""
    timeline.build(tmp_path, timeline.SIZES["tiny"])
    reply = timeline.Reply(tmp_path, codes=90)
    reply.answer(0, text_ids=50)
    found = reply.summary()
    assert found["first_s"]["talker"] < found["last_s"]["thinker"], "its prefill follows the thinker's"
    assert found["known_at_first_sound"].endswith(" 36 codes")
    assert found["first_s"]["audio"] < found["last_s"]["talker"]
    assert (found["text_ids"], found["codes"], found["audio_s"]) == (50, 90, pytest.approx(90 / 50))
    timeline.plot(reply.recorder.events, timeline.LANES, "title", tmp_path / "line.png")
    assert (tmp_path / "line.png").stat().st_size > 5000
