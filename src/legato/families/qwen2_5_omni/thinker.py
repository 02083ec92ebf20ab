"""The thinker: a decoder over text ids and rows of media that writes the reply and leaves a row of every position.

Rows of media have no id of the vocabulary. They are fed under `media_id`, the first number beyond it, whose embedding
is zero, and their features come as vectors. So a placeholder's id, should the model ever draw one, is text like any
other.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.errors import CheckpointError
from legato.nn.attention import AttentionInput, KVShape
from legato.nn.decoder import Decoder
from legato.nn.layers import Linear, freeze
from legato.nn.weights import DECODER_GROUPS, DECODER_NAMES, Rules, Uninitialised, fuse_projections

from .parts import ThinkerConfig
from .weights import Tensors, load_part

THINKER_NAMES: Rules = ((r"^model\.embed_tokens\.", "embedding."), (r"^lm_head\.", "head."), *DECODER_NAMES)
PREFIX, HEAD, EMBEDDING = "thinker.", "lm_head.weight", "model.embed_tokens.weight"
TOWERS = ("audio_tower.", "visual.")


class Thinker(nn.Module):
    """Decoder with positions on three axes (M-RoPE, Qwen2-VL, arXiv:2409.12191). It is a RelayLM."""

    row_tile: int = 0

    def __init__(self, config: ThinkerConfig) -> None:
        super().__init__()
        self.config = config
        self.media_id = config.vocabulary
        self.embedding = nn.Embedding(config.vocabulary, config.decoder.width)
        self.decoder = Decoder(config.decoder)
        self.head = Linear(config.decoder.width, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight

    def freeze(self, row_tile: int) -> None:
        """Ready for inference. A tied embedding then shares the head's layout, so the matrix is kept once."""
        self.row_tile = row_tile
        freeze(self, row_tile)
        if self.config.tied:
            self.embedding.weight = self.head.weight

    @property
    def kv_shape(self) -> KVShape:
        sizes, weight = self.config.decoder, self.embedding.weight
        return KVShape(sizes.layers, sizes.kv_heads, sizes.head_dim, weight.dtype, weight.device, sizes.width)

    def embed(self, ids: Tensor, vectors: Tensor | None) -> Tensor:
        """Embeddings [R, width] of ids [R], zero at `media_id`, plus vectors [R, width]."""
        media = ids == self.media_id
        rows = F.embedding(ids.masked_fill(media, 0), self.embedding.weight).masked_fill(media[:, None], 0.0)
        return rows if vectors is None else rows + vectors.to(rows.dtype)

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        hidden: Tensor = self.decoder(rows, attention)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(hidden)
        return scores.float()

    def relay(self, ids: Tensor, embedded: Tensor, hidden: Tensor) -> Tensor:
        """Rows [R, width] for the talker: hidden states and, where there is text, its embedding."""
        return torch.where((ids == self.media_id)[:, None], hidden, hidden + embedded)

    def text_rows(self, ids: Seq[int]) -> Tensor:
        """Embeddings [n, width] of text ids."""
        return F.embedding(torch.tensor(list(ids), device=self.embedding.weight.device), self.embedding.weight)


def load_thinker(tensors: Tensors, config: ThinkerConfig, dtype: torch.dtype) -> Thinker:
    """The thinker's own part, without the encoders of media. A head in the file counts, whatever the settings say.

    Raises CheckpointError for what does not fit.
    """
    raw = tensors.read(PREFIX, dtype, skip=TOWERS)
    if HEAD not in raw and config.tied and EMBEDDING in raw:
        raw[HEAD] = raw[EMBEDDING]
    elif HEAD not in raw:
        raise CheckpointError(f"{tensors.folder} lacks {PREFIX}{HEAD}")
    tied = raw[HEAD] is raw.get(EMBEDDING)
    fuse_projections(raw, DECODER_GROUPS, str(tensors.folder))
    with Uninitialised():
        net = Thinker(replace(config, tied=tied))
    load_part(net, raw, THINKER_NAMES, tensors.folder)
    if tied:
        net.head.weight = net.embedding.weight
    return net
