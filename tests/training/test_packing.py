"""A packed corpus is the corpus, but for its samples and a byte's rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from legato.errors import CheckpointError
from legato.training.corpus import Corpus
from legato.training.packing import MEL_HIGH, MEL_LOW, main, pack, unpack


def test_what_is_packed_comes_back(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    main(["pack", str(folder), str(tmp_path / "chords.npz")])
    main(["unpack", str(tmp_path / "chords.npz"), str(tmp_path / "chords")])
    back = Corpus([tmp_path / "chords"])
    assert back.utterances == corpus.utterances
    for index in range(len(corpus)):
        np.testing.assert_allclose(back.mel(index), corpus.mel(index), atol=(MEL_HIGH - MEL_LOW) / 255)
        assert np.array_equal(back.pitch(index) == 0, corpus.pitch(index) == 0)
        np.testing.assert_allclose(back.pitch(index), corpus.pitch(index), atol=0.01)


def test_features_are_asked_for(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "utterances.jsonl").write_bytes((folder / "utterances.jsonl").read_bytes())
    with pytest.raises(CheckpointError, match=r"speech\.mel is missing"):
        pack(tmp_path, tmp_path / "x.npz")


def test_another_file_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", mel=np.zeros(3, np.uint8))
    (tmp_path / "y.npz").write_bytes(b"nothing of the kind")
    for name in ("x.npz", "y.npz", "z.npz"):
        with pytest.raises(CheckpointError, match=name):
            unpack(tmp_path / name, tmp_path / "corpus")
