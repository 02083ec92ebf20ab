"""Decoder-only transformer over packed rows (Llama and Qwen2 layouts)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from .attention import AttentionInput
from .layers import GatedMLP, Linear, RMSNorm, Rotary, rotate


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder. `qkv_bias` is Qwen2's; Llama has none.

    `rope_sections` are how many of the rotary frequencies each axis of a position turns, for positions on several axes
    (M-RoPE, Qwen2-VL, arXiv:2409.12191); together they are all of them.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    rope_theta: float
    norm_eps: float
    qkv_bias: bool
    rope_sections: tuple[int, ...] = ()


class DecoderLayer(nn.Module):
    """Pre-norm attention and gated MLP. Query, key and value projections are one matrix, in that order."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.attention_norm = RMSNorm(config.width, config.norm_eps)
        self.mlp_norm = RMSNorm(config.width, config.norm_eps)
        self.qkv = Linear(config.width, (config.heads + 2 * config.kv_heads) * config.head_dim, bias=config.qkv_bias)
        self.out = Linear(config.heads * config.head_dim, config.width, bias=False)
        self.mlp = GatedMLP(config.width, config.inner)

    def forward(self, x: Tensor, layer: int, table: tuple[Tensor, Tensor], attention: AttentionInput) -> Tensor:
        """x [R, width] → [R, width]. `table` turns queries and keys and leaves values as they are."""
        qkv = rotate(self.qkv(self.attention_norm(x)).view(x.shape[0], -1, self.head_dim), *table)
        x = self.out.add_to(x, attention.attend(layer, qkv[:, : self.heads], qkv[:, self.heads :]))
        return self.mlp.add_to(x, self.mlp_norm(x))


class Decoder(nn.Module):
    """Layers and the last norm; embeddings and heads are the family's."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self._config = config
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.rotary = Rotary(config.head_dim, config.rope_theta, config.rope_sections)

    def fold_norms(self, head: Linear) -> None:
        """Fold every norm's weight into the layer behind it, the last one's into `head`; once, after loading."""
        for layer in cast(Iterable[DecoderLayer], self.layers):
            layer.attention_norm.fold_into(layer.qkv)
            layer.mlp_norm.fold_into(layer.mlp.gate_up)
        self.norm.fold_into(head)

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        """Embeddings [R, width] → hidden states [R, width] after the last norm."""
        table = self._table(attention.positions, rows.dtype)
        for index, layer in enumerate(self.layers):
            rows = layer(rows, index, table, attention)
        hidden: Tensor = self.norm(rows)
        return hidden

    def _table(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine [R, heads + 2 kv_heads, head_dim] for queries, keys and, as 1 and 0, values."""
        cos, sin = (t.to(dtype) for t in self.rotary.table(positions))
        turned, still = self._config.heads + self._config.kv_heads, self._config.kv_heads
        ones = cos.new_ones(1, 1, 1).expand(len(cos), still, cos.shape[-1])
        cos = torch.cat([cos.expand(-1, turned, -1), ones], 1)
        return cos, torch.cat([sin.expand(-1, turned, -1), torch.zeros_like(ones)], 1)


def fuse(*parts: Tensor) -> Tensor:
    """Rows of several projections of the same input as one matrix (q, k, v or gate, up)."""
    return torch.cat(parts, 0)
