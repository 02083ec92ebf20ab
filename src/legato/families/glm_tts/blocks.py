"""The flow's attention mask of growing blocks, as far as each frame may look ahead. Integers only.

Blocks are counted in tokens but laid out at 6.89 frames per token: the rates of the model that the release grew from
(12.5 tokens and 22050 / 256 frames per second). The weights were trained with it, so it stays.
(Facts: zai-org/GLM-TTS, utils/block_mask_util.py and flow/dit.py.)
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

BLOCK_TOKENS = (25, 50, 200)
"""Blocks after the prompt's; the last one repeats."""

OLD_TOKEN_HZ, OLD_SAMPLE_HZ, OLD_HOP = 12.5, 22050, 256
SHORT_BLOCK_FRAMES = 172


def block_frames(tokens: int) -> int:
    return int(tokens / OLD_TOKEN_HZ * OLD_SAMPLE_HZ / OLD_HOP)


def sees_until(frames: int, blocks: Seq[int]) -> Tensor:
    """For each of `frames` frames, the end of what it may look at: all the past, its block, and at least half a block
    (two thirds of a long one) ahead. `blocks` are lengths in tokens, the last one repeats; empty blocks are skipped.
    """
    until: list[int] = []
    sizes = [size for tokens in blocks if (size := block_frames(tokens))]
    start, index = 0, 0
    while start < frames:
        size = sizes[min(index, len(sizes) - 1)]
        ahead = int(size / 2) if size <= SHORT_BLOCK_FRAMES else int(size / 1.5)
        until += [start + size + max(0, ahead - (size - 1 - i)) for i in range(size)]
        start, index = start + size, index + 1
    return torch.tensor(until[:frames])
