"""Who speaks: reference log-mel → one vector, by attentive statistics pooling (Okabe et al. 2018, arXiv:1803.10963)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from legato.nn.layers import Linear
from legato.nn.vocos import ConvNeXt

WIDTH = 128
BLOCKS = 2


class SpeakerEncoder(nn.Module):
    """Looks at every frame's neighbourhood, then weighs the frames; the order of what was said does not matter."""

    def __init__(self, mel_bins: int, mel_mean: float, mel_std: float, outputs: int) -> None:
        super().__init__()
        self.mean, self.std = mel_mean, mel_std
        self.inputs = nn.Conv1d(mel_bins, WIDTH, 5, padding=2)
        self.blocks = nn.ModuleList(ConvNeXt(WIDTH, 2 * WIDTH) for _ in range(BLOCKS))
        self.attention = Linear(WIDTH, WIDTH)
        self.outputs = Linear(2 * WIDTH, outputs)

    def forward(self, mels: Tensor) -> Tensor:
        """Log-mels [B, F, bins] → vectors [B, outputs] of length √outputs."""
        x = self.inputs(((mels - self.mean) / self.std).transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        weights = self.attention(x).softmax(1)
        mean = (weights * x).sum(1)
        spread = ((weights * x.square()).sum(1) - mean.square()).clamp_min(1e-5).sqrt()
        vector: Tensor = self.outputs(torch.cat([mean, spread], -1))
        return vector * vector.shape[-1] ** 0.5 / vector.norm(dim=-1, keepdim=True).clamp_min(1e-6)
