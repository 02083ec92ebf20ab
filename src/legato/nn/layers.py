"""Linear with fixed row tiles, norms, rotary embedding, gated MLP.

Row tiles. The last bits of a matrix product depend on how many rows share it, and one flipped bit can flip a sampled
token. A `Linear` with `row_tile = r` computes every product as a batch of [r, in] × [in, out] products, whatever the
number of rows, so a row's result does not depend on its neighbours. Callers bring rows in multiples of the tile.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """`nn.Linear` that can be frozen for inference: weights laid out for small row counts, rows computed in tiles."""

    row_tile: int = 0

    def freeze(self, row_tile: int = 0) -> None:
        """Keep the weight column-major (one and a half to two times faster below 32 rows on a CPU) and set the tile."""
        self.weight = nn.Parameter(self.weight.detach().t().contiguous().t(), requires_grad=False)
        if self.bias is not None:
            self.bias.requires_grad_(False)
        self.row_tile = row_tile

    def forward(self, x: Tensor) -> Tensor:
        tile = self.row_tile
        if not tile:
            return F.linear(x, self.weight, self.bias)
        rows = x.reshape(-1, self.in_features)
        tiles = rows.shape[0] // tile
        if tiles * tile != rows.shape[0]:
            raise ValueError(f"{rows.shape[0]} rows are not whole tiles of {tile}")
        if tiles == 1:
            return F.linear(rows, self.weight, self.bias).view(*x.shape[:-1], self.out_features)
        weight = self.weight.t().expand(tiles, -1, -1)
        batch = rows.view(tiles, tile, self.in_features)
        out = torch.bmm(batch, weight) if self.bias is None else torch.baddbmm(self.bias, batch, weight)
        return out.view(*x.shape[:-1], self.out_features)


def freeze(net: nn.Module, row_tile: int = 0) -> None:
    """Freeze every Linear of a net for inference with one row tile (0: no tiles)."""
    net.eval().requires_grad_(False)
    for module in net.modules():
        if isinstance(module, Linear):
            module.freeze(row_tile)


class RMSNorm(nn.Module):
    """Root-mean-square norm (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Rotary:
    """Rotary position embedding (Su et al. 2021, arXiv:2104.09864), halves rotated against each other.

    The sine carries the sign of the first half, so that applying it is one roll and one fused multiply-add.
    """

    def __init__(self, head_dim: int, theta: float) -> None:
        self.half = head_dim // 2
        self.frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)

    def table(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine [R, 1, head_dim] (float32) of positions [R]."""
        angles = positions.to(torch.float32)[:, None] * self.frequencies.to(positions.device)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([cos, cos], -1)[:, None], torch.cat([-sin, sin], -1)[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., head_dim] rotated by a table that broadcasts against it."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class GatedMLP(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv:2002.05202) with gate and up projections in one matrix."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up = Linear(width, 2 * inner, bias=False)
        self.down = Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        out: Tensor = self.down(F.silu(gate) * up)
        return out
