"""Qwen2.5-Omni's vocoder as the engine wants it: BigVGAN with its whole reach, or less for an earlier first sound."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from legato.nn.bigvgan import BigVGAN
from legato.types import Reach

EARLY_REACH_FRAMES = 20
"""What the release's own chunk code takes: the first sound comes 140 ms earlier. What is left out moves samples by less
than 1e-5 of the wave's size with random weights (tests/nn/test_bigvgan.py); trained ones were never measured."""


class QwenVocoder:
    """Runs each mel by itself: a wave depends on its own mel only, whatever is vocoded beside it.

    Convolutions are in true float32: CUDA's default rounds their inputs to ten bits, which moves a sample by 1e-3.
    """

    def __init__(self, net: BigVGAN, reach_frames: int | None = None) -> None:
        self.net = net
        whole = net.config.reach_frames
        frames = whole if reach_frames is None else min(reach_frames, whole)
        self.reach = Reach(left=whole, right=frames)
        self.exact = frames >= whole

    @torch.inference_mode()
    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return [self.net(mel) for mel in mels]
