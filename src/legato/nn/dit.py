"""Diffusion transformer (Peebles and Xie 2022, arXiv:2212.09748) that attends within blocks of mel frames.

Every layer sees its own block; `look_back_layers` also see the block before, `look_ahead_layers` the block after. The
net runs on a list of blocks [N, b, D] that may belong to any windows of any utterances, at any ODE step: each block
names its neighbours by index, so no window mask is ever built and the cost of a block is constant.

Keys of the block before may come from memory: `Neighbours.past` names, per block, a row of a stack of stored keys and
values (kept unrotated: a block is always at the same place relative to its neighbours).
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import Linear, Rotary, gelu_tanh, rotate


@dataclass(frozen=True)
class DiTConfig:
    """Sizes of a block-attention DiT. `inputs` is the width of one frame's input features.

    Only the first `rotary_heads` know of positions (None: all of them). A time becomes `time_features` sines and
    cosines (None: as many as `width`), the slowest of which turns 10000 times slower than the fastest, or a bit less
    unless `time_whole_range`.
    """

    inputs: int
    width: int
    layers: int
    heads: int
    inner: int
    outputs: int
    block_frames: int
    look_back_layers: tuple[int, ...]
    look_ahead_layers: tuple[int, ...]
    rope_theta: float
    rotary_heads: int | None = None
    time_features: int | None = None
    time_whole_range: bool = False
    norm_eps: float = 1e-5


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Who stands beside whom among N blocks of one call.

    `valid` [N, b] marks real frames (the last block of an utterance may be short). `before` and `after` [N] index
    blocks of this call, −1 for none; `past` [N] indexes stored blocks, −1 for none (at most one of `before`, `past`).
    """

    valid: Tensor
    before: Tensor
    after: Tensor
    past: Tensor

    @cached_property
    def back_index(self) -> Tensor:
        """Where the block before stands in [blocks of this call | stored blocks]; any place where there is none."""
        return torch.where(self.past >= 0, self.past + len(self.past), self.before.clamp(min=0))

    @cached_property
    def masks(self) -> dict[tuple[bool, bool], Tensor | None]:
        """By (back, ahead): which keys each block may see, [N, 1, 1, keys], keys being [before | own | after].

        None when a block sees all of its own frames and nothing else.
        """
        stored = (self.past >= 0)[:, None].expand_as(self.valid)
        before = torch.where((self.before >= 0)[:, None], self.valid[self.before], stored)
        after = self.valid[self.after] & (self.after >= 0)[:, None]
        seen = {
            (False, False): [self.valid],
            (True, False): [before, self.valid],
            (False, True): [self.valid, after],
            (True, True): [before, self.valid, after],
        }
        masks: dict[tuple[bool, bool], Tensor | None] = {k: torch.cat(v, 1)[:, None, None] for k, v in seen.items()}
        if bool(self.valid.all()):
            masks[False, False] = None
        return masks


Stored = tuple[Tensor, Tensor]
"""Unrotated keys and values of blocks at one layer, [M, b, heads, head_dim] each."""


class DiTLayer(nn.Module):
    """Attention and MLP with adaptive layer norm; the modulation comes from outside because it depends on time only."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.heads, self.norm_eps = config.heads, config.norm_eps
        self.modulation = Linear(config.width, 6 * config.width)
        self.qkv = Linear(config.width, 3 * config.width)
        self.out = Linear(config.width, config.width)
        self.inner, self.outer = Linear(config.width, config.inner), Linear(config.inner, config.width)

    def project(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """Unrotated q, k, v of x [N, b, D], as [N, b, 3 heads, head_dim]."""
        n, b, width = x.shape
        projected: Tensor = self.qkv(modulated_norm(x, shift, scale, self.norm_eps))
        return projected.view(n, b, 3 * self.heads, width // self.heads)

    def mix(self, x: Tensor, attended: Tensor, modulation: Seq[Tensor]) -> Tensor:
        """The rest of the layer: attended [N, heads, b, head_dim] joins x [N, b, D], then the MLP."""
        gate, shift, scale, gate_mlp = modulation
        x = torch.addcmul(x, gate, self.out(attended.transpose(1, 2).reshape(x.shape)))
        inner = self.inner(modulated_norm(x, shift, scale, self.norm_eps))
        return torch.addcmul(x, gate_mlp, self.outer(gelu_tanh(inner)))


def modulated_norm(x: Tensor, shift: Tensor, scale: Tensor, eps: float) -> Tensor:
    """Layer norm without weights, times `scale` (1 + the net's), plus `shift`."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=eps), scale)


class BlockDiT(nn.Module):
    """The net. What does not change over the ODE steps is computed once: `modulations` per process (they depend on time
    only) and `condition` per window; `forward` is one evaluation."""

    _cos: Tensor
    _sin: Tensor

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.config = config
        self.state_inputs = Linear(config.outputs, config.width, bias=False)
        self.condition = Linear(config.inputs - config.outputs, config.width)
        self.time_in = Linear(config.time_features or config.width, config.width)
        self.time_out = Linear(config.width, config.width)
        self.layers = nn.ModuleList(DiTLayer(config) for _ in range(config.layers))
        self.final_modulation = Linear(config.width, 2 * config.width)
        self.outputs = Linear(config.width, config.outputs)
        cos, sin = self._angles()
        self.register_buffer("_cos", cos, persistent=False)
        self.register_buffer("_sin", sin, persistent=False)

    def modulations(self, times: Tensor) -> Tensor:
        """Modulation of every layer and of the output, side by side, for times [S] in [0, 1]: [S, (6 layers + 2) D].

        It depends on nothing else, so with a fixed time grid it is computed once per process. Scales come as 1 + scale.
        """
        half = self.time_in.in_features // 2
        slower = torch.exp(-math.log(10000) * torch.arange(half) / (half - self.config.time_whole_range))
        angles = times[:, None] * 1000 * slower.to(times.device)
        features = torch.cat([angles.sin(), angles.cos()], -1).to(self.time_in.weight.dtype)
        embedded = F.silu(self.time_out(F.silu(self.time_in(features))))
        table = torch.cat(
            [*(layer.modulation(embedded) for layer in self._layers()), self.final_modulation(embedded)], -1
        )
        parts = table.unflatten(-1, (-1, self.config.width))
        parts[:, 1::3] += 1
        return table

    def forward(
        self, x: Tensor, modulations: Tensor, steps: Tensor, near: Neighbours, stored: Seq[Stored | None]
    ) -> tuple[Tensor, list[Stored]]:
        """Velocity [N, b, outputs] of x [N, b, D]: `state_inputs` of the noisy mel plus `condition` of the rest.

        `steps` [N] picks each block's row of `modulations`. `stored` holds one entry per look-back layer. Returns also
        this call's own keys and values at the look-back layers.
        """
        heads, near_by = self.config.heads, self._table(self.config.heads)
        own_table = self._table(2 * heads)[1]
        parts = modulations.index_select(0, steps)[:, None].split(self.config.width, -1)
        own: list[Stored] = []
        for index, layer in enumerate(self._layers()):
            shift, scale, *rest = parts[6 * index : 6 * index + 6]
            qkv = layer.project(x, shift, scale)
            back, ahead = kind = self._kind(index)
            k, v = qkv[:, :, heads : 2 * heads], qkv[:, :, 2 * heads :]
            if back or ahead:
                q = rotate(qkv[:, :, :heads], *near_by[1])
                memory = stored[len(own)] if back else None
                keys, values = _neighbourhood(k, v, near, memory, near_by, kind)
            else:
                q, keys = rotate(qkv[:, :, : 2 * heads], *own_table).split(heads, 2)
                values = v
            if back:
                own.append((k, v))
            q, keys, values = (t.transpose(1, 2) for t in (q, keys, values))
            x = layer.mix(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=near.masks[kind]), rest)
        shift, scale = parts[-2:]
        out: Tensor = self.outputs(modulated_norm(x, shift, scale, self.config.norm_eps))
        return out, own

    def _layers(self) -> Seq[DiTLayer]:
        return cast(Seq[DiTLayer], self.layers)

    def _kind(self, layer: int) -> tuple[bool, bool]:
        return layer in self.config.look_back_layers, layer in self.config.look_ahead_layers

    def _angles(self) -> tuple[Tensor, Tensor]:
        """Cosine and sine of three blocks, [3b, 1, head_dim] for all heads alike or [3b, 2 heads, head_dim]: those of
        queries, then of keys, 1 and 0 for heads without positions."""
        config = self.config
        rotary = Rotary(config.width // config.heads, config.rope_theta)
        cos, sin = rotary.table(torch.arange(3 * config.block_frames))
        if config.rotary_heads is None:
            return cos, sin
        still = config.heads - config.rotary_heads
        cos = torch.cat([cos.expand(-1, config.rotary_heads, -1), torch.ones_like(cos).expand(-1, still, -1)], 1)
        sin = torch.cat([sin.expand(-1, config.rotary_heads, -1), torch.zeros_like(sin).expand(-1, still, -1)], 1)
        return cos.repeat(1, 2, 1), sin.repeat(1, 2, 1)

    def _table(self, heads: int) -> list[tuple[Tensor, Tensor]]:
        """Rotary tables of so many heads for the block before, the own block and the block after."""
        block = self.config.block_frames
        return list(zip(self._cos[:, :heads].split(block), self._sin[:, :heads].split(block), strict=True))


def _neighbourhood(
    k: Tensor,
    v: Tensor,
    near: Neighbours,
    stored: Stored | None,
    table: list[tuple[Tensor, Tensor]],
    kind: tuple[bool, bool],
) -> tuple[Tensor, Tensor]:
    """Rotated keys and values [N, keys, heads, head_dim] that each block may look at."""
    back, ahead = kind
    keys, values = [rotate(k, *table[1])], [v]
    if back:
        all_k, all_v = (k, v) if stored is None else (torch.cat([k, stored[0]]), torch.cat([v, stored[1]]))
        keys.insert(0, rotate(all_k.index_select(0, near.back_index), *table[0]))
        values.insert(0, all_v.index_select(0, near.back_index))
    if ahead:
        after = near.after.clamp(min=0)
        keys.append(rotate(k.index_select(0, after), *table[2]))
        values.append(v.index_select(0, after))
    return torch.cat(keys, 1), torch.cat(values, 1)
