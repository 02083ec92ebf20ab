"""Messages for tests, and the writing half of the engine around the tiny model."""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from legato.config import EngineConfig
from legato.conversation import Writer
from legato.families.qwen2_5_omni.chat import OmniChat
from legato.families.qwen2_5_omni.conversation import OmniConversation
from legato.families.qwen2_5_omni.handover import Handover
from legato.protocols import Prompt, SampledTokens
from legato.replies import Replies
from legato.types import ChatRequest, Message, Part, Sampling, UtteranceId, Voice

from .media_files import film_file, noise, picture_file, pixels, sound_file

VOICES = {"Chelsie": Voice("Chelsie"), "Ethan": Voice("Ethan")}


class Spoken:
    """Stands for the talker: takes the handovers it is given and speaks nothing."""

    def __init__(self) -> None:
        self.handovers: dict[UtteranceId, Handover] = {}

    def __call__(self, id: UtteranceId, handover: Handover, voice: Voice, request: ChatRequest) -> Prompt:
        self.handovers[id] = handover
        return Prompt(id, (0,), SampledTokens(frozenset(), 1), Sampling(), request.seed, 2)


def text(words: str) -> Part:
    return Part("text", words)


def sound(seed: int, samples: int) -> Part:
    return Part("audio", sound_file((noise(seed, samples) * 0.1).numpy(), 16000))


def picture(seed: int, height: int, width: int) -> Part:
    return Part("image", picture_file(pixels(seed, height, width, 3).numpy()))


def film(seed: int, wave: np.ndarray | None = None) -> Part:
    """Three seconds of 90 × 60 pixels at two pictures a second."""
    pictures = pixels(seed, 6, 3, 60, 90).numpy().transpose(0, 2, 3, 1)
    return Part("video", film_file(np.ascontiguousarray(pictures), 2, wave))


def user(*parts: Part | str) -> Message:
    return Message("user", tuple(text(p) if isinstance(p, str) else p for p in parts))


def asked(*messages: Message, **settings: object) -> ChatRequest:
    request = ChatRequest(messages, max_tokens=16)
    return replace(request, **settings)  # type: ignore[arg-type]


GOLDEN = {
    "text": asked(user("Hello there, 你好!"), Message("assistant", (text("Hi."),)), user("And now?")),
    "sound": asked(user(sound(41, 48123), "What is said?")),
    "picture": asked(
        Message("system", (text("Be brief."),)),
        user("Look: ", picture(42, 90, 150), " and ", sound(43, 20000)),
    ),
    "film": asked(user(film(44), "What happens?")),
    "sounding": asked(user(film(44, (noise(45, 70000) * 0.1).numpy()), "What happens?"), audio_in_video=True),
}
"""What the reference was given too."""


@dataclass
class Reply:
    ids: list[int]
    text: str
    rows: Tensor
    places: list[tuple[int, ...]]
    keys: list[int]
    handover: Handover


class Dialogue:
    """The writing half of the engine, step by step; first come, first served, or anybody with `urgency`."""

    def __init__(self, writer: Writer, spoken: Spoken, **config: object) -> None:
        settings = {"writer_kv_memory_mb": 16, "max_tokens_per_step": 256, **config}
        self.replies = Replies(writer, EngineConfig(**settings), batch_invariant=True)  # type: ignore[arg-type]
        self.chat, self.spoken = writer.chat, spoken
        self.ids: dict[int, list[int]] = {}
        self.said: dict[int, str] = {}
        self.ended: list[int] = []
        self.urgency: random.Random | None = None

    def ask(self, number: int, request: ChatRequest) -> OmniConversation:
        id = UtteranceId(number, 0)
        conversation = self.replies.open(id, self.chat.prepare(request))
        assert isinstance(conversation, OmniConversation)
        self.ids[number], self.said[number] = [], ""
        return conversation

    def step(self) -> bool:
        """Encode media if there are any, else compute positions."""
        media, lm = self.replies.media, self.replies.lm
        if (blocks := media.plan(media.ready())) is not None:
            for item in media.commit(blocks, media.run(blocks)):
                self.replies.encoded(item)
            return True
        order = lm.ready()
        if self.urgency is not None:
            self.urgency.shuffle(order)
        batch = lm.plan(order)
        if batch is None:
            return False
        for tokens in lm.commit(batch, lm.run(batch)):
            number = tokens.utterance.request
            self.ids[number] += tokens.ids
            self.said[number] += self.replies.text(tokens) or ""
            if tokens.final:
                self.ended.append(number)
        return True

    def finish(self, numbers: Seq[int], most_steps: int = 5000) -> dict[int, Reply]:
        for _ in range(most_steps):
            if set(numbers) <= set(self.ended):
                return {number: self.reply(number) for number in numbers}
            assert self.step(), "it waits for nothing"
        raise AssertionError("it does not end")

    def reply(self, number: int) -> Reply:
        handover = self.spoken.handovers[UtteranceId(number, 0)]
        prompt = handover.take_prompt()
        assert prompt is not None and handover.prompt_taken and handover.ended
        rows = [prompt.rows]
        while (row := handover.take_reply()) is not None:
            rows.append(row[None])
        assert handover.exhausted
        return Reply(self.ids[number], self.said[number], torch.cat(rows), [*prompt.places], [*prompt.keys], handover)


def dialogue_of(writer: Writer, chat: OmniChat, **config: object) -> Dialogue:
    """A writing half of its own around the chat, whose talker only takes what it is given."""
    assert isinstance(chat.speak, Spoken)
    return Dialogue(writer, chat.speak, **config)
