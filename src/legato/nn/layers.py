"""Linear with fixed row tiles, norms, rotary embedding, gated MLP.

Row tiles. The last bits of a matrix product depend on how many rows share it, and one flipped bit can flip a sampled
token. A `Linear` with `row_tile = r` computes every product as a batch of [r, in] × [in, out] products, whatever the
number of rows, so a row's result does not depend on its neighbours. Callers bring rows in multiples of the tile.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GRAIN = 32_768
"""Elements up to which torch runs an elementwise operation on one thread. It shares out more wherever they fall, and
the odd elements between the last whole vector register and the end of a share come out with other last bits."""


WIDE_INPUTS, WIDE_INPUTS_FEW_THREADS, FEW_THREADS = 384, 832, 8
"""From this many inputs on MKL may share one row tile's sums out between threads; with few threads it does so later."""

PART_INPUTS = 383
"""Layers with WIDE_INPUTS_FEW_THREADS inputs or more add up products of so many at most, which nobody splits."""


class Linear(nn.Linear):
    """`nn.Linear` that can be frozen for inference: weights laid out for small row counts, rows computed in tiles.

    Where `halved` (bfloat16 on a CPU) every tile is a product of its own: torch's batched one is ten times slower.
    """

    row_tile: int = 0
    packed: bool = False
    halved: bool = False

    def freeze(self, row_tile: int = 0, *, packs: bool = True) -> None:
        """Set the tile and lay the weight out: column-major, one and a half to two times faster below 32 rows on a CPU;
        in bfloat16 there as rows or, if it `packs`, in oneDNN's order, which is read straight on (a third faster)."""
        weight = self.weight.detach()
        self.row_tile = row_tile
        self.halved = weight.dtype == torch.bfloat16 and weight.device.type == "cpu"
        self.packed = self.halved and packs and _onednn_packs()
        if self.packed:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), max(1, row_tile))
        else:
            weight = weight.contiguous() if self.halved else weight.t().contiguous().t()
        self.weight = nn.Parameter(weight, requires_grad=False)
        if self.bias is not None:
            self.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out]."""
        if self.halved:
            return self._by_tile(x)
        if self._plain(x):
            return F.linear(x, self.weight, self.bias)
        if self.in_features >= WIDE_INPUTS_FEW_THREADS:
            return self._in_parts(x.reshape(-1, self.in_features)).view(*x.shape[:-1], self.out_features)
        tiles, weight = self._tiled(x.reshape(-1, self.in_features))
        out = torch.bmm(tiles, weight) if self.bias is None else torch.baddbmm(self.bias, tiles, weight)
        return out.view(-1, self.out_features)[: x.shape[:-1].numel()].view(*x.shape[:-1], self.out_features)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual [R, out] + this layer (which has no bias) of x [R, in], in one operation."""
        if self.halved:
            return residual + self._by_tile(x)
        if self._plain(x):
            return torch.addmm(residual, x, self.weight.t())
        if self.in_features >= WIDE_INPUTS_FEW_THREADS:
            return self._in_parts(x, residual)
        tiles, weight = self._tiled(x)
        base = residual.view(-1, self.row_tile, self.out_features).expand(len(tiles), -1, -1)
        return torch.baddbmm(base, tiles, weight).view(-1, self.out_features)[: len(residual)]

    def _in_parts(self, rows: Tensor, residual: Tensor | None = None) -> Tensor:
        """Rows [R, in] → [R, out], the inputs in parts whose products are added up one after the other."""
        weight, count = self.weight.t(), -(-self.in_features // PART_INPUTS)
        borders = [self.in_features * index // count for index in range(count + 1)]
        tiles = self._whole_tiles(rows)
        lone = len(tiles) == 1
        out = self.bias if residual is None else residual if lone else residual.view(*tiles.shape[:-1], -1)
        for start, stop in zip(borders, borders[1:], strict=False):
            part = weight[start:stop]
            if lone:
                x = rows[:, start:stop]
                out = torch.mm(x, part) if out is None else torch.addmm(out, x, part)
            else:
                x, part = tiles[..., start:stop], part.expand(len(tiles), -1, -1)
                out = torch.bmm(x, part) if out is None else torch.baddbmm(out, x, part)
        assert out is not None
        return out.view(-1, self.out_features)

    def _by_tile(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out], one product for every tile of rows."""
        rows = x.reshape(-1, self.in_features)
        tiles = self._whole_tiles(rows) if self.row_tile else rows[None]
        if self.packed:
            products = [
                torch.ops.mkldnn._linear_pointwise(tile, self.weight, self.bias, "none", [], "") for tile in tiles
            ]
        else:
            products = [F.linear(tile, self.weight, self.bias) for tile in tiles]
        out = products[0] if len(products) == 1 else torch.cat(products)
        return out.view(*x.shape[:-1], self.out_features)

    def _plain(self, x: Tensor) -> bool:
        """Whether x goes through an ordinary product: there are no tiles, or it is one tile that nobody splits."""
        if not self.row_tile:
            return True
        narrow = WIDE_INPUTS_FEW_THREADS if torch.get_num_threads() <= FEW_THREADS else WIDE_INPUTS
        return self.in_features < narrow and x.shape[:-1] == (self.row_tile,)

    def _tiled(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [R, in] as tiles, at least two, and the weight for each: MKL shares the sums of a lone wide tile out
        between threads, those of two or more it does not, so a lone one is computed twice."""
        tiles = self._whole_tiles(rows)
        if len(tiles) == 1:
            tiles = tiles.expand(2, -1, -1)
        return tiles, self.weight.t().expand(len(tiles), -1, -1)

    def _whole_tiles(self, rows: Tensor) -> Tensor:
        """Rows [R, in] as tiles [R / tile, tile, in]."""
        if len(rows) % self.row_tile:
            raise ValueError(f"{len(rows)} rows are not whole tiles of {self.row_tile}")
        return rows.view(-1, self.row_tile, self.in_features)


def _onednn_packs() -> bool:
    """Whether this torch has oneDNN's packed products in bfloat16 on this CPU."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def freeze(net: nn.Module, row_tile: int = 0) -> None:
    """Freeze every Linear of a net for inference with one row tile (0: no tiles).

    A weight that is an embedding's too is read as rows, so it is not packed.
    """
    net.eval().requires_grad_(False)
    embeddings = {id(module.weight) for module in net.modules() if isinstance(module, nn.Embedding)}
    for module in net.modules():
        if isinstance(module, Linear):
            module.freeze(row_tile, packs=id(module.weight) not in embeddings)


class RMSNorm(nn.Module):
    """Root-mean-square norm (Zhang and Sennrich 2019, arXiv:1910.07467).

    Written by the length of x instead of its mean square, which takes half the operations: torch's own is not fused on
    a CPU.
    """

    weight: nn.Parameter | None
    _root_eps: Tensor
    _shortest: Tensor

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("_root_eps", torch.tensor(math.sqrt(eps)), persistent=False)
        self.register_buffer("_shortest", torch.zeros(()), persistent=False)

    def fold_into(self, linear: Linear) -> None:
        """Move the weight into the layer that reads this norm; what is left only makes x as long as 1. Saves two
        operations of five."""
        if self.weight is None:
            raise ValueError("this norm is folded already")
        root_width = math.sqrt(len(self.weight))
        linear.weight = nn.Parameter(linear.weight.detach() * self.weight.detach() * root_width, requires_grad=False)
        self._shortest = self._root_eps * root_width
        self.weight = None

    def forward(self, x: Tensor) -> Tensor:
        """x [..., width] → the same shape; float32 inside."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        if self.weight is None:
            return torch.div(x, torch.hypot(length, self._shortest)).to(x.dtype)
        root_mean_square = torch.hypot(length * x.shape[-1] ** -0.5, self._root_eps)
        return torch.div(x, root_mean_square).to(x.dtype).mul_(self.weight)


class Rotary:
    """Rotary position embedding (Su et al. 2021, arXiv:2104.09864), halves rotated against each other.

    The sine carries the sign of the first half, so that applying it is one roll and one fused multiply-add. With
    `sections` the first of the frequencies turn by the first axis of a position, the next by the second, and so on.
    """

    def __init__(self, head_dim: int, theta: float, sections: tuple[int, ...] = ()) -> None:
        self.half = head_dim // 2
        if sections and sum(sections) != self.half:
            raise ValueError(f"rope sections {sections} do not sum to half of the head size, {self.half}")
        self.frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        self.axes = torch.repeat_interleave(torch.arange(len(sections)), torch.tensor(sections)) if sections else None

    def table(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine [R, 1, head_dim] (float32) of positions [R], or [axes, R]."""
        if positions.dim() == 1:
            placed = positions[:, None]
        elif self.axes is not None:
            placed = positions[self.axes.to(positions.device)].t()
        else:
            raise ValueError("positions on several axes need rope sections")
        angles = placed.to(torch.float32) * self.frequencies.to(positions.device)
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

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual [R, width] + MLP of x [R, width]."""
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down.add_to(residual, silu(gate) * up)


def silu(x: Tensor) -> Tensor:
    """SiLU of x [R, n]; a row comes out the same whatever R and the number of threads."""
    if x.numel() <= GRAIN or x.device.type != "cpu":
        return F.silu(x)
    return torch.cat([F.silu(rows) for rows in x.split(max(1, GRAIN // x.shape[-1]))])


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in its tanh form (Hendrycks and Gimpel 2016, arXiv:1606.08415), as x · σ(2√(2/π)(x + 0.044715 x³)).

    A row of whole vector registers comes out the same whatever lies beside it and however many threads there are.
    Twice as fast as torch's on a CPU, whose tanh is slow.
    """
    slope = 2 * math.sqrt(2 / math.pi)
    y = torch.mul(x, x).mul_(0.044715 * slope).add_(slope).mul_(x)
    for piece in y.view(-1).split(GRAIN if x.device.type == "cpu" else y.numel()):
        piece.sigmoid_()
    return y.mul_(x)
