"""The join meter finds a seam that was planted, and none where there is none."""

from __future__ import annotations

import numpy as np

from legato.training.joins import line_at_the_block_rate_db, measure_joins

BLOCK = round(0.32 * 24_000)


def speech(seconds: int, seed: int) -> np.ndarray:
    """Noise whose loudness wanders."""
    order = np.random.default_rng(seed)
    loudness = np.repeat(10 ** (np.cumsum(order.normal(0, 1.0, seconds * 100)) / 40 - 1), 240)
    return (loudness * order.normal(size=len(loudness))).astype(np.float32)


def planted(seconds: int, seed: int) -> np.ndarray:
    """Every other block twice as loud."""
    wave = speech(seconds, seed)
    for block in range(0, len(wave) // BLOCK, 2):
        wave[block * BLOCK : (block + 1) * BLOCK] *= 2
    return wave


def test_no_seam() -> None:
    joins = measure_joins([speech(20, seed) for seed in range(3)])
    assert 0.85 < joins.ratio < 1.15
    assert joins.line_db < 9
    assert line_at_the_block_rate_db(speech(60, 5)) < 9


def test_a_planted_seam_is_found() -> None:
    joins = measure_joins([planted(20, seed) for seed in range(3)])
    assert joins.ratio > 1.8
    assert joins.line_db > 12
    assert line_at_the_block_rate_db(planted(60, 5)) > 12
