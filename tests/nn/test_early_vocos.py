"""EarlyVocos: the stated reach is the measured one on both sides, and it can start from a centred Vocos."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from legato.nn.early_vocos import EarlyVocos, EarlyVocosConfig
from legato.nn.vocos import Vocos, VocosConfig

BINS, HOP = 6, 24
SIZES = VocosConfig(BINS, 16, 32, blocks=2, subframes=4, tail_width=8, tail_inner=16, tail_blocks=2, hop_samples=HOP)
CENTRED = EarlyVocosConfig(SIZES, (3, 3, 3), (3, 3))
EARLY = EarlyVocosConfig(SIZES, (2, 1, 0), (0, 0))
REACHES = [(CENTRED, 11, 11), (EARLY, 19, 4), (EarlyVocosConfig(SIZES, (0, 0, 0), (0, 3)), 21, 2)]
"""What a convolution does not look ahead it looks back: 6 steps in all. Subframes are a quarter of a frame."""


def shaken(net: Vocos | EarlyVocos) -> Vocos | EarlyVocos:
    """Random weights that let an edge be felt."""
    generator = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        fan = parameter[0].numel() if parameter.dim() > 1 else 1
        parameter.data = torch.randn(parameter.shape, generator=generator) * fan**-0.5
    return net.eval().requires_grad_(False)


def mel(frames: int) -> Tensor:
    return torch.randn(frames, BINS, generator=torch.Generator().manual_seed(frames))


@pytest.mark.parametrize(("config", "left", "right"), REACHES)
def test_reach_is_measured(config: EarlyVocosConfig, left: int, right: int) -> None:
    """A changed frame changes samples from `right` frames before it to `left` behind it, and not one beyond."""
    assert (config.left_frames, config.right_frames) == (left, right)
    net = shaken(EarlyVocos(config))
    frames, at = left + right + 9, right + 4
    before = mel(frames)
    after = before.clone()
    after[at] += 1.0
    changed = (net(before) != net(after)).view(frames, HOP).any(1).nonzero().flatten().tolist()
    assert (changed[0], changed[-1]) == (at - right, at + left)


def test_a_window_that_holds_the_reach_gives_the_wholes_samples() -> None:
    net, whole = shaken(EarlyVocos(EARLY)), mel(60)
    window = net(whole[30 - EARLY.left_frames : 40 + EARLY.right_frames])
    kept = window[EARLY.left_frames * HOP : -EARLY.right_frames * HOP]
    torch.testing.assert_close(kept, net(whole)[30 * HOP : 40 * HOP], atol=1e-5, rtol=1e-4)


def test_a_batch_is_its_rows() -> None:
    net, mels = shaken(EarlyVocos(EARLY)), torch.stack([mel(20), mel(20) * 0.5])
    assert isinstance(net, EarlyVocos)
    for row, wave in zip(mels, net.waves(mels), strict=True):
        torch.testing.assert_close(wave, net(row), atol=1e-5, rtol=1e-4)


def test_centred_equals_vocos() -> None:
    """With every convolution centred, the weights of a Vocos give its samples."""
    old, net = shaken(Vocos(SIZES)), EarlyVocos(CENTRED)
    net.start_from(old.state_dict())
    torch.testing.assert_close(net(mel(30)), old(mel(30)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_taps_keep_their_moment(ahead: int) -> None:
    config = EarlyVocosConfig(SIZES, (ahead, 3, 3), (3, 3))
    old, net = shaken(Vocos(SIZES)), EarlyVocos(config)
    with torch.no_grad():
        old.inputs.weight[..., 4:] = 0  # type: ignore[index]
    net.start_from(old.state_dict())
    torch.testing.assert_close(net(mel(30)), old(mel(30)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("ahead", "tail"), [((3, 3), (3, 3)), ((3, 3, 3), (3,)), ((7, 0, 0), (0, 0))])
def test_look_ahead_that_does_not_fit_is_refused(ahead: tuple[int, ...], tail: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="look-ahead"):
        EarlyVocosConfig(SIZES, ahead, tail)
