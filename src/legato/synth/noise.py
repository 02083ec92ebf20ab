"""Noise as a function of (seed, absolute frame)."""

from __future__ import annotations

import torch
from torch import Tensor


class NoiseTape:
    """Standard normal noise [frames, bins] of one utterance, drawn in order and kept only as long as it is needed.

    Frames are drawn in groups of `group_frames`, so that the numbers depend on nothing but seed and position.
    """

    def __init__(self, seed: int, bins: int, group_frames: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._bins, self._group = bins, group_frames
        self._start, self._kept = 0, torch.empty(0, bins)

    def read(self, start: int, stop: int) -> Tensor:
        """Frames [start, stop); what lies before `start` is forgotten."""
        if start < self._start:
            raise ValueError(f"frame {start} was already forgotten; the tape starts at {self._start}")
        groups = -(-(stop - self._start - len(self._kept)) // self._group)
        drawn = [torch.randn(self._group, self._bins, generator=self._generator) for _ in range(max(0, groups))]
        self._kept = torch.cat([self._kept, *drawn])[start - self._start :]
        self._start = start
        return self._kept[: stop - start]
