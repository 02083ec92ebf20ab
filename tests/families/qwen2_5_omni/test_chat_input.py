"""What a conversation is given: sound while it runs, and input that is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from legato.conversation import Writer
from legato.errors import PromptTooLong, RequestError, UnknownVoice, UnsupportedFeature
from legato.families.qwen2_5_omni.chat import OmniChat
from legato.families.qwen2_5_omni.pictures import PixelLimits
from legato.types import Message, Part, UtteranceId

from .chatting import Dialogue, Reply, asked, dialogue_of, film, sound, text, user
from .media_files import noise, picture_file


def heard_live(dialogue: Dialogue, number: int, wave: np.ndarray, cuts: list[int], hz: int = 16000) -> Reply:
    dialogue.ask(number, asked(user("Listen: "), more_audio=True))
    id = UtteranceId(number, 0)
    for start, stop in zip([0, *cuts], [*cuts, len(wave)], strict=True):
        dialogue.replies.hear(id, wave[start:stop], hz)
        while dialogue.step():
            pass
        assert not dialogue.ids[number], "it does not answer before the end"
    dialogue.replies.hear(id, None, 0)
    return dialogue.finish([number])[number]


def test_live_sound_is_the_clip_where_its_loudest_comes_first(writer: Writer, chat: OmniChat) -> None:
    wave = (noise(1, 100_000) * 0.05).numpy()
    wave[100:200] *= 10
    whole = dialogue_of(writer, chat)
    whole.ask(1, asked(user("Listen: ", Part("audio", wave, 16000))))
    wanted = whole.finish([1])[1]
    for cuts in ([32000, 64000, 96000], [1, 50, 31999, 32040, 99999], []):
        live = heard_live(dialogue_of(writer, chat), 1, wave, cuts)
        assert live.places == wanted.places and live.keys == wanted.keys
        assert live.ids == wanted.ids and torch.equal(live.rows, wanted.rows)
        assert live.handover.next_place == wanted.handover.next_place


def test_live_sound_is_read_while_it_comes(dialogue: Dialogue) -> None:
    dialogue.ask(1, asked(user(), more_audio=True))
    id, wave = UtteranceId(1, 0), (noise(2, 33_000) * 0.1).numpy()
    handover = dialogue.spoken.handovers[id]
    while dialogue.step():
        pass
    assert (text_rows := handover.take_prompt()) is not None and len(text_rows.rows) > 100
    dialogue.replies.hear(id, wave, 16000)
    while dialogue.step():
        pass
    assert (rows := handover.take_prompt()) is not None and len(rows.rows) == 50
    assert rows.places[0][0] == text_rows.places[-1][0] + 1
    assert not handover.prompt_taken


def test_live_sound_at_another_rate(dialogue: Dialogue) -> None:
    reply = heard_live(dialogue, 1, (noise(3, 72_000) * 0.1).numpy(), [20000, 40001], hz=24000)
    assert sum(key >= 2**62 for key in reply.keys) == 75
    with pytest.raises(RequestError, match="no more sound is expected"):
        dialogue.replies.hear(UtteranceId(1, 0), None, 0)


def test_live_sound_that_is_refused(dialogue: Dialogue) -> None:
    id = UtteranceId(1, 0)
    dialogue.ask(1, asked(user(), more_audio=True))
    for wave, hz, message in (
        (np.full(10, 1e300), 16000, "too large"),
        (np.zeros(9, np.float32), 2**63, "sample_rate_hz = 9223372036854775808"),
        (np.zeros(0, np.float32), 7, "sample_rate_hz = 7"),
        (np.full(10, np.nan, np.float32), 16000, "not numbers"),
        (np.zeros(16000 * 121, np.float32), 16000, "more than 120 s"),
    ):
        with pytest.raises(RequestError, match=message):
            dialogue.replies.hear(id, wave, hz)
    dialogue.replies.hear(id, np.zeros(0, np.float32), 16000)
    with pytest.raises(RequestError, match="nothing was heard: 0 samples"):
        dialogue.replies.hear(id, None, 0)
    dialogue.replies.hear(id, np.zeros(100, np.float32), 16000)
    with pytest.raises(RequestError, match="8000 Hz follows sound at 16000 Hz"):
        dialogue.replies.hear(id, np.zeros(100, np.float32), 8000)
    with pytest.raises(RequestError, match="nothing was heard: 100 samples"):
        dialogue.replies.hear(id, None, 0)
    dialogue.ask(2, asked(user("Hi")))
    with pytest.raises(RequestError, match="no more sound is expected"):
        dialogue.replies.hear(UtteranceId(2, 0), np.zeros(100, np.float32), 16000)


def test_silence_is_answered(dialogue: Dialogue) -> None:
    dialogue.ask(1, asked(user(Part("audio", np.zeros(16000, np.float32), 16000))))
    assert len(dialogue.finish([1])[1].ids) == 16


# --- what is refused ---


def test_requests_that_are_refused(chat: OmniChat) -> None:
    hi = user("Hi")
    damaged = picture_file(np.zeros((64, 64, 3), np.uint8))[:60]
    odd = Message("tool", (text("x"),))  # type: ignore[arg-type]
    for request, message in (
        (asked(hi, odd), r"messages\[1\].role = 'tool': choose one of system, user, assistant"),
        (asked(Message("user", ())), r"messages\[0\] has no content"),
        (asked(Message("assistant", (sound(1, 4000),))), "assistant messages hold text only, not audio"),
        (asked(user(Part("smell", b""))), "is of kind 'smell'"),  # type: ignore[arg-type]
        (asked(user(Part("text", b"x"))), "must be text, not bytes"),
        (asked(user(Part("audio", "http://x/a.wav"))), "must be the bytes of a file or a path, not str"),
        (asked(user(Part("image", np.zeros((4, 4, 3), np.float32)))), "bytes of a file or a path, not ndarray"),
        (asked(user(Part("image", damaged))), r"messages\[0\].content\[0\] \(image\) is damaged"),
        (asked(user(Part("audio", np.zeros(0, np.float32), 16000))), r"\(audio\) holds 0 samples"),
        (asked(user(Part("audio", np.zeros(100, np.float32), 16000))), r"\(audio\) is too short: 100 samples"),
        (asked(user(film(1)), audio_in_video=True), "has no sound, but audio_in_video asks for"),
        (asked(Message("assistant", (text("x"),)), more_audio=True), "only a user's can go on"),
    ):
        with pytest.raises(RequestError, match=message):
            chat.prepare(request)
    with pytest.raises(UnknownVoice, match="Nobody"):
        chat.prepare(asked(hi, voice="Nobody"))


def test_a_conversation_that_is_too_long(chat: OmniChat) -> None:
    words = user("一" * 12000)
    with pytest.raises(PromptTooLong, match="the reply up to 16; this model has 32768"):
        chat.prepare(asked(words))
    assert chat.prepare(replace(asked(user("一" * 10600)), max_tokens=None)).max_tokens < 1024
    with pytest.raises(PromptTooLong, match="up to 40000"):
        chat.prepare(asked(user("Hi"), max_tokens=40000))


def test_a_model_without_its_voice(chat: OmniChat) -> None:
    mute = OmniChat(chat.config, chat.tokenizer, PixelLimits())
    with pytest.raises(UnsupportedFeature, match="loaded without its voice"):
        mute.prepare(asked(user("Hi")))
    conversation = mute.open(mute.prepare(asked(user("Hi"), modalities=("text",))), UtteranceId(1, 0))
    assert conversation.speech is None and conversation.writer.relay is None
