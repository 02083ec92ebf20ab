"""Speaking rate: duration changes, pitch does not, pieces are the whole."""

from __future__ import annotations

import numpy as np
import pytest

from legato.errors import RequestError
from legato.tempo import TempoStream

RATE_HZ = 24000


def tone(seconds: float, hz: float = 200.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(seconds * RATE_HZ)) / RATE_HZ)).astype(np.float32)


def stretched(wave: np.ndarray, speed: float, piece: int) -> np.ndarray:
    stream = TempoStream(RATE_HZ, speed)
    parts = [stream.push(wave[i : i + piece]) for i in range(0, len(wave), piece)]
    return np.concatenate([*parts, stream.finish()])


@pytest.mark.parametrize("speed", [0.25, 0.5, 0.9, 1.5, 2.0, 4.0])
def test_duration_and_pitch(speed: float) -> None:
    wave = stretched(tone(2.0), speed, 5000)
    assert len(wave) / RATE_HZ == pytest.approx(2.0 / speed, rel=0.06)
    spectrum = np.abs(np.fft.rfft(wave * np.hanning(len(wave))))
    assert np.argmax(spectrum) * RATE_HZ / len(wave) == pytest.approx(200, rel=0.03)


@pytest.mark.parametrize("piece", [1, 997, 24000])
def test_pieces_are_the_whole(piece: int) -> None:
    wave = tone(0.3)
    assert np.array_equal(stretched(wave, 1.25, piece), stretched(wave, 1.25, len(wave)))


def test_nothing_in_nothing_out() -> None:
    stream = TempoStream(RATE_HZ, 2.0)
    assert len(stream.push(np.zeros(0, np.float32))) == len(stream.finish()) == 0


@pytest.mark.parametrize("speed", [0.0, 0.2499, 4.001, float("nan"), -1.0])
def test_out_of_range(speed: float) -> None:
    with pytest.raises(RequestError, match="speed"):
        TempoStream(RATE_HZ, speed)
