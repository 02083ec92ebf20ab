"""Vocoder with a ConvNeXt trunk and an inverse STFT head (Vocos, Siuzdak 2023, arXiv:2306.00814).

Every layer is local, so the net has an exact receptive field and a window that holds it gives the whole's samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import Linear


@dataclass(frozen=True)
class VocosConfig:
    """`blocks` ConvNeXt blocks at the mel rate, then `tail_blocks` at `subframes` times that rate, then the ISTFT."""

    mel_bins: int
    width: int
    inner: int
    blocks: int
    subframes: int
    tail_width: int
    tail_inner: int
    tail_blocks: int
    hop_samples: int

    @property
    def stft_hop_samples(self) -> int:
        return self.hop_samples // self.subframes

    @property
    def fft_samples(self) -> int:
        return 4 * self.stft_hop_samples

    @property
    def reach_frames(self) -> int:
        """Mel frames on either side that can change a frame's samples.

        7-tap convolutions reach 3 frames; those of the tail 3 subframes; a sample mixes 2 STFT frames on either side.
        """
        subframes = 3 * self.tail_blocks + 2
        return 3 * (1 + self.blocks) + -(-subframes // self.subframes)


class ConvNeXt(nn.Module):
    """ConvNeXt block for sequences (Liu et al. 2022, arXiv:2201.03545), channels last: [1, T, D] → [1, T, D]."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, 1e-6)
        self.inner, self.outer = Linear(width, inner), Linear(inner, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x.transpose(1, 2)).transpose(1, 2))
        return torch.addcmul(x, self.scale, self.outer(F.gelu(self.inner(y))))


class Vocos(nn.Module):
    """Log-mel → samples."""

    window: Tensor

    def __init__(self, config: VocosConfig) -> None:
        super().__init__()
        self.config = config
        self.inputs = nn.Conv1d(config.mel_bins, config.width, 7, padding=3)
        self.input_norm = nn.LayerNorm(config.width, 1e-6)
        self.blocks = nn.ModuleList(ConvNeXt(config.width, config.inner) for _ in range(config.blocks))
        self.upsample = nn.ConvTranspose1d(config.width, config.tail_width, config.subframes, config.subframes)
        self.tail = nn.ModuleList(ConvNeXt(config.tail_width, config.tail_inner) for _ in range(config.tail_blocks))
        self.output_norm = nn.LayerNorm(config.tail_width, 1e-5)
        self.head = Linear(config.tail_width, config.fft_samples + 2)
        self.register_buffer("window", torch.hann_window(config.fft_samples), persistent=False)

    def forward(self, mel: Tensor) -> Tensor:
        """Samples [F × hop] of one log-mel [F, bins]."""
        x = self.input_norm(self.inputs(mel.t()[None]).transpose(1, 2))
        for block in self.blocks:
            x = block(x)
        x = self.upsample(x.transpose(1, 2)).transpose(1, 2)
        for block in self.tail:
            x = block(x)
        return self._inverse_stft(self.head(self.output_norm(x))[0].float())

    def _inverse_stft(self, x: Tensor) -> Tensor:
        """x [T, fft + 2] holds log-magnitude and phase of T frames → [T × hop] samples, "same" padding."""
        fft, hop, frames = self.config.fft_samples, self.config.stft_hop_samples, x.shape[0]
        magnitude, phase = x.t().chunk(2, 0)
        spectrum = torch.polar(magnitude.exp().clamp(max=1e2), phase)
        pieces = torch.fft.irfft(spectrum, fft, dim=0) * self.window[:, None]
        envelope = self.window.square()[:, None].expand(fft, frames)
        stacked = torch.stack([pieces, envelope])
        length = (frames - 1) * hop + fft
        wave, weight = F.fold(stacked, (1, length), (1, fft), stride=(1, hop))[:, 0, 0]
        edge = (fft - hop) // 2
        return wave[edge:-edge] / weight[edge:-edge].clamp_min(1e-8)
