"""BigVGAN (Lee et al. 2023, arXiv:2206.04658): log-mel → samples by transposed convolutions and periodic activations.

Activations work at twice their rate so that what they add above half of it can be filtered away. Convolutions see
zeros beyond the edges of the mel, activations see the edge repeated: so a window must hold real frames on either side,
and the true ends of an utterance must be the window's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST_DECIBEL, REFERENCE_DECIBEL = -115.0, 20.0
"""Level that becomes −1, and what is taken off first."""

EDGE_KERNEL = 7
"""Taps of the first and the last convolution."""

FILTER_TAPS, FILTER_CUTOFF, FILTER_HALF_WIDTH = 12, 0.25, 0.3
"""The low-pass filter around an activation, in cycles per sample at the doubled rate."""


@dataclass(frozen=True)
class BigVGANConfig:
    """Each stage multiplies the rate by one of `rates` and halves the channels; then `block_kernels` blocks, averaged.

    `block_dilations` are those of each block's convolutions.
    """

    mel_bins: int
    channels: int
    rates: tuple[int, ...]
    kernels: tuple[int, ...]
    block_kernels: tuple[int, ...]
    block_dilations: tuple[tuple[int, ...], ...]

    @property
    def hop_samples(self) -> int:
        return math.prod(self.rates)

    @property
    def reach_frames(self) -> int:
        """Mel frames on either side that can change a frame's samples, from the taps of every layer."""
        first, last = self._seen(0, self.hop_samples - 1)
        return max(-first, last)

    def _seen(self, first: int, last: int) -> tuple[int, int]:
        """The mel frames that samples [first, last] depend on."""
        activation = FILTER_TAPS // 2 - 1
        widest = max(
            sum((dilation + 1) * (kernel // 2) + 2 * activation for dilation in dilations)
            for kernel, dilations in zip(self.block_kernels, self.block_dilations, strict=True)
        )
        edge = EDGE_KERNEL // 2
        first, last = first - edge - activation, last + edge + activation
        for rate, kernel in zip(reversed(self.rates), reversed(self.kernels), strict=True):
            padding = (kernel - rate) // 2
            first, last = first - widest + padding - kernel + 1, last + widest + padding
            first, last = -(-first // rate), last // rate
        return first - edge, last + edge


def low_pass() -> Tensor:
    """Kaiser-windowed sinc of FILTER_TAPS taps that sum to 1, float32. Kaiser's rule for more than 50 dB (here 51)."""
    half = FILTER_TAPS // 2
    attenuation = 2.285 * (half - 1) * math.pi * 4 * FILTER_HALF_WIDTH + 7.95
    beta = 0.1102 * (attenuation - 8.7)
    window = torch.kaiser_window(FILTER_TAPS, periodic=False, beta=beta, dtype=torch.float32)
    taps = window * torch.sinc(2 * FILTER_CUTOFF * (torch.arange(FILTER_TAPS) - half + 0.5))
    return taps / taps.sum()


class Snake(nn.Module):
    """x + sin²(αx)/β per channel at twice the rate ("SnakeBeta"), [1, C, T] → [1, C, T]. Weights are logarithms."""

    taps: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.zeros(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("taps", low_pass(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        channels, half = x.shape[1], FILTER_TAPS // 2
        taps = self.taps.expand(channels, 1, -1)
        wide = F.pad(x, (half - 1, half - 1), mode="replicate")
        crop = FILTER_TAPS - 2 + half - 1
        doubled = F.conv_transpose1d(wide, 2 * taps, stride=2, groups=channels)[..., crop:-crop]
        alpha, beta = self.alpha.exp()[:, None], self.beta.exp()[:, None]
        doubled = torch.addcdiv(doubled, (doubled * alpha).sin_().square_(), beta + 1e-9)
        return F.conv1d(F.pad(doubled, (half - 1, half), mode="replicate"), taps, stride=2, groups=channels)


class ResidualBlock(nn.Module):
    """Per dilation: activation, dilated convolution, activation, convolution, and the way around them."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, dilation=d, padding=kernel // 2 * d) for d in dilations
        )
        self.convs2 = nn.ModuleList(nn.Conv1d(channels, channels, kernel, padding=kernel // 2) for _ in dilations)
        self.activations = nn.ModuleList(Snake(channels) for _ in range(2 * len(dilations)))

    def forward(self, x: Tensor) -> Tensor:
        acts = self.activations
        for first, dilated, second, plain in zip(acts[::2], self.convs1, acts[1::2], self.convs2, strict=True):
            x = x + plain(second(dilated(first(x))))
        return x


class BigVGAN(nn.Module):
    """The net. Parameters are named as in the released generators, without their idle levels of nesting."""

    def __init__(self, config: BigVGANConfig) -> None:
        super().__init__()
        self.config = config
        widths = [config.channels >> stage for stage in range(len(config.rates) + 1)]
        self.conv_pre = nn.Conv1d(config.mel_bins, widths[0], EDGE_KERNEL, padding=EDGE_KERNEL // 2)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(before, after, kernel, rate, padding=(kernel - rate) // 2)
            for before, after, kernel, rate in zip(widths[:-1], widths[1:], config.kernels, config.rates, strict=True)
        )
        self.resblocks = nn.ModuleList(
            ResidualBlock(width, kernel, dilations)
            for width in widths[1:]
            for kernel, dilations in zip(config.block_kernels, config.block_dilations, strict=True)
        )
        self.activation_post = Snake(widths[-1])
        self.conv_post = nn.Conv1d(widths[-1], 1, EDGE_KERNEL, padding=EDGE_KERNEL // 2, bias=False)

    def forward(self, mel: Tensor) -> Tensor:
        """Samples [F × hop] in [−1, 1] of one natural-log mel [F, bins]."""
        x = self.conv_pre(loudness(mel).t()[None])
        blocks = list(cast(Iterable[ResidualBlock], self.resblocks))
        beside = len(self.config.block_kernels)
        for stage, up in enumerate(self.ups):
            x = up(x)
            mixed = blocks[stage * beside](x)
            for block in blocks[stage * beside + 1 : (stage + 1) * beside]:
                mixed = mixed + block(x)
            x = mixed / beside
        return self.conv_post(self.activation_post(x)).clamp(-1, 1)[0, 0]


def loudness(mel: Tensor) -> Tensor:
    """Natural-log magnitudes as decibels scaled to [−1, 1]."""
    floor = math.exp(LEAST_DECIBEL / 20 * math.log(10))
    decibel = 20 * torch.log10(mel.exp().clamp(min=floor)) - REFERENCE_DECIBEL
    return (2 * (decibel - LEAST_DECIBEL) / -LEAST_DECIBEL - 1).clamp(-1, 1)
