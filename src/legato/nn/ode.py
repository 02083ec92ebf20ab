"""Time grids for flow matching and guidance. Solvers are spelled out where the state lives (one step at a time)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cosine_grid(steps: int) -> Tensor:
    """t_0 = 0 … t_steps = 1, float32 [steps + 1], denser near 0: t = 1 − cos(π/2 · u) ("sway" −1, F5-TTS,
    arXiv:2410.06885)."""
    return 1 - torch.cos(torch.linspace(0, 1, steps + 1) * (math.pi / 2))


def guided(velocity: Tensor, unconditioned: Tensor, strength: float) -> Tensor:
    """Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598): away from the unconditioned velocity."""
    return (1 + strength) * velocity - strength * unconditioned
