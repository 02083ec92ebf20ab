"""The engine's core around the tiny model, and what leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from legato.config import EngineConfig
from legato.core import EngineCore
from legato.errors import SpeechError
from legato.families.qwen2_5_omni import Choices
from legato.protocols import SpeechModel
from legato.types import AudioChunk, ChatRequest, Message, Part, SpeechRequest, TextDelta

QUESTION = (Message("user", (Part("text", "Hi, what is up?"),)),)
QUICK = Choices(solver="euler", max_codes=40)


@dataclass
class Heard:
    """What came of one request."""

    text: str = ""
    pieces: list[np.ndarray] = field(default_factory=list)
    error: SpeechError | None = None
    final: bool = False

    @property
    def wave(self) -> np.ndarray:
        return np.concatenate(self.pieces) if self.pieces else np.zeros(0, np.float32)


class Room:
    """A core and everything that left it."""

    def __init__(self, model: SpeechModel, **settings: Any) -> None:
        self.model = model
        self.heard: dict[int, Heard] = {}
        config = EngineConfig(hold_first_sound=False, kv_memory_mb=4, writer_kv_memory_mb=4, **settings)
        self.core = EngineCore(model, config, self._take, self._fail)

    def _take(self, number: int, piece: AudioChunk | TextDelta) -> None:
        one = self.heard.setdefault(number, Heard())
        if isinstance(piece, TextDelta):
            one.text += piece.text
        else:
            assert piece.start_sample == sum(map(len, one.pieces))
            one.pieces.append(piece.pcm)
        one.final = one.final or piece.final

    def _fail(self, number: int, error: SpeechError) -> None:
        self.heard.setdefault(number, Heard()).error = error

    def chat(self, number: int, request: ChatRequest) -> None:
        assert self.model.writer is not None
        self.core.door.check_chat(request)
        self.core.submit_chat(number, request, self.model.writer.chat.prepare(request))

    def run(self) -> dict[int, Heard]:
        while self.core.step():
            pass
        return self.heard


def requests() -> list[ChatRequest | SpeechRequest]:
    sound = np.random.default_rng(3).standard_normal(16000 * 3).astype(np.float32) * 0.1
    heard = (Message("user", (Part("audio", sound, 16000), Part("text", "What is this?"))),)
    return [
        ChatRequest(QUESTION, voice="Ethan", seed=7, max_tokens=8),
        ChatRequest(heard, voice="Chelsie", seed=8, max_tokens=12),
        SpeechRequest("Read me.", voice="Ethan", seed=9),
        ChatRequest(heard, modalities=("text",), seed=10, max_tokens=20),
        ChatRequest(QUESTION, voice="Chelsie", seed=11, max_tokens=1),
    ]


def submit(room: Room, number: int, request: ChatRequest | SpeechRequest) -> None:
    if isinstance(request, ChatRequest):
        room.chat(number, request)
    else:
        room.core.submit(number, request)
