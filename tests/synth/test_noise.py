"""NoiseTape: a function of seed and absolute frame."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from legato.synth.noise import NoiseTape

READS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=12)


@given(st.integers(0, 2**63 - 1), st.integers(1, 16), READS)
def test_whatever_the_reads(seed: int, group: int, reads: list[tuple[int, int]]) -> None:
    """Each read begins some frames after the one before and has any length: overlapping, adjoining or leaving gaps."""
    whole = NoiseTape(seed, 3, group).read(0, 200)
    tape, start = NoiseTape(seed, 3, group), 0
    for skip, length in reads:
        start += skip
        assert torch.equal(tape.read(start, start + length), whole[start : start + length])


def test_seeds_differ() -> None:
    assert not torch.equal(NoiseTape(1, 4, 8).read(0, 8), NoiseTape(2, 4, 8).read(0, 8))


def test_it_is_normal() -> None:
    noise = NoiseTape(0, 80, 16).read(0, 500)
    assert abs(float(noise.mean())) < 0.02 and abs(float(noise.std()) - 1) < 0.02


def test_the_past_is_forgotten() -> None:
    tape = NoiseTape(0, 3, 4)
    tape.read(10, 12)
    with pytest.raises(ValueError, match="frame 9 was already forgotten; the tape starts at 10"):
        tape.read(9, 12)
