"""What is computed once per corpus: log-mels, their statistics, pitch, and codec tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from legato.nn.mel import MelSpec, log_mel

from .corpus import MEL_BINS, SAMPLE_HZ, SAMPLES_PER_FRAME, Corpus
from .pitch import log_pitch

MEL = MelSpec(SAMPLE_HZ, fft_samples=1920, hop_samples=SAMPLES_PER_FRAME, bins=MEL_BINS, low_hz=0.0, high_hz=12_000.0)
"""The log-mel of all piccolo nets."""


@dataclass(frozen=True)
class MelStatistics:
    """Mean and standard deviation over all bins of all frames."""

    mean: float
    std: float


def write_features(folder: Path) -> None:
    """speech.mel and speech.pitch of a corpus folder; what is there already is kept."""
    corpus = Corpus([folder], min_tokens=0)
    _grow(corpus, folder / "speech.mel", MEL_BINS, lambda wave: log_mel(wave, MEL))
    _grow(corpus, folder / "speech.pitch", 1, log_pitch)


def _grow(corpus: Corpus, path: Path, width: int, compute: Callable[[Tensor], Tensor]) -> None:
    """Append what `compute` (samples [n] → [F, width]) gives for the utterances that the file lacks, as float16."""
    path.touch()
    with path.open("r+b") as file:
        done = path.stat().st_size // (2 * width)
        for index, spoken in enumerate(corpus.utterances):
            start = spoken.start_sample // SAMPLES_PER_FRAME
            if start + spoken.frames > done:
                file.seek(start * 2 * width)
                file.write(compute(torch.from_numpy(corpus.wave(index))).half().numpy().tobytes())


def mel_statistics(corpus: Corpus) -> MelStatistics:
    """Of at most 500 training utterances, evenly chosen."""
    chosen = corpus.training[:: max(1, len(corpus.training) // 500)]
    values = np.concatenate([corpus.mel(index).ravel() for index in chosen]).astype(np.float64)
    return MelStatistics(float(values.mean()), float(values.std()))


@torch.inference_mode()
def write_codes(folder: Path, encode: Callable[[Tensor], Tensor]) -> np.ndarray:
    """speech.codes of a corpus folder, by `encode` (mel [F, bins] → codes [F / 2]); how often each code is used."""
    corpus = Corpus([folder], min_tokens=0)
    codes = [encode(torch.from_numpy(corpus.mel(i))).cpu().numpy().astype(np.uint16) for i in range(len(corpus))]
    whole = np.concatenate(codes)
    whole.tofile(folder / "speech.codes")
    return np.bincount(whole)
