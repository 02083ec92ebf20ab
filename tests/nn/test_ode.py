"""Time grids, solvers and guidance."""

from __future__ import annotations

import math

import pytest
import torch

from legato.nn.ode import EULER, RK4_38, Solver, Tableau, cosine_grid, guided, sway_grid


@pytest.mark.parametrize("steps", [1, 6, 10])
def test_cosine_grid(steps: int) -> None:
    grid = cosine_grid(steps)
    expected = [1 - math.cos(math.pi / 2 * i / steps) for i in range(steps + 1)]
    torch.testing.assert_close(grid, torch.tensor(expected))
    assert grid[0] == 0 and bool((grid.diff() > 0).all())


def test_guidance() -> None:
    conditioned, free = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0])
    assert torch.equal(guided(conditioned, free, 0.0), conditioned)
    assert torch.equal(guided(conditioned, free, 0.5), torch.tensor([1.5, 1.0]))


def test_sway() -> None:
    assert torch.equal(sway_grid(4, 0.0), torch.linspace(0, 1, 5))
    torch.testing.assert_close(sway_grid(9, -1.0), cosine_grid(9))


def test_times_of_the_evaluations() -> None:
    grid = torch.tensor([0.0, 0.3, 1.0])
    expected = [0.0, 0.1, 0.2, 0.3, 0.3, 0.3 + 0.7 / 3, 0.3 + 1.4 / 3, 1.0]
    solver = Solver(RK4_38, grid)
    assert solver.evaluations == 8
    torch.testing.assert_close(solver.times, torch.tensor(expected))
    assert float(solver.times[3]) == float(grid[1]) == float(solver.times[4])
    assert torch.equal(Solver(EULER, grid).times, grid[:-1])


def integrated(tableau: Tableau, steps: int) -> float:
    """dx/dt = x · cos(3t) from 1, at t = 1."""
    solver = Solver(tableau, torch.linspace(0, 1, steps + 1, dtype=torch.float64))
    way = solver.begin(torch.ones(1, dtype=torch.float64))
    for evaluation, time in enumerate(solver.times):
        solver.advance(way, evaluation, way.x * torch.cos(3 * time))
    return float(way.x)


@pytest.mark.parametrize(("tableau", "order"), [(EULER, 1), (RK4_38, 4)])
def test_halving_the_intervals_divides_the_error_by_two_to_the_order(tableau: Tableau, order: int) -> None:
    exact = math.exp(math.sin(3) / 3)
    errors = [abs(integrated(tableau, steps) - exact) for steps in (16, 32)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.4)
