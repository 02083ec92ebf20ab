"""The time grid and guidance."""

from __future__ import annotations

import math

import pytest
import torch

from legato.nn.ode import cosine_grid, guided


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
