"""The promise in full: 20 texts, three ramps, alone, whole, and in a changing company, bit for bit (slow)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from legato.config import EngineConfig
from legato.core import EngineCore
from legato.errors import Cancelled, SpeechError
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.protocols import SpeechModel
from legato.synth.flow import FlowStage
from legato.synth.vocoder import VocoderStage
from legato.types import AudioChunk, Ramp, SpeechRequest, SpeechTokens, Utterance, UtteranceId

TEXTS = (
    "Yes.",
    "Good morning.",
    "Where is my umbrella?",
    "It rained all night.",
    "The soup is hot, be careful.",
    "He sold the blue bicycle last week.",
    "Dinner is almost ready.",
    "We met in a small cafe by the river.",
    "Please close the door behind you.",
    "My brother works as a nurse.",
    "Take the second street on the left.",
    "She has never been to the sea.",
    "The shop opens at half past nine.",
    "Nobody expected such a cold spring.",
    "I would rather stay at home tonight.",
    "They planted an apple tree in the garden.",
    "Is this seat taken?",
    "The last train leaves in ten minutes.",
    "Bring a warm coat and good shoes.",
    "Thank you, that was very kind of you.",
)
COMPANY = 8
RAMPS = {"smallest": (1,), "default": None, "one big": (64,)}


class Listening:
    """A core and what came out of it."""

    def __init__(self, model: SpeechModel, ramp: tuple[int, ...] | None) -> None:
        self.chunks: dict[int, list[AudioChunk]] = {}
        self.errors: list[SpeechError] = []
        config = EngineConfig(ramp_blocks=ramp, max_requests=COMPANY, kv_memory_mb=16, admit_by_deadline=False)
        self.core = EngineCore(model, config, self._chunk, lambda _, error: self.errors.append(error))

    def _chunk(self, number: int, chunk: AudioChunk) -> None:
        self.chunks.setdefault(number, []).append(chunk)

    def wave(self, number: int) -> np.ndarray:
        return np.concatenate([chunk.pcm for chunk in self.chunks[number]])


def alone(model: SpeechModel, ramp: tuple[int, ...] | None, number: int) -> np.ndarray:
    listening = Listening(model, ramp)
    listening.core.submit(number, SpeechRequest(TEXTS[number], seed=number))
    while listening.core.step():
        pass
    return listening.wave(number)


def whole(model: SpeechModel, ramp: tuple[int, ...] | None, number: int) -> tuple[np.ndarray, int]:
    """Stage after stage, each over everything the one before has made; and the number of codec tokens."""
    id, voice = UtteranceId(0, 0), model.voices[model.default_voice]
    prompt = model.frontend.prompt(Utterance(id, TEXTS[number], voice, seed=number))
    assert prompt is not None
    lm = LMStage(model.lm, 256, 16, SchedulerLimits(512, 16, 1), "tiled")
    lm.add(prompt)
    tokens = [i for item in _all(lm, id) for i in item.ids]
    flow = FlowStage(model.flow, model.rates, Ramp(ramp or model.ramp.keep_blocks, model.ramp.ahead_blocks), 1)
    flow.start(id, number, voice)
    flow.add(SpeechTokens(id, 0, tuple(tokens), final=True))
    vocoder = VocoderStage(model.vocoder, model.rates, 1)
    for block in _all(flow, id):
        vocoder.add(block)
    return np.concatenate([samples.pcm for samples in _all(vocoder, id)]), len(tokens)


def _all(stage, id: UtteranceId) -> list:  # type: ignore[no-untyped-def, type-arg]
    out = []
    while (batch := stage.plan([id])) is not None:
        out += stage.commit(batch, stage.run(batch))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("ramp", RAMPS.values(), ids=RAMPS.keys())
def test_alone_whole_and_in_company(piccolo: SpeechModel, ramp: tuple[int, ...] | None) -> None:
    expected = {}
    for number in range(len(TEXTS)):
        expected[number], tokens = whole(piccolo, ramp, number)
        assert len(expected[number]) == tokens * piccolo.rates.samples_per_token
        assert np.array_equal(alone(piccolo, ramp, number), expected[number])
    company, rng, cancelled = Listening(piccolo, ramp), random.Random(11), 0
    for number in rng.sample(range(len(TEXTS)), len(TEXTS)):
        company.core.submit(number, SpeechRequest(TEXTS[number], seed=number))
        company.core.submit(100 + number, SpeechRequest("Nobody hears the end of this.", seed=number))
        for _ in range(rng.randrange(60)):
            company.core.step()
        if rng.random() < 0.8:
            company.core.cancel(100 + number)
            cancelled += 1
    while company.core.step():
        pass
    assert cancelled > 5
    assert all(isinstance(error, Cancelled) for error in company.errors)
    for number, wave in expected.items():
        assert np.array_equal(company.wave(number), wave)
