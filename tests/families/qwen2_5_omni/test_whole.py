"""The whole model through the engine's core: equal to the reference, and the same in any company."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from legato.errors import PromptTooLong, UnsupportedFeature
from legato.families.qwen2_5_omni import Choices, load
from legato.families.qwen2_5_omni.frontend import READ_ALOUD, ReadAloud
from legato.protocols import LoadOptions, SpeechModel
from legato.types import (
    ChatRequest,
    Sampling,
    Utterance,
    UtteranceId,
)

from .conftest import DATA
from .room import QUESTION, QUICK, Room, requests, submit

GOLDEN = load_file(DATA / "whole.safetensors")


@pytest.fixture(scope="module")
def quick(checkpoint: Path) -> SpeechModel:
    return load(checkpoint, LoadOptions(ode_steps=2), QUICK)


# --- the whole ---


def test_a_reply_is_the_references(checkpoint: Path) -> None:
    """Text, codes and wave, when one window takes the whole reply: the reference is one call at the end."""
    model = load(checkpoint, LoadOptions(), Choices(max_codes=24))
    room = Room(model, ramp_blocks=(100,), look_ahead_blocks=(0,))
    room.chat(0, ChatRequest(QUESTION, voice="Ethan", seed=7, max_tokens=8))
    heard = room.run()[0]
    ids = GOLDEN["reply"].tolist()
    assert model.writer is not None
    assert heard.final and heard.text == b"".join(map(model.writer.chat.tokenizer.bytes_of, ids)).decode(  # type: ignore[attr-defined]
        errors="replace"
    )
    np.testing.assert_allclose(heard.wave, GOLDEN["wave"].numpy(), rtol=0, atol=1e-4)


def test_company_changes_nothing(quick: SpeechModel) -> None:
    """Chats, a reading and a reply in text only, side by side, one of them cancelled midway: as alone."""
    together = Room(quick)
    for number, request in enumerate(requests()):
        submit(together, number, request)
    submit(together, 99, requests()[1])
    for _ in range(30):
        together.core.step()
    together.core.cancel(99)
    heard = together.run()
    for number, request in enumerate(requests()):
        alone = Room(quick)
        submit(alone, number, request)
        one = alone.run()[number]
        assert one.final and one.error is None and heard[number].final
        assert heard[number].text == one.text
        assert np.array_equal(heard[number].wave, one.wave)
        assert len(one.wave) % 480 == 0
    assert [len(heard[n].wave) > 0 for n in range(5)] == [True, True, True, False, False]
    assert heard[2].text == "" and heard[3].text


def test_without_the_cache_the_same_is_said(quick: SpeechModel) -> None:
    for request in (requests()[0], requests()[2]):
        heard = []
        for use_cache in (True, False):
            room = Room(quick)
            submit(room, 0, replace(request, use_cache=use_cache))
            heard.append(room.run()[0])
        assert heard[0].text == heard[1].text and len(heard[0].wave)
        assert np.array_equal(heard[0].wave, heard[1].wave)


def test_a_way_of_drawing_it_does_not_have(quick: SpeechModel) -> None:
    room = Room(quick)
    room.chat(0, ChatRequest(QUESTION, speech_sampling=Sampling(ras_window=10)))
    assert isinstance(room.run()[0].error, UnsupportedFeature)


def test_nothing_is_held_when_all_have_ended(quick: SpeechModel) -> None:
    room = Room(quick)
    for number, request in enumerate(requests()):
        submit(room, number, request)
    for _ in range(40):
        room.core.step()
    for number in range(5):
        room.core.cancel(number)
    assert room.core.replies is not None
    for lm in (room.core.lm, room.core.replies.lm):
        lm.pool.forget_prefixes()
        assert not len(lm) and not lm.pool.used
    assert not len(room.core.flow) and not room.core.vocoder.ready() and not len(room.core.replies.media)


# --- reading aloud ---


def test_the_prompt_of_a_reading(quick: SpeechModel) -> None:
    frontend = quick.frontend
    assert isinstance(frontend, ReadAloud)
    voice = quick.voices["Ethan"]
    prompt = frontend.prompt(Utterance(UtteranceId(0, 0), " Hello, you! ", voice, 3))
    assert prompt is not None and prompt.source is not None and prompt.relay is None
    written = b"".join(map(frontend.tokenizer.bytes_of, prompt.source.token_ids)).decode()
    assert written.endswith(f"user\n{READ_ALOUD}Hello, you!\nassistant\nHello, you!")
    assert prompt.source.relay is not None
    assert prompt.max_positions < prompt.source.max_positions + 2 + QUICK.max_codes
    assert frontend.prompt(Utterance(UtteranceId(0, 0), " \n", voice, 3)) is None


def test_a_reading_too_long_for_the_model(quick: SpeechModel) -> None:
    frontend = quick.frontend
    assert isinstance(frontend, ReadAloud)
    short = ReadAloud(replace(frontend.config, context=200), frontend.tokenizer, frontend.speech)
    with pytest.raises(PromptTooLong, match="this model has 200"):
        short.prompt(Utterance(UtteranceId(0, 0), "word " * 50, quick.voices["Ethan"], 3))
