"""What the flow is told about each codec token: its code, and the phonemes that are being said around it.

The language model is in step with the text, so at every code it is known which phoneme is spoken. Handing that on lets
a coarse code stay coarse: it need only carry what the text does not (rhythm, pitch, how it is said). Code and phonemes
go through the stages as one integer: 16 bits of code, then 8 bits for each phoneme.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

UNKNOWN = 255
"""Stands for a phoneme that nobody knows: in a reference whose words are not given."""

_CODE_BITS, _PHONEME_BITS = 16, 8
MOST_AROUND = 2
"""Phonemes on either side; more would not fit."""


def window(phonemes: Seq[int], index: int, around: int) -> tuple[int, ...]:
    """The phonemes from `index` − around to `index` + around; beyond the ends, the end's own."""
    last = len(phonemes) - 1
    return tuple(phonemes[min(max(index + step, 0), last)] for step in range(-around, around + 1))


def pack(code: int, phonemes: Seq[int]) -> int:
    """One integer for a code and the phonemes around it."""
    packed = 0
    for phoneme in reversed(phonemes):
        packed = packed << _PHONEME_BITS | phoneme
    return packed << _CODE_BITS | code


def unpack(tokens: Tensor, around: int) -> tuple[Tensor, Tensor]:
    """Codes [...] and phonemes [..., 2 around + 1] of packed tokens [...], int64."""
    shifts = _CODE_BITS + _PHONEME_BITS * torch.arange(2 * around + 1, device=tokens.device)
    phonemes = tokens[..., None] >> shifts & ((1 << _PHONEME_BITS) - 1)
    return tokens & ((1 << _CODE_BITS) - 1), phonemes


def without_code(tokens: Tensor) -> Tensor:
    """Packed tokens with 0 for their codes."""
    return tokens >> _CODE_BITS << _CODE_BITS


def unknown(around: int) -> int:
    """What to add to a code about whose phonemes nothing is known."""
    return pack(0, [UNKNOWN] * (2 * around + 1)) if around else 0
