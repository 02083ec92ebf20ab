"""The small model that holds conversations, fit to be served: it hears files, speaks softly, can be held up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import chatting
import numpy as np
import pytest
from synth.fakes import FakeVocoder
from torch import Tensor

from legato.config import EngineConfig
from legato.conversation import MediaBlock
from legato.engine import SpeechEngine
from legato.errors import RequestError
from legato.protocols import Step
from legato.serving.encoders import PcmEncoder
from legato.types import ChatRequest, Message, Part, TextDelta, UtteranceId

from .fakes import Server

ROUTE = "/v1/chat/completions"
BOTH = ["text", "audio"]

SMALL = EngineConfig(kv_memory_mb=1, writer_kv_memory_mb=1, media_rows_per_step=6)


class Slow(chatting.Writing):
    """A writer whose every letter takes a while."""

    letter_s = 0.02

    def accept(self, token: int) -> Step:
        time.sleep(self.letter_s)
        return super().accept(token)


class Hearing(chatting.SmallTalk):
    """Takes the bytes of any file for a sound; `slow` conversations are written letter by letter."""

    slow = False

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []
        self.talks: list[chatting.Talk] = []

    def prepare(self, request: ChatRequest) -> ChatRequest:
        self.requests.append(request)
        heard = (Message(m.role, tuple(as_sound(part) for part in m.parts)) for m in request.messages)
        return super().prepare(replace(request, messages=tuple(heard)))

    def open(self, prepared: ChatRequest, id: UtteranceId) -> chatting.Talk:
        talk = super().open(prepared, id)
        if self.slow:
            talk.writing.__class__ = Slow
        self.talks.append(talk)
        return talk


def as_sound(part: Part) -> Part:
    data = part.content.read_bytes() if isinstance(part.content, Path) else part.content
    if not isinstance(data, bytes):
        return part
    if data == b"broken":
        raise RequestError(f"messages: the {part.kind} cannot be read", "messages")
    wave = np.frombuffer(data, np.uint8).astype(np.float32) / 256
    return Part("audio", wave, chatting.RATE_HZ)


class HeldEars(chatting.Ears):
    """Hears nothing, and holds up the engine, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.free.set()

    def encode(self, blocks: Seq[MediaBlock]) -> list[Tensor]:
        assert self.free.wait(10)
        return super().encode(blocks)


class SoftVocoder(FakeVocoder):
    """Stays within full scale, so that no two samples are clipped to the same."""

    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        return [wave / 500_000 for wave in super().forward(mels)]


def small_engine(config: EngineConfig = SMALL) -> SpeechEngine:
    small = chatting.model()
    assert small.writer is not None
    writer = replace(small.writer, chat=Hearing(), media=HeldEars())
    return SpeechEngine(replace(small, writer=writer, vocoder=SoftVocoder(4, 2)), config)


# --- what clients send and receive ---


def chat_of(server: Server) -> Hearing:
    chat = server.engine.model.writer.chat
    assert isinstance(chat, Hearing)
    return chat


def said(text: str = "hello") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "small-talk", "messages": said(), **fields}


def own(engine: SpeechEngine, messages: Any, **options: Any) -> tuple[str, np.ndarray]:
    """The engine's own reply."""
    pieces = list(engine.chat(messages, **options))
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    sound = [piece.pcm for piece in pieces if not isinstance(piece, TextDelta)]
    return text, np.concatenate([np.zeros(0, np.float32), *sound])


def as_pcm16(pcm: np.ndarray) -> bytes:
    """24 kHz whatever the model's own rate, which is 400 Hz here."""
    encoder = PcmEncoder(400)
    return encoder.push(pcm) + encoder.finish()


@dataclass
class Heard:
    """What a client makes of a stream."""

    chunks: list[dict[str, Any]]

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk["choices"]]

    @property
    def text(self) -> str:
        return "".join(choice["delta"].get("content", "") for choice in self.choices)

    @property
    def audios(self) -> list[dict[str, Any]]:
        return [choice["delta"]["audio"] for choice in self.choices if "audio" in choice["delta"]]

    @property
    def transcript(self) -> str:
        return "".join(audio.get("transcript", "") for audio in self.audios)

    @property
    def pieces(self) -> list[str]:
        return [audio["data"] for audio in self.audios if audio["data"]]


def heard(text: str) -> Heard:
    """A stream of events that ended in order."""
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return Heard([json.loads(event[6:]) for event in events])


def watched(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The streams that the server gets from its engine."""
    streams: list[Any] = []
    engine_submit = server.engine.submit_chat

    def submit(request: Any) -> Any:
        streams.append(engine_submit(request))
        return streams[-1]

    monkeypatch.setattr(server.engine, "submit_chat", submit)
    return streams
