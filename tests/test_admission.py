"""More requests than the machine can serve in time: they wait for their turn, and nobody who listens runs dry."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

import pytest
import torch
from chatting import model
from lm.tiny import TinyLM
from synth.fakes import FACTS, FRAMES, FakeFlow, FakeVocoder
from torch import Tensor

from legato.config import EngineConfig
from legato.core import EngineCore
from legato.nn.attention import AttentionInput
from legato.protocols import FlowWindow, SpeechModel
from legato.report import StreamReport
from legato.types import AudioChunk, SpeechRequest, TextDelta

LM_STEP_S, FLOW_BLOCK_S, VOCODER_S = 0.004, 0.0025, 0.004
"""A chunk of 6 codes is 0.24 s of sound and takes 24 ms for everybody, 26.5 ms for each: room for six listeners."""

ROOM = 6
CROWD = 16
BLOCK_FRAMES = FACTS.block_tokens * FRAMES
TALK = "This is one part of a talk. " * 4


class Clock:
    """Time passes where nets compute, and nowhere else."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class TickingLM(TinyLM):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        self.clock.now_s += LM_STEP_S
        return super().forward(rows, attention)


class TickingFlow(FakeFlow):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def advance(self, windows: Seq[FlowWindow]) -> None:
        self.clock.now_s += FLOW_BLOCK_S * sum(len(window.noise) for window in windows) / BLOCK_FRAMES
        super().advance(windows)


class TickingVocoder(FakeVocoder):
    def __init__(self, clock: Clock) -> None:
        super().__init__(4, 2)
        self.clock = clock

    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        self.clock.now_s += VOCODER_S * len(mels)
        return super().forward(mels)


def ticking(clock: Clock) -> SpeechModel:
    return replace(model(), lm=TickingLM(clock), flow=TickingFlow(clock), vocoder=TickingVocoder(clock))


def served(admit_by_deadline: bool) -> tuple[dict[int, StreamReport], int]:
    """What a crowd that comes at once hears, and how many were served at a time at most."""
    clock = Clock()
    speech = ticking(clock)
    heard: dict[int, StreamReport] = {}

    def deliver(number: int, piece: AudioChunk | TextDelta) -> None:
        assert isinstance(piece, AudioChunk)
        heard.setdefault(number, StreamReport(speech.rates.sample_hz)).add(clock.now_s, len(piece.pcm))

    config = EngineConfig(admit_by_deadline=admit_by_deadline, max_requests=CROWD, max_sequences=CROWD)
    core = EngineCore(speech, config, deliver, lambda *_: None, clock)
    core.submit(CROWD, SpeechRequest(TALK, normalize=False))
    while core.step():
        pass
    del heard[CROWD]  # it warmed up: from here on the pace is known
    for number in range(CROWD):
        core.submit(number, SpeechRequest(TALK, seed=number, normalize=False))
    most = 0
    while core.step():
        most = max(most, core.running)
    return heard, most


def test_nobody_runs_dry() -> None:
    heard, most = served(admit_by_deadline=True)
    assert len(heard) == CROWD
    assert max(report.underrun_s for report in heard.values()) == 0.0
    assert ROOM / 2 <= most <= ROOM


def test_without_admission_a_crowd_runs_dry() -> None:
    """Otherwise the test above would say nothing."""
    heard, most = served(admit_by_deadline=False)
    assert len(heard) == CROWD == most
    assert max(report.underrun_s for report in heard.values()) > 0.05


def test_who_does_no_work_keeps_nobody_waiting() -> None:
    """A request whose text has not come, and one whose reader takes nothing, leave room for the next."""
    clock = Clock()
    core = EngineCore(ticking(clock), EngineConfig(max_buffered_s=0.1), lambda *_: None, lambda *_: None, clock)
    core.pace.bears = lambda *_: False  # type: ignore[method-assign]
    core.submit(0, SpeechRequest("", more_text=True))
    core.step()
    core.submit(1, SpeechRequest("nobody listens to this one", normalize=False))
    while core.step():
        pass
    assert core.running == 2, "the first has no text, the second is ahead of its reader"
    core.submit(2, SpeechRequest("but to this", normalize=False))
    core.step()
    assert not core.waiting


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
