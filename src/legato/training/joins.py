"""Whether blocks can be heard: steps of the energy where flow blocks meet, against steps elsewhere."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from .corpus import SAMPLE_HZ

SLOT_S = 0.01
BLOCK_S = 0.32
"""Of the flow: 16 frames."""

QUIET_DB = -60.0

SKIPPED_BLOCKS = 3
"""Left out at the start of an utterance: speech tends to begin near the first border, seam or no seam."""


@dataclass(frozen=True)
class Joins:
    """`ratio` of the mean energy step at block borders to the mean elsewhere (1: no seam); `line_db` of the steps'
    spectrum at the block rate over its neighbourhood (0: no line)."""

    ratio: float
    line_db: float


def measure_joins(waves: Seq[np.ndarray]) -> Joins:
    """Of utterances [n] at the corpus' rate that begin with a block each; those under two seconds are left out."""
    period = round(BLOCK_S / SLOT_S)
    steps = [
        np.abs(np.diff(_energy_db(wave)))[SKIPPED_BLOCKS * period :] for wave in waves if len(wave) > 2 * SAMPLE_HZ
    ]
    at_border = np.concatenate([s[period - 1 :: period] for s in steps])
    elsewhere = np.concatenate([np.delete(s, np.s_[period - 1 :: period]) for s in steps])
    return Joins(float(at_border.mean() / elsewhere.mean()), _line_db(np.concatenate(steps), period))


def line_at_the_block_rate_db(wave: np.ndarray) -> float:
    """Of a long reading [n] at the corpus' rate, whose utterances may begin anywhere: as `Joins.line_db`."""
    return _line_db(np.abs(np.diff(_energy_db(wave))), round(BLOCK_S / SLOT_S))


def _energy_db(wave: np.ndarray) -> np.ndarray:
    slot = round(SLOT_S * SAMPLE_HZ)
    slots = wave[: len(wave) // slot * slot].reshape(-1, slot)
    return np.asarray(np.maximum(10 * np.log10(np.square(slots).mean(1) + 1e-12), QUIET_DB))


def _line_db(steps: np.ndarray, period: int) -> float:
    """Power at one cycle per block over the median of the frequencies around it."""
    whole = steps[: len(steps) // period * period]
    power = np.square(np.abs(np.fft.rfft(whole - whole.mean())))
    line = len(whole) // period
    around = np.r_[power[max(1, line - 40) : line - 4], power[line + 5 : line + 41]]
    return float(10 * np.log10(power[line] / np.median(around)))
