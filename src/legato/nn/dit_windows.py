"""Windows of a block-attention DiT: several of them, of any utterances and at any ODE step, in one call of the net.

A window is some blocks in a row, once per guidance branch, and perhaps stored keys and values of the block before it.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from .dit import BlockDiT, Neighbours, Stored


@dataclass(frozen=True)
class WindowInput:
    """A window's part of one call: `embedded` [branches, blocks, b, D] at ODE step `step`.

    `stored` holds, per look-back layer, the block before the window, [branches, b, heads, head_dim] each; None at the
    start of an utterance.
    """

    embedded: Tensor
    step: int
    near: Neighbours
    stored: Seq[Stored] | None


@dataclass(frozen=True)
class WindowOutput:
    """What came of it: `velocity` [branches, blocks, b, outputs], and per look-back layer the keys and values of its
    own blocks, [branches × blocks, b, heads, head_dim] each."""

    velocity: Tensor
    own: Seq[Stored]

    def block(self, index: int) -> list[Stored]:
        """Copies of the keys and values of one block, per look-back layer [branches, b, heads, head_dim] each."""
        at = slice(index, None, self.velocity.shape[1])
        return [(k[at].clone(), v[at].clone()) for k, v in self.own]


def evaluate(net: BlockDiT, modulations: Tensor, windows: Seq[WindowInput]) -> list[WindowOutput]:
    """One evaluation of the net for all windows together; `modulations` has a row per ODE step."""
    inputs = [window.embedded.flatten(0, 1) for window in windows]
    steps = [x.new_full((len(x),), w.step, dtype=torch.long) for x, w in zip(inputs, windows, strict=True)]
    near = together(tuple(window.near for window in windows))
    memory = _memory(windows, len(net.config.look_back_layers))
    velocity, own = net(_cat(inputs), modulations, _cat(steps), near, memory)
    outputs, first = [], 0
    for window in windows:
        branches, blocks = window.embedded.shape[:2]
        here = slice(first, first + branches * blocks)
        shaped = velocity[here].unflatten(0, (branches, blocks))
        outputs.append(WindowOutput(shaped, [(k[here], v[here]) for k, v in own]))
        first = here.stop
    return outputs


def _memory(windows: Seq[WindowInput], layers: int) -> list[Stored | None]:
    """Per look-back layer, the stored blocks of the windows that have some, stacked in order."""
    kept = [window.stored for window in windows if window.stored is not None]
    if not kept:
        return [None] * layers
    return [(torch.cat([own[i][0] for own in kept]), torch.cat([own[i][1] for own in kept])) for i in range(layers)]


def in_blocks(frames: Tensor, block: int) -> Tensor:
    """[…, F, C] → […, blocks, block, C], the last block filled with zeros."""
    missing = -frames.shape[-2] % block
    return F.pad(frames, (0, 0, 0, missing)).unflatten(-2, (-1, block))


@lru_cache(maxsize=256)
def neighbours(frames: int, block: int, branches: int, from_memory: bool, device: torch.device) -> Neighbours:
    """All branches of one window of so many frames, one after the other; memory holds one block per branch."""
    blocks = -(-frames // block)
    valid = (torch.arange(blocks * block) < frames).view(blocks, block).repeat(branches, 1)
    index, branch = torch.arange(blocks), torch.arange(branches)[:, None]
    before, after = index - 1, torch.where(index < blocks - 1, index + 1, -1)
    before, after = (torch.where(i >= 0, i + branch * blocks, -1).flatten() for i in (before, after))
    past = torch.full((branches, blocks), -1)
    if from_memory:
        past[:, :1] = branch
    return Neighbours(*(t.to(device) for t in (valid, before, after, past.flatten())))


@lru_cache(maxsize=256)
def together(parts: tuple[Neighbours, ...]) -> Neighbours:
    """Neighbours of several windows in one call."""
    if len(parts) == 1:
        return parts[0]
    blocks = memories = 0
    before, after, past = [], [], []
    for part in parts:
        before.append(torch.where(part.before >= 0, part.before + blocks, -1))
        after.append(torch.where(part.after >= 0, part.after + blocks, -1))
        past.append(torch.where(part.past >= 0, part.past + memories, -1))
        blocks += len(part.before)
        memories += int((part.past >= 0).sum())
    return Neighbours(torch.cat([p.valid for p in parts]), torch.cat(before), torch.cat(after), torch.cat(past))


def _cat(parts: Seq[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
