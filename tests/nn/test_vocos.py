"""Vocos: the stated reach is the measured one, and a window that holds it gives the whole's samples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from legato.nn.layers import freeze
from legato.nn.vocos import Vocos, VocosConfig
from legato.protocols import SpeechModel

BINS, HOP = 6, 24

CONFIGS = [
    VocosConfig(BINS, 16, 32, blocks=2, subframes=4, tail_width=8, tail_inner=16, tail_blocks=2, hop_samples=HOP),
    VocosConfig(BINS, 16, 32, blocks=1, subframes=2, tail_width=8, tail_inner=16, tail_blocks=1, hop_samples=HOP),
    VocosConfig(BINS, 16, 32, blocks=0, subframes=3, tail_width=8, tail_inner=16, tail_blocks=0, hop_samples=HOP),
    VocosConfig(BINS, 16, 32, blocks=1, subframes=1, tail_width=8, tail_inner=16, tail_blocks=1, hop_samples=HOP),
]
REACHES = [11, 9, 4, 11]
"""3 frames per convolution at the mel rate, 3 subframes per tail block, 2 subframes of the inverse STFT."""


def net(config: VocosConfig) -> Vocos:
    """Random, with weights that let an edge be felt."""
    made = Vocos(config)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in made.named_parameters():
        fan = parameter[0].numel() if parameter.dim() > 1 else 1
        parameter.data = torch.randn(parameter.shape, generator=generator) * fan**-0.5
        if "norm" in name and name.endswith("weight"):
            parameter.data = parameter.data.abs() + 0.5
    freeze(made)
    return made


def mel(frames: int) -> Tensor:
    return torch.randn(frames, BINS, generator=torch.Generator().manual_seed(frames))


@pytest.mark.parametrize(("config", "reach"), zip(CONFIGS, REACHES, strict=True))
def test_stated_reach(config: VocosConfig, reach: int) -> None:
    assert config.reach_frames == reach


@pytest.mark.parametrize("config", CONFIGS)
def test_reach_is_measured(config: VocosConfig) -> None:
    """A changed frame changes samples of the frames `reach` before and after it, and not one sample beyond."""
    vocos, reach = net(config), config.reach_frames
    frames, at = 2 * reach + 9, reach + 4
    before = mel(frames)
    after = before.clone()
    after[at] += 1.0
    changed = (vocos(before) != vocos(after)).view(frames, HOP).any(1).nonzero().flatten().tolist()
    assert (changed[0], changed[-1]) == (at - reach, at + reach)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_window_that_holds_the_reach_gives_the_wholes_samples(config: VocosConfig) -> None:
    vocos, reach = net(config), config.reach_frames
    frames = 3 * reach + 10
    whole = vocos(mel(frames)).view(frames, HOP)
    for start, stop in ((0, 3), (1, 2), (reach + 2, reach + 9), (frames - 4, frames), (0, frames)):
        load = slice(max(0, start - reach), min(frames, stop + reach))
        piece = vocos(mel(frames)[load]).view(-1, HOP)[start - load.start : stop - load.start]
        torch.testing.assert_close(piece, whole[start:stop], rtol=0, atol=1e-5 * float(whole.std()))


def test_the_embedded_voice_keeps_within_its_reach(piccolo: SpeechModel) -> None:
    """With trained weights: nothing beyond the reach changes, the frames just inside do, and windows are the whole."""
    vocoder, hop = piccolo.vocoder, piccolo.rates.samples_per_frame
    left, right = vocoder.reach.left, vocoder.reach.right
    assert vocoder.exact and right < left
    at = right + 4
    frames = at + left + 5
    before = torch.randn(frames, piccolo.flow.facts.mel_bins, generator=torch.Generator().manual_seed(2)) * 2 - 5
    after = before.clone()
    after[at] += 2.0
    whole, other = (wave.view(frames, hop) for wave in vocoder.forward([before, after]))
    changed = (whole != other).any(1).nonzero().flatten().tolist()
    assert at - right <= changed[0] <= at - right + 2 and at + left - 2 <= changed[-1] <= at + left
    start = left + 2
    (piece,) = vocoder.forward([before[start - left : start + 2 + right]])
    torch.testing.assert_close(piece.view(-1, hop)[left : left + 2], whole[start : start + 2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("frames", [1, 2, 30])
def test_length_is_frames_times_hop(frames: int) -> None:
    assert net(CONFIGS[0])(mel(frames)).shape == (frames * HOP,)
