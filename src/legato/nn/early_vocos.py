"""Vocos that looks ahead little: the layers of `vocos.py` with their convolutions leaning back in time.

Samples can be spoken as soon as their frame's few successors are known, which a streaming voice pays for with its first
sound. Every layer is still local, so the net has an exact receptive field, only not the same on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import Linear
from .vocos import ConvNeXt, VocosConfig

TAPS = 7
ISTFT_SUBFRAMES = 2
"""A sample mixes this many STFT frames on either side."""


@dataclass(frozen=True)
class EarlyVocosConfig:
    """`ahead` is how many frames the input convolution and each block look ahead, `tail_ahead` the same for the tail,
    in subframes; 3 is a centred convolution, 0 a causal one."""

    sizes: VocosConfig
    ahead: tuple[int, ...]
    tail_ahead: tuple[int, ...]

    def __post_init__(self) -> None:
        if (len(self.ahead), len(self.tail_ahead)) != (1 + self.sizes.blocks, self.sizes.tail_blocks):
            raise ValueError(
                f"look-ahead {self.ahead} and {self.tail_ahead} for an input, {self.sizes.blocks} blocks "
                f"and a tail of {self.sizes.tail_blocks}"
            )
        if not all(0 <= steps < TAPS for steps in (*self.ahead, *self.tail_ahead)):
            raise ValueError(f"look-ahead {self.ahead} and {self.tail_ahead}: each is 0 to {TAPS - 1}")

    @property
    def left_frames(self) -> int:
        """Mel frames before a frame that can change its samples."""
        back = sum(TAPS - 1 - steps for steps in self.ahead)
        return back + self._whole(sum(TAPS - 1 - steps for steps in self.tail_ahead))

    @property
    def right_frames(self) -> int:
        """Mel frames behind a frame that can change its samples."""
        return sum(self.ahead) + self._whole(sum(self.tail_ahead))

    def _whole(self, tail_subframes: int) -> int:
        return -(-(tail_subframes + ISTFT_SUBFRAMES) // self.sizes.subframes)


class LeaningConv1d(nn.Conv1d):
    """Convolution over 7 steps, of which `ahead` lie in the future; as long out as in."""

    def __init__(self, inputs: int, outputs: int, ahead: int, groups: int = 1) -> None:
        super().__init__(inputs, outputs, TAPS, groups=groups)
        self.ahead = ahead

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (TAPS - 1 - self.ahead, self.ahead)))

    def take_from(self, centred: Tensor) -> None:
        """Start from the taps [out, in, 7] of a centred convolution: each stays at its moment, those out
        of reach are left out."""
        later = TAPS // 2 - self.ahead
        with torch.no_grad():
            self.weight.zero_()
            self.weight[..., max(0, later) : TAPS + min(0, later)] = centred[..., max(0, -later) : TAPS - max(0, later)]


class EarlyVocos(nn.Module):
    """Log-mel → samples."""

    window: Tensor

    def __init__(self, config: EarlyVocosConfig) -> None:
        super().__init__()
        self.config = config
        sizes = config.sizes
        self.inputs = LeaningConv1d(sizes.mel_bins, sizes.width, config.ahead[0])
        self.input_norm = nn.LayerNorm(sizes.width, 1e-6)
        self.blocks = nn.ModuleList(_block(sizes.width, sizes.inner, ahead) for ahead in config.ahead[1:])
        self.upsample = nn.ConvTranspose1d(sizes.width, sizes.tail_width, sizes.subframes, sizes.subframes)
        self.tail = nn.ModuleList(_block(sizes.tail_width, sizes.tail_inner, ahead) for ahead in config.tail_ahead)
        self.output_norm = nn.LayerNorm(sizes.tail_width, 1e-5)
        self.head = Linear(sizes.tail_width, sizes.fft_samples + 2)
        self.register_buffer("window", torch.hann_window(sizes.fft_samples), persistent=False)

    def forward(self, mel: Tensor) -> Tensor:
        """Samples [F × hop] of one log-mel [F, bins]."""
        return self.waves(mel[None])[0]

    def waves(self, mels: Tensor) -> Tensor:
        """Samples [B, F × hop] of log-mels [B, F, bins] of one length."""
        x = self.input_norm(self.inputs(mels.transpose(1, 2)).transpose(1, 2))
        for block in self.blocks:
            x = block(x)
        x = self.upsample(x.transpose(1, 2)).transpose(1, 2)
        for block in self.tail:
            x = block(x)
        return self._inverse_stft(self.head(self.output_norm(x)).float())

    def _inverse_stft(self, x: Tensor) -> Tensor:
        """x [B, T, fft + 2] holds log-magnitude and phase of T frames → [B, T × hop] samples, "same" padding."""
        fft, hop, frames = self.config.sizes.fft_samples, self.config.sizes.stft_hop_samples, x.shape[1]
        magnitude, phase = x.transpose(1, 2).chunk(2, 1)
        spectrum = torch.polar(magnitude.exp().clamp(max=1e2), phase)
        pieces = torch.fft.irfft(spectrum, fft, dim=1) * self.window[:, None]
        envelope = self.window.square()[None, :, None].expand(1, -1, frames)
        length = (frames - 1) * hop + fft
        waves, weight = (F.fold(t, (1, length), (1, fft), stride=(1, hop))[:, 0, 0] for t in (pieces, envelope))
        edge = (fft - hop) // 2
        return waves[:, edge:-edge] / weight[:, edge:-edge].clamp_min(1e-8)

    def start_from(self, tensors: dict[str, Tensor]) -> None:
        """Take over the weights of a Vocos of the same sizes (its `state_dict`)."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                module = self.get_submodule(name.rpartition(".")[0])
                if isinstance(module, LeaningConv1d) and name.endswith("weight"):
                    module.take_from(tensors[name])
                else:
                    parameter.copy_(tensors[name])


def _block(width: int, inner: int, ahead: int) -> ConvNeXt:
    block = ConvNeXt(width, inner)
    block.depthwise = cast(nn.Conv1d, LeaningConv1d(width, width, ahead, groups=width))
    return block
