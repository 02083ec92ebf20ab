"""Piccolo's vocoder: either kind of Vocos with a measured reach, window by window."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from legato.nn.early_vocos import EarlyVocos
from legato.nn.vocos import Vocos
from legato.types import Reach


class PiccoloVocoder:
    """Runs each mel by itself: a wave depends on its own mel only, whatever is vocoded beside it.

    `reach_frames`, if less than the net's own on a side, makes first sound earlier and the joins inexact.
    """

    def __init__(self, net: Vocos | EarlyVocos, reach_frames: int | None = None) -> None:
        self.net = net
        left, right = _reach(net)
        limit = max(left, right) if reach_frames is None else reach_frames
        self.reach = Reach(left=min(left, limit), right=min(right, limit))
        self.exact = self.reach == Reach(left, right)

    @torch.inference_mode()
    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        return [self.net(mel) for mel in mels]


def _reach(net: Vocos | EarlyVocos) -> tuple[int, int]:
    """Mel frames before and behind a frame that can change its samples."""
    if isinstance(net, EarlyVocos):
        return net.config.left_frames, net.config.right_frames
    return net.config.reach_frames, net.config.reach_frames
