"""What a model family that holds conversations gives to the engine, beside protocols.py.

A reply passes two language models. The writer reads messages (text ids, and rows of sounds and pictures from an
encoder) and writes text; of each of its positions it leaves a row. Those rows are the prompt, and later the input, of
the model that speaks. Both prompts are open: the writer starts before the last medium is encoded, the speaker follows
it position by position.

Shapes: D width of the writer's embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from legato.protocols import Prompt, RelayLM
from legato.types import ChatRequest, FinishReason, UtteranceId, Voice

if TYPE_CHECKING:
    import numpy as np
    import torch


@dataclass(frozen=True, eq=False)
class MediaBlock:
    """A stretch of sound or a picture that is encoded by itself.

    `content` is the family's own, on the host. Blocks of equal `key` (a hash of the content) have equal features.
    `weight` is about how many rows it becomes.
    """

    key: str
    kind: str
    content: Any
    weight: int


class MediaEncoder(Protocol):
    """Sounds and pictures → rows of a prompt."""

    def encode(self, blocks: Seq[MediaBlock]) -> list[torch.Tensor]:
        """Features [n, D] of each block; the same whether blocks come one by one or together."""


class Conversation(Protocol):
    """One chat request on the family's side. It lives in the thread that computes.

    `speech` is None for a reply in text only. `voice` is the one it speaks with.
    """

    writer: Prompt
    speech: Prompt | None
    voice: Voice

    def blocks(self) -> list[MediaBlock]:
        """Blocks that have become known since the last call and are to be encoded."""

    def encoded(self, block: MediaBlock, features: torch.Tensor) -> None:
        """The features of one of them; they may come in any order."""

    def push_audio(self, wave: np.ndarray, sample_rate_hz: int) -> None:
        """More of what the user says (float32 [n] in [-1, 1]), for a request with `more_audio`. Raises RequestError."""

    def end_audio(self) -> None:
        """The user has ended. Raises RequestError when nothing was heard that can be answered."""

    def text(self, ids: Seq[int], final: bool) -> str:
        """The text that these further ids of the reply complete; with `final` all that is left."""

    def finish_reason(self) -> FinishReason:
        """Why the text has ended."""


class Chat(Protocol):
    """Messages → conversation."""

    def prepare(self, request: ChatRequest) -> Any:
        """Read the messages and their media as far as this needs no net. May be called from any thread and take time.

        Raises RequestError naming the part that cannot be used and what was found in it.
        """

    def open(self, prepared: Any, id: UtteranceId) -> Conversation:
        """The conversation of what `prepare` gave."""


@dataclass(frozen=True)
class Writer:
    """The part of a model that reads and writes."""

    lm: RelayLM
    media: MediaEncoder
    chat: Chat
