"""What the flow is told of a token survives the way there, and comes from where the language model is in the text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from legato.errors import CheckpointError
from legato.families.piccolo.config import ADVANCE, FIRST_CODE, read_config
from legato.families.piccolo.lm import TextSynchronous
from legato.families.piccolo.said import MOST_AROUND, UNKNOWN, pack, unknown, unpack, window
from legato.training.corpus import TOKEN_S, Spoken
from legato.training.lm import IGNORED, stream

SIZES = Path(__file__).parents[2] / "recipes" / "piccolo" / "sizes_tiny.json"


@given(st.data(), st.integers(1, MOST_AROUND), st.integers(0, 2**16 - 1))
def test_packed_is_unpacked(data: st.DataObject, around: int, code: int) -> None:
    phonemes = data.draw(st.lists(st.integers(0, UNKNOWN), min_size=2 * around + 1, max_size=2 * around + 1))
    codes, said = unpack(torch.tensor([pack(code, phonemes)]), around)
    assert (codes.tolist(), said.tolist()) == ([code], [phonemes])


def test_nothing_is_known_of_a_reference() -> None:
    codes, said = unpack(torch.arange(1000) + unknown(2), 2)
    assert torch.equal(codes, torch.arange(1000))
    assert (said == UNKNOWN).all()


def test_windows_end_with_the_text() -> None:
    assert window((5, 6, 7, 8), 0, 2) == (5, 5, 5, 6, 7)
    assert window((5, 6, 7, 8), 3, 1) == (7, 8, 8)


def test_the_phoneme_is_the_one_being_spoken() -> None:
    config = read_config(SIZES)
    phonemes = (0, 50, 51, 52, 53, 0)
    said = TextSynchronous(phonemes, config, None)
    told = []
    for token in (FIRST_CODE, ADVANCE, FIRST_CODE + 1, ADVANCE, ADVANCE, FIRST_CODE + 2, ADVANCE, FIRST_CODE + 3):
        step = said.accept(token)
        if step.emit is not None:
            codes, around = unpack(torch.tensor(step.emit), config.phonemes_around)
            told.append((int(codes), around.tolist()[config.phonemes_around]))
    assert told == [(0, 0), (1, 0), (2, 51), (3, 52)]


@pytest.mark.parametrize("around", [-1, 3, "2"])
def test_more_than_fits_is_refused(tmp_path: Path, around: object) -> None:
    raw = json.loads(SIZES.read_text(encoding="utf-8"))
    raw["flow"]["phonemes_around"] = around
    text = json.dumps(raw)
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match="phonemes_around"):
        read_config(tmp_path / "config.json")


def test_training_and_speaking_tell_the_same() -> None:
    """The stream an utterance is learned as, spoken: every code is told the phonemes the flow has learned it with."""
    config = read_config(SIZES)
    phonemes = (0, 50, 51, 52, 53, 54, 55, 0)
    spoken = Spoken("", "en", "x", phonemes, (3, 2, 1, 4, 1, 6, 8, 3), 0, 28 * 600)
    codes = np.arange(spoken.tokens) + 1
    saying, told = TextSynchronous(phonemes, config, None), []
    for target in stream(spoken, codes, config).targets:
        if target != IGNORED and (step := saying.accept(int(target))).emit is not None:
            told.append(step.emit)
    at = spoken.phoneme_at((np.arange(len(codes)) + 0.5) * TOKEN_S)
    learned = [pack(int(c), window(phonemes, int(i), config.phonemes_around)) for c, i in zip(codes, at, strict=True)]
    sure = int((at < len(phonemes) - 1 - config.lead_phonemes).sum())  # while there is text to ask for
    assert sure > 6
    assert told[:sure] == learned[:sure]
