"""GLM-TTS's diffusion transformer: noisy mel, prompt mel, codec ids, speaker and time → velocity.

Rows of a batch may have any lengths and any places in time: `frames` [B, T] says which frame of its utterance each
position is, −1 where a row has none. Such positions are zero before every convolution, count for nothing in the global
response norm and are never attended to, so a row comes out as if it were alone.

Two traits of the released weights are kept: only the first head is rotated, and the response norm looks at all of the
row's time. (Facts: zai-org/GLM-TTS, flow/dit.py and flow/modules.py.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.layers import Linear, gelu_tanh

LAST_TOKEN_POSITION = 4095
"""Token positions beyond 82 s all look like this one."""

TIME_SCALE, LONGEST_TIME_PERIOD = 1000.0, 10000.0
NO_FRAME = -1


@dataclass(frozen=True)
class DiTSizes:
    """Sizes, as the tensors show them. `rows` of the code embedding: the codec ids and one more."""

    width: int
    layers: int
    heads: int
    inner: int
    mel_bins: int
    speaker: int
    rows: int
    token_width: int
    token_inner: int
    token_blocks: int
    token_kernel: int
    conv_kernel: int
    conv_groups: int
    time_width: int


class TokenBlock(nn.Module):
    """ConvNeXt V2 block (Woo et al. 2023, arXiv:2301.00808) over time: [B, T, D] → [B, T, D]."""

    def __init__(self, sizes: DiTSizes) -> None:
        super().__init__()
        width, inner, kernel = sizes.token_width, sizes.token_inner, sizes.token_kernel
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width, 1e-6)
        self.inner, self.outer = Linear(width, inner), Linear(inner, width)
        self.gamma, self.beta = nn.Parameter(torch.zeros(1, 1, inner)), nn.Parameter(torch.zeros(1, 1, inner))

    def forward(self, x: Tensor, fill: Tensor | None) -> Tensor:
        y = self.norm(self.depthwise(_cleared(x, fill).transpose(1, 2)).transpose(1, 2))
        y = _cleared(F.gelu(self.inner(y)), fill)
        loudness = torch.linalg.vector_norm(y, dim=1, keepdim=True)
        y = self.gamma * (y * (loudness / (loudness.mean(-1, keepdim=True) + 1e-6))) + self.beta + y
        return x + self.outer(y)


def _cleared(x: Tensor, fill: Tensor | None) -> Tensor:
    """x [B, T, …] with zeros where `fill` [B, T, 1] is true; None: there is no such place."""
    return x if fill is None else x.masked_fill(fill, 0.0)


class Layer(nn.Module):
    """Attention and MLP with adaptive layer norm; query, key and value are one matrix, in that order."""

    def __init__(self, sizes: DiTSizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.modulation = Linear(sizes.width + sizes.speaker, 6 * sizes.width)
        self.qkv, self.out = Linear(sizes.width, 3 * sizes.width), Linear(sizes.width, sizes.width)
        self.inner, self.outer = Linear(sizes.width, sizes.inner), Linear(sizes.inner, sizes.width)

    def forward(self, x: Tensor, condition: Tensor, table: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """x [B, T, D], condition [B, width + speaker] → [B, T, D]."""
        shift, scale, gate, shift_2, scale_2, gate_2 = self.modulation(condition)[:, None].chunk(6, -1)
        qkv = self.qkv(_modulated(x, shift, scale)).unflatten(-1, (3 * self.heads, -1))
        for head in (0, self.heads):
            qkv[:, :, head] = _turned(qkv[:, :, head], *table)
        q, k, v = qkv.transpose(1, 2).split(self.heads, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = torch.addcmul(x, gate, self.out(mixed))
        return torch.addcmul(x, gate_2, self.outer(gelu_tanh(self.inner(_modulated(x, shift_2, scale_2)))))


def _modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, T, head_dim] rotated, neighbours (2i, 2i + 1) against each other."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)


@dataclass(frozen=True)
class Rows:
    """A batch on its way through the net. `fixed` [B, T, D] is what does not change over the ODE steps.

    `frames` [B, T] are absolute frames, `mask` [B, 1, 1 or T, T] is true where attention may look (None: everywhere).
    """

    fixed: Tensor
    frames: Tensor
    mask: Tensor | None
    speaker: Tensor

    @property
    def fill(self) -> Tensor | None:
        return None if self.mask is None else (self.frames < 0)[..., None]


class DiT(nn.Module):
    """The whole net."""

    def __init__(self, sizes: DiTSizes) -> None:
        super().__init__()
        self.sizes = sizes
        width = sizes.width
        self.time_in, self.time_out = Linear(sizes.time_width, width), Linear(width, width)
        self.codes = nn.Embedding(sizes.rows, sizes.token_width)
        self.token_blocks = nn.ModuleList(TokenBlock(sizes) for _ in range(sizes.token_blocks))
        self.from_mel = Linear(sizes.mel_bins, width, bias=False)
        self.from_fixed = Linear(sizes.mel_bins + sizes.token_width, width)
        self.position_convs = nn.ModuleList(
            nn.Conv1d(width, width, sizes.conv_kernel, padding=sizes.conv_kernel // 2, groups=sizes.conv_groups)
            for _ in range(2)
        )
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.final_modulation = Linear(width + sizes.speaker, 2 * width)
        self.outputs = Linear(width, sizes.mel_bins)
        self.register_buffer("frequencies", torch.zeros(width // sizes.heads // 2))

    frequencies: Tensor

    def tokens(self, codes: Tensor, frames: Tensor) -> Tensor:
        """Features [B, T, token_width] of the codec ids [B, T] at these frames; the same for every ODE step."""
        fill = (frames < 0)[..., None]
        missing = fill if bool(fill.any()) else None
        x = self.codes(codes) + self._token_positions(frames.clamp(0, LAST_TOKEN_POSITION))
        for block in self.token_blocks:
            x = block(x, missing)
        return _cleared(x, missing)

    def _token_positions(self, frames: Tensor) -> Tensor:
        """Cosines, then sines, of the frame number at geometrically spaced rates: [B, T, token_width]."""
        width = self.sizes.token_width
        exponents = torch.arange(0, width, 2, device=frames.device).float() / width
        angles = frames.float()[..., None] * (1.0 / 10000.0**exponents)
        return torch.cat([angles.cos(), angles.sin()], -1)

    def fixed(self, prompt_mel: Tensor, tokens: Tensor) -> Tensor:
        """What prompt mel [B, T, bins] (zeros where there is none) and token features add to the input: [B, T, D]."""
        return cast(Tensor, self.from_fixed(torch.cat([prompt_mel, tokens], -1)))

    def forward(self, x: Tensor, times: Tensor, rows: Rows) -> Tensor:
        """Velocity [B, T, bins] of noisy mel x [B, T, bins] at times [B]; speakers [B, speaker] are in `rows`."""
        condition = F.silu(torch.cat([self._time(times), rows.speaker], -1))
        x = self.from_mel(x) + rows.fixed
        x = x + self._positions(x, rows.fill)
        angles = rows.frames.clamp(min=0).float()[..., None] * self.frequencies
        table = angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, condition, table, rows.mask)
        scale, shift = self.final_modulation(condition)[:, None].chunk(2, -1)
        return cast(Tensor, self.outputs(_modulated(x, shift, scale)))

    def _positions(self, x: Tensor, fill: Tensor | None) -> Tensor:
        """Two wide convolutions that tell each frame where it stands among its neighbours."""
        for conv in self.position_convs:
            x = F.mish(conv(_cleared(x, fill).transpose(1, 2))).transpose(1, 2)
        return x

    def _time(self, times: Tensor) -> Tensor:
        half = self.sizes.time_width // 2
        rates = torch.arange(half, device=times.device).float() * -(math.log(LONGEST_TIME_PERIOD) / (half - 1))
        angles = TIME_SCALE * times[:, None] * rates.exp()[None]
        return cast(Tensor, self.time_out(F.silu(self.time_in(torch.cat([angles.sin(), angles.cos()], -1)))))


def stack(rows: Seq[Rows]) -> Rows:
    """Several batches as one, filled up to the longest."""
    if len(rows) == 1:
        return rows[0]
    longest = max(part.frames.shape[1] for part in rows)
    return Rows(
        fixed=torch.cat([padded(part.fixed, longest) for part in rows]),
        frames=torch.cat([padded(part.frames, longest, NO_FRAME) for part in rows]),
        mask=_stacked_mask(rows, longest),
        speaker=torch.cat([part.speaker for part in rows]),
    )


def _stacked_mask(rows: Seq[Rows], longest: int) -> Tensor | None:
    if all(part.mask is None and part.frames.shape[1] == longest for part in rows):
        return None
    masks = [_padded_mask(part, longest) for part in rows]
    height = max(mask.shape[2] for mask in masks)
    return torch.cat([mask.expand(-1, -1, height, -1) for mask in masks])


def padded(x: Tensor, length: int, value: float = 0.0) -> Tensor:
    """x [B, T, …] filled up to T = length."""
    missing = length - x.shape[1]
    return F.pad(x, (0, 0) * (x.dim() - 2) + (0, missing), value=value) if missing else x


def _padded_mask(part: Rows, length: int) -> Tensor:
    """The part's mask [B, 1, 1 or T, T] filled up to T = length: nobody looks at the fill, which looks at all else."""
    real = padded(part.frames, length, NO_FRAME)[:, None, None] >= 0
    if part.mask is None or part.mask.shape[2] == 1:
        return real
    missing = length - part.mask.shape[3]
    return F.pad(F.pad(part.mask, (0, missing)), (0, 0, 0, missing), value=True) & real
