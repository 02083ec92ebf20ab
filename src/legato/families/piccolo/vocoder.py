"""Piccolo's vocoder: Vocos with a measured reach, window by window."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from legato.nn.vocos import Vocos
from legato.types import Reach


class PiccoloVocoder:
    """Runs each mel by itself: a wave depends on its own mel only, whatever is vocoded beside it.

    `reach_frames` less than the net's own makes first sound earlier and the joins inexact.
    """

    def __init__(self, net: Vocos, reach_frames: int | None = None) -> None:
        self.net = net
        whole = net.config.reach_frames
        frames = whole if reach_frames is None else reach_frames
        self.reach = Reach(left=frames, right=frames)
        self.exact = frames >= whole

    @torch.inference_mode()
    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        return [self.net(mel) for mel in mels]
