"""BigVGAN: the stated reach is the measured one, and a window that holds it gives the whole's samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from legato.nn.bigvgan import BigVGAN, BigVGANConfig

BINS = 6
FULL = BigVGANConfig(
    mel_bins=BINS, channels=64, rates=(5, 3, 2, 2, 2, 2), kernels=(11, 7, 4, 4, 4, 4),
    block_kernels=(3, 7, 11), block_dilations=((1, 3, 5),) * 3,
)  # fmt: skip
"""The real net's layers at few channels."""

CONFIGS = [
    FULL,
    replace(FULL, rates=(4, 2), kernels=(8, 4), channels=16),
    replace(FULL, rates=(3,), kernels=(3,), channels=8, block_kernels=(3, 5), block_dilations=((1,), (2, 1))),
]
REACHES = [34, 39, 16]
"""Added up by hand, layer by layer."""


def net(config: BigVGANConfig) -> BigVGAN:
    """Random, loud enough to be heard and not so loud that it is clamped."""
    made = BigVGAN(config).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in made.named_parameters():
        fan = parameter[0].numel() if parameter.dim() > 1 else 25
        scale = fan**-0.5 * (0.05 if name.startswith("conv_post") else 1.0)
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale)
    return made


def mel(frames: int) -> Tensor:
    return torch.randn(frames, BINS, generator=torch.Generator().manual_seed(frames)).double() - 4


@pytest.mark.parametrize(("config", "reach"), zip(CONFIGS, REACHES, strict=True))
def test_stated_reach(config: BigVGANConfig, reach: int) -> None:
    assert config.reach_frames == reach


@pytest.mark.parametrize("config", CONFIGS)
def test_reach_is_the_nets(config: BigVGANConfig) -> None:
    """A frame that is no number spoils what depends on it, however faintly: nothing beyond the reach, and all of it on
    one side at least."""
    vocoder, reach = net(config), config.reach_frames
    at = reach + 4
    frames = mel(2 * reach + 9)
    frames[at] = torch.nan
    spoilt = vocoder(frames).isnan().view(len(frames), -1).any(1).nonzero().flatten().tolist()
    assert max(at - spoilt[0], spoilt[-1] - at) == reach


@pytest.mark.parametrize("config", CONFIGS)
def test_a_window_that_holds_the_reach_gives_the_wholes_samples(config: BigVGANConfig) -> None:
    vocoder, reach, hop = net(config), config.reach_frames, config.hop_samples
    frames = mel(2 * reach + 30)
    whole = vocoder(frames)
    pieces = []
    for start, stop in ((0, 7), (7, 20), (20, len(frames) - 3), (len(frames) - 3, len(frames))):
        first = max(0, start - reach)
        window = vocoder(frames[first : stop + reach])
        pieces.append(window[(start - first) * hop : (stop - first) * hop])
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=0, atol=1e-12)
    assert whole.std() > 1e-3
    assert whole.abs().max() < 1


def test_less_than_the_reach_is_heard() -> None:
    """What is left out matters less and less: the early option's error, as a share of the wave's own size."""
    vocoder, hop = net(FULL), FULL.hop_samples
    frames = mel(90)
    whole = vocoder(frames)
    errors = []
    for reach in (4, 12, 20, 34):
        window = vocoder(frames[40 - reach : 50 + reach])[reach * hop :][: 10 * hop]
        errors.append(float((window - whole[40 * hop : 50 * hop]).abs().max() / whole.std()))
    assert errors[0] > 1e-2
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[2] < 1e-5
    assert errors[3] < 1e-12
