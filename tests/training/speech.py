"""A corpus that takes no teacher: every phoneme is a chord of its own, every speaker has a pitch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from legato.training.corpus import DURATION_S, SAMPLE_HZ, CorpusWriter, Spoken

SIZES = Path(__file__).parents[2] / "recipes" / "piccolo" / "sizes_tiny.json"
SPEAKERS = ("low", "high")
PHONEMES = tuple(range(50, 60))


def say(phonemes: tuple[int, ...], durations: tuple[int, ...], pitch_hz: float) -> np.ndarray:
    """Float32 samples: a hum at the speaker's pitch, and for each phoneme two partials of its own."""
    pieces = []
    for phoneme, duration in zip(phonemes, durations, strict=True):
        t = np.arange(round(duration * DURATION_S * SAMPLE_HZ)) / SAMPLE_HZ
        hum = sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in range(1, 5))
        own = np.sin(2 * np.pi * 90 * phoneme * t) + np.sin(2 * np.pi * 61 * phoneme * t)
        pieces.append((phoneme > 0) * (0.1 * hum + 0.1 * own))
    return np.concatenate(pieces).astype(np.float32)


def write_corpus(folder: Path, utterances: int = 24, phonemes: int = 16) -> None:
    """Utterances of about two seconds (16 phonemes), by two speakers in turn."""
    order, writer = np.random.default_rng(0), CorpusWriter(folder)
    for number in range(utterances):
        ids = (0, *(int(i) for i in order.choice(PHONEMES, phonemes)), 0)
        durations = (8, *(int(d) for d in order.integers(3, 8, phonemes)), 8)
        speaker = number % len(SPEAKERS)
        spoken = Spoken("chords", "en", SPEAKERS[speaker], ids, durations, 0, 0)
        writer.add(spoken, say(ids, durations, pitch_hz=(110.0, 220.0)[speaker]))
