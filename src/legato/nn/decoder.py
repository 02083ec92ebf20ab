"""Decoder-only transformer over packed rows (Llama and Qwen2 layouts)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .attention import AttentionInput
from .layers import GatedMLP, Linear, RMSNorm, Rotary, rotate


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder. `qkv_bias` is Qwen2's; Llama has none."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    rope_theta: float
    norm_eps: float
    qkv_bias: bool


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

    def forward(self, x: Tensor, layer: int, cos: Tensor, sin: Tensor, attention: AttentionInput) -> Tensor:
        """x [R, width] → [R, width]."""
        turned = self.heads + self.kv_heads
        qkv = self.qkv(self.attention_norm(x)).view(x.shape[0], -1, self.head_dim)
        qk = rotate(qkv[:, :turned], cos, sin)
        x = x + self.out(attention.attend(layer, qk[:, : self.heads], qk[:, self.heads :], qkv[:, turned:]))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """Layers and the last norm; embeddings and heads are the family's."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.rotary = Rotary(config.head_dim, config.rope_theta)

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        """Embeddings [R, width] → hidden states [R, width] after the last norm."""
        cos, sin = (t.to(rows.dtype) for t in self.rotary.table(attention.positions))
        for index, layer in enumerate(self.layers):
            rows = layer(rows, index, cos, sin, attention)
        hidden: Tensor = self.norm(rows)
        return hidden


def fuse(*parts: Tensor) -> Tensor:
    """Rows of several projections of the same input as one matrix (q, k, v or gate, up)."""
    return torch.cat(parts, 0)
