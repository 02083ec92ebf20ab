"""What stands in the speaking stages of a model that was loaded to write only. None of it is ever run."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any, NoReturn

import torch
from torch import Tensor

from legato.nn.attention import AttentionInput, KVShape
from legato.protocols import FlowFacts, FlowWindow
from legato.types import Reach


class NoCache(KVShape):
    """A position so large that every memory holds the least number of pages, which in truth take no room."""

    @property
    def bytes_per_position(self) -> int:
        return 2**62


def _silent() -> NoReturn:
    raise ValueError("this model was loaded without its voice")


class NoTalker:
    """A SpeechLM."""

    row_tile = 0

    def __init__(self, device: torch.device) -> None:
        self.kv_shape: KVShape = NoCache(1, 1, 1, torch.float32, device)

    def embed(self, ids: Tensor, vectors: Tensor | None) -> Tensor:
        _silent()

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        _silent()

    def logits(self, hidden: Tensor) -> Tensor:
        _silent()


class NoFlow:
    """A Flow."""

    def __init__(self) -> None:
        self.facts = FlowFacts(1, 0, 0, 0, 1, 1)

    def open(self, window: FlowWindow) -> None:
        _silent()

    def advance(self, windows: Seq[FlowWindow]) -> None:
        _silent()

    def close(self, window: FlowWindow) -> tuple[Tensor, Any]:
        _silent()


class NoVocoder:
    """A Vocoder."""

    reach, exact = Reach(0, 0), True

    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        _silent()
