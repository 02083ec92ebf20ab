"""FSQ: every code is reached, codes and values stand for each other, and gradients pass."""

from __future__ import annotations

import pytest
import torch

from legato.nn.fsq import FSQ


@pytest.mark.parametrize("levels", [(8, 5, 5, 5), (2, 3), (4,)])
def test_codes_and_values_stand_for_each_other(levels: tuple[int, ...]) -> None:
    fsq = FSQ(levels)
    codes = torch.arange(fsq.codes)
    values = fsq.values(codes)
    assert values.shape == (fsq.codes, len(levels))
    assert len(values.unique(dim=0)) == fsq.codes
    assert float(values.min()) == -1.0


def test_rounded_values_are_those_of_the_codes() -> None:
    fsq = FSQ((8, 5, 5, 5))
    values, codes = fsq(3 * torch.randn(20_000, 4, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(fsq.values(codes), values)
    assert len(codes.unique()) > 850


def test_far_out_values_take_the_outermost_levels() -> None:
    fsq = FSQ((8, 5))
    _, low = fsq(torch.full((2,), -50.0))
    _, high = fsq(torch.full((2,), 50.0))
    assert (int(low), int(high)) == (0, fsq.codes - 1)


def test_the_gradient_passes_through_the_rounding() -> None:
    x = torch.zeros(1, 2, requires_grad=True)
    FSQ((5, 5))(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.full((1, 2), (5 - 1) * 1.001 / 2 / 2))


def test_one_level_is_refused() -> None:
    with pytest.raises(ValueError, match="levels"):
        FSQ((5, 1))
