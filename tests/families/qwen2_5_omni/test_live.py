"""Sound that comes while the request runs, through the engine's core: text and speech as of the whole clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from legato.errors import RequestError
from legato.families.qwen2_5_omni import load
from legato.protocols import LoadOptions, SpeechModel
from legato.types import ChatRequest, Message, Part

from .chatting import asked, film, picture, user
from .media_files import noise
from .room import QUICK, Heard, Room


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> SpeechModel:
    return load(checkpoint, LoadOptions(ode_steps=1), QUICK)


def loudest_first(seconds: float) -> np.ndarray:
    wave = (noise(1, round(16000 * seconds)) * 0.05).numpy()
    wave[100:200] *= 10
    return wave


def alone(model: SpeechModel, request: ChatRequest) -> Heard:
    room = Room(model)
    room.chat(0, request)
    return room.run()[0]


def test_live_sound_is_answered_as_the_clip(model: SpeechModel) -> None:
    wave, before = loudest_first(5.5), (picture(1, 90, 120), "What do you hear?")
    settings = {"seed": 3, "max_tokens": 8, "voice": "Ethan"}
    wanted = alone(model, asked(user(*before, Part("audio", wave, 16000)), **settings))
    room = Room(model)
    room.chat(0, asked(user(*before), more_audio=True, **settings))
    room.chat(1, asked(user("And you?"), seed=4))
    for piece in np.array_split(wave, 11):
        room.core.push_audio(0, piece, 16000)
        for _ in range(3):
            room.core.step()
    assert not room.heard.get(0), "it does not answer before the end"
    room.core.push_audio(0, None, 0)
    heard = room.run()
    assert heard[0].final and heard[0].error is None and len(wanted.wave) > 0
    assert heard[0].text == wanted.text and np.array_equal(heard[0].wave, wanted.wave)
    assert heard[1].final


@pytest.mark.parametrize(
    ("wave", "message"),
    [(np.full(9, np.nan, np.float32), "not numbers"), (np.zeros(16000 * 130, np.float32), "more than 120 s")],
)
def test_live_sound_that_is_none_ends_its_request_only(model: SpeechModel, wave: np.ndarray, message: str) -> None:
    room = Room(model)
    room.chat(0, asked(user(), more_audio=True))
    room.chat(1, asked(user("Hi"), seed=4, max_tokens=4))
    room.core.push_audio(0, loudest_first(2.5), 16000)
    room.core.step()
    room.core.push_audio(0, wave, 16000)
    heard = room.run()
    assert isinstance(heard[0].error, RequestError) and message in str(heard[0].error)
    assert heard[1].final and heard[1].error is None


def test_an_end_without_a_sound(model: SpeechModel) -> None:
    room = Room(model)
    room.chat(0, asked(user(), more_audio=True))
    room.core.push_audio(0, None, 0)
    assert "nothing was heard" in str(room.run()[0].error)


def test_every_medium_in_one_dialogue(model: SpeechModel) -> None:
    """A film with its sound, a picture, a clip; then the next turn, which starts behind the pages of the first."""
    track = (noise(5, 48000) * 0.1).numpy()
    clip = Part("audio", loudest_first(1.2), 16000)
    first = asked(user(film(2, track), picture(3, 60, 60), clip, "So?"), audio_in_video=True, max_tokens=6, seed=5)
    room = Room(model)
    room.chat(0, first)
    said = room.run()[0]
    assert said.final and said.error is None and len(said.wave)
    assert room.core.replies is not None
    before = room.core.replies.lm.pool.counters.shared
    answer = Message("assistant", (Part("text", said.text),))
    second = asked(*first.messages, answer, user("And?"), audio_in_video=True, max_tokens=6, seed=6)
    room.chat(1, second)
    after = room.run()[1]
    assert room.core.replies.lm.pool.counters.shared - before > 500 // 16
    wanted = alone(model, second)
    assert after.text == wanted.text and np.array_equal(after.wave, wanted.wave)
