"""Finite scalar quantisation (Mentzer et al. 2023, arXiv:2309.15505): a few bounded numbers, each rounded to a few
levels, are one code. No codebook is learned, so none can collapse."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq

import torch
from torch import Tensor, nn

SQUASH = 1e-3
"""The bound lies this much beyond the outermost level, so that it can be reached."""


class FSQ(nn.Module):
    """`levels` numbers per code; the code count is their product."""

    _levels: Tensor
    _places: Tensor

    def __init__(self, levels: Seq[int]) -> None:
        super().__init__()
        if min(levels) < 2:
            raise ValueError(f"levels {tuple(levels)}: each needs at least 2")
        self.codes = math.prod(levels)
        counts = torch.tensor(levels)
        self.register_buffer("_levels", counts, persistent=False)
        places = torch.cat([torch.ones(1, dtype=torch.long), torch.cumprod(counts, 0)[:-1]])
        self.register_buffer("_places", places, persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [..., n] → rounded values [..., n] in [-1, 1] (the gradient passes straight through) and codes [...]."""
        half = (self._levels - 1) * (1 + SQUASH) / 2
        offset = torch.where(self._levels % 2 == 0, 0.5, 0.0)
        bounded = torch.tanh(x + torch.atanh(offset / half)) * half - offset
        rounded = bounded + (bounded.round() - bounded).detach()
        digits = rounded.detach().round().long() + self._levels // 2
        return rounded / (self._levels // 2), (digits * self._places).sum(-1)

    def values(self, codes: Tensor) -> Tensor:
        """Codes [...] → the values [..., n] they stand for."""
        digits = codes[..., None] // self._places % self._levels
        return (digits - self._levels // 2).float() / (self._levels // 2)
