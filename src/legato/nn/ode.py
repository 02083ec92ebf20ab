"""Time grids for flow matching, solvers that go on one evaluation at a time, and guidance."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


def cosine_grid(steps: int) -> Tensor:
    """t_0 = 0 … t_steps = 1, float32 [steps + 1], denser near 0: t = 1 − cos(π/2 · u) ("sway" −1, F5-TTS,
    arXiv:2410.06885)."""
    return 1 - torch.cos(torch.linspace(0, 1, steps + 1) * (math.pi / 2))


def sway_grid(steps: int, sway: float) -> Tensor:
    """t_0 = 0 … t_steps = 1, float32 [steps + 1]: t = u + sway · (cos(π/2 · u) − 1 + u) (F5-TTS, arXiv:2410.06885).

    0 is an even grid, −1 the one of `cosine_grid` (up to the last bits).
    """
    even = torch.linspace(0, 1, steps + 1)
    return even + sway * (torch.cos(torch.pi / 2 * even) - 1 + even)


@dataclass(frozen=True)
class Tableau:
    """An explicit Runge-Kutta method (Butcher 1963): slope i is taken at share `nodes[i]` of an interval, at the start
    plus the earlier slopes weighted by `coupling[i]`; `weights` sum up the whole interval."""

    nodes: tuple[float, ...]
    coupling: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]


EULER = Tableau(nodes=(0.0,), coupling=((),), weights=(1.0,))
RK4_38 = Tableau(
    nodes=(0.0, 1 / 3, 2 / 3, 1.0),
    coupling=((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    weights=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
)
"""Kutta's 3/8 rule of 1901."""


@dataclass
class Trajectory:
    """A state on its way: `x` is where the next slope is wanted, `start` the state at the interval's start."""

    start: Tensor
    x: Tensor
    slopes: list[Tensor] = field(default_factory=list)


class Solver:
    """A method on a grid of times, as a row of single evaluations."""

    def __init__(self, tableau: Tableau, grid: Tensor) -> None:
        self.tableau = tableau
        self._lengths = [float(length) for length in grid.diff()]
        last = grid[1:, None].expand(-1, len(tableau.nodes))
        nodes = torch.tensor(tableau.nodes, dtype=grid.dtype)
        between = grid[:-1, None] + grid.diff()[:, None] * nodes
        self.times = torch.where(nodes == 1, last, between).flatten()
        """When each evaluation takes place, [evaluations]."""

    @property
    def evaluations(self) -> int:
        return len(self.times)

    def begin(self, x: Tensor) -> Trajectory:
        return Trajectory(x, x)

    def advance(self, way: Trajectory, evaluation: int, slope: Tensor) -> None:
        """Take in the slope at `way.x` and move to where the next one is wanted, or to the interval's end."""
        interval, stage = divmod(evaluation, len(self.tableau.nodes))
        way.slopes.append(slope)
        last = stage + 1 == len(self.tableau.nodes)
        weights = self.tableau.weights if last else self.tableau.coupling[stage + 1]
        total = sum((w * k for w, k in zip(weights[1:], way.slopes[1:], strict=True)), weights[0] * way.slopes[0])
        way.x = way.start + self._lengths[interval] * total
        if last:
            way.start, way.slopes = way.x, []


def guided(velocity: Tensor, unconditioned: Tensor, strength: float) -> Tensor:
    """Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598): away from the unconditioned velocity."""
    return (1 + strength) * velocity - strength * unconditioned
