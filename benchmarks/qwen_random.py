"""Random Qwen2.5-Omni checkpoints for the benchmarks, and replies of a fixed length from them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from legato.families import qwen2_5_omni
from legato.families.qwen2_5_omni.talker import Talker
from legato.families.qwen2_5_omni.thinker import Thinker
from legato.nn.attention import AttentionInput, KVShape
from legato.protocols import LoadOptions, SpeechModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "families"))
from qwen2_5_omni.tiny import IDS, MIDDLE, TINY, build  # type: ignore[import-not-found]

SIZES = {"tiny": TINY, "middle": MIDDLE}
WORDS = "the rain in the hills is on its way to the sea "
QUESTION = "What do you hear in " + 3 * WORDS + "?"


class EndlessTalker:
    """A talker that never draws the end."""

    def __init__(self, net: Talker, ends: Sequence[int]) -> None:
        self.net, self.ends, self.row_tile = net, list(ends), net.row_tile

    @property
    def kv_shape(self) -> KVShape:
        return self.net.kv_shape

    def embed(self, ids: Tensor, vectors: Tensor | None) -> Tensor:
        return self.net.embed(ids, vectors)

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        return self.net.forward(rows, attention)

    def logits(self, hidden: Tensor) -> Tensor:
        scores = self.net.logits(hidden)
        scores[:, self.ends] = -float("inf")
        return scores


class EndlessThinker(EndlessTalker):
    """The same for a thinker."""

    net: Thinker  # type: ignore[assignment]

    def relay(self, ids: Tensor, embedded: Tensor, hidden: Tensor) -> Tensor:
        return self.net.relay(ids, embedded, hidden)


def fixed_length(folder: Path, codes: int) -> SpeechModel:
    """The checkpoint, with replies of exactly that many codes whatever it draws (their text ends by max_tokens)."""
    model = qwen2_5_omni.load(folder, LoadOptions(), qwen2_5_omni.Choices(max_codes=codes))
    assert model.writer is not None and isinstance(model.lm, Talker) and isinstance(model.writer.lm, Thinker)
    talker = EndlessTalker(model.lm, (IDS.codec_pad, IDS.codec_end))
    thinker = EndlessThinker(model.writer.lm, (IDS.end, IDS.pad))  # type: ignore[arg-type]
    return replace(model, lm=talker, writer=replace(model.writer, lm=thinker))


__all__ = ["IDS", "QUESTION", "SIZES", "build", "fixed_length"]
