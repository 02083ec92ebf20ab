"""What is written is read back, also after an interruption in the middle of an utterance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from legato.errors import CheckpointError
from legato.nn.mel import log_mel
from legato.training.corpus import SAMPLES_PER_TOKEN, Corpus, CorpusWriter, Spoken
from legato.training.features import MEL, write_features
from legato.training.pitch import log_pitch

from .speech import say, write_corpus


def test_waves_come_back(folder: Path, corpus: Corpus) -> None:
    spoken = corpus.utterances[3]
    expected = say(spoken.phonemes, spoken.durations, 220.0)
    wave = corpus.wave(3)
    assert len(wave) % SAMPLES_PER_TOKEN == 0
    np.testing.assert_allclose(wave[: len(expected)], expected, atol=1e-4)
    assert not wave[len(expected) :].any()


def test_parts_are_parts_of_the_whole(corpus: Corpus) -> None:
    assert np.array_equal(corpus.mel(5)[10:20], corpus.mel(5, 10, 10))
    assert np.array_equal(corpus.codes(5)[4:9], corpus.codes(5, 4, 5))
    assert len(corpus.mel(5)) == 2 * len(corpus.codes(5)) == corpus.utterances[5].frames


def test_mels_are_those_of_the_waves(corpus: Corpus) -> None:
    expected = log_mel(torch.from_numpy(corpus.wave(2)), MEL).numpy()
    np.testing.assert_allclose(corpus.mel(2), expected, atol=0.02)


@pytest.mark.parametrize("cut", [1, 700])
def test_an_interrupted_writer_goes_on(tmp_path: Path, cut: int) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    write_corpus(whole, 6)
    write_corpus(broken, 6)
    lines = (broken / "utterances.jsonl").read_bytes()
    (broken / "utterances.jsonl").write_bytes(lines[:-cut])
    kept = lines[:-cut].count(b"\n")
    writer = CorpusWriter(broken)
    assert writer.count == kept < 6
    for index in range(kept, 6):
        writer.add(Corpus([whole]).utterances[index], Corpus([whole]).wave(index))
    for name in ("utterances.jsonl", "speech.pcm"):
        assert len((broken / name).read_bytes()) == len((whole / name).read_bytes())
    assert np.array_equal(Corpus([broken]).wave(5), Corpus([whole]).wave(5))


def test_mels_grow_with_the_corpus(tmp_path: Path) -> None:
    write_corpus(tmp_path, 3)
    write_features(tmp_path)
    writer = CorpusWriter(tmp_path)
    again = Corpus([tmp_path]).utterances[0]
    writer.add(again, Corpus([tmp_path]).wave(0))
    write_features(tmp_path)
    assert np.array_equal(Corpus([tmp_path]).mel(3), Corpus([tmp_path]).mel(0))


def test_phonemes_by_time() -> None:
    spoken = Spoken("", "en", "a", (0, 7, 8, 0), (2, 1, 3, 2), 0, 9600)
    times = np.array([0.0, 0.049, 0.05, 0.074, 0.076, 0.149, 0.151, 9.0])
    assert spoken.phoneme_at(times).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"utterances\.jsonl is missing"):
        Corpus([tmp_path / "nowhere"])


@pytest.mark.parametrize("hertz", [80.0, 110.0, 233.0, 390.0])
def test_pitch_of_a_hum(hertz: float) -> None:
    wave = np.concatenate([np.zeros(4800), say((1,), (40,), hertz)]).astype(np.float32)
    hum = torch.from_numpy(wave - np.concatenate([np.zeros(4800), say((1,), (40,), 1e-9)]).astype(np.float32))
    pitch = log_pitch(hum)
    assert len(pitch) == len(wave) // 480
    assert not pitch[:8].any()
    np.testing.assert_allclose(pitch[12:-2].exp(), hertz, rtol=0.01)
