"""Piccolo's speech tokenizer: log-mel at 50 frames a second → one code per two frames. Cloning needs it; speaking does
not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from legato.nn.fsq import FSQ
from legato.nn.layers import Linear
from legato.nn.vocos import ConvNeXt

FRAMES_PER_TOKEN = 2


@dataclass(frozen=True)
class CodecConfig:
    """`blocks` ConvNeXt blocks before and after the step from mel frames to tokens; `levels` as in FSQ."""

    mel_bins: int
    mel_mean: float
    mel_std: float
    width: int
    blocks: tuple[int, int]
    levels: tuple[int, ...]


class SpeechTokenizer(nn.Module):
    """The encoder half of the codec."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.inputs = nn.Conv1d(config.mel_bins, width, 5, padding=2)
        self.fine = nn.ModuleList(ConvNeXt(width, 3 * width) for _ in range(config.blocks[0]))
        self.down = nn.Conv1d(width, width, 2 * FRAMES_PER_TOKEN, FRAMES_PER_TOKEN, padding=1)
        self.coarse = nn.ModuleList(ConvNeXt(width, 3 * width) for _ in range(config.blocks[1]))
        self.norm = nn.LayerNorm(width)
        self.outputs = Linear(width, len(config.levels))
        self.quantiser = FSQ(config.levels)

    def forward(self, mels: Tensor) -> tuple[Tensor, Tensor]:
        """Log-mels [B, F, bins], F even → quantised values [B, F / 2, levels] and codes [B, F / 2]."""
        x = self.inputs(((mels - self.config.mel_mean) / self.config.mel_std).transpose(1, 2)).transpose(1, 2)
        for block in self.fine:
            x = block(x)
        x = self.down(x.transpose(1, 2)).transpose(1, 2)
        for block in self.coarse:
            x = block(x)
        quantised, codes = self.quantiser(self.outputs(self.norm(x)).float())
        return quantised, codes

    @torch.inference_mode()
    def encode(self, mel: Tensor) -> Tensor:
        """Codes int64 [F // 2] of one log-mel [F, bins]."""
        codes: Tensor = self(mel[None, : len(mel) // FRAMES_PER_TOKEN * FRAMES_PER_TOKEN])[1][0]
        return codes
