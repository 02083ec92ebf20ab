"""Sound of a request → samples of one channel at 16 kHz. Files are decoded by PyAV, rates changed by soxr."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from legato.audio_file import decoded, opened, readable
from legato.errors import ConfigError, RequestError

from .mel import SAMPLE_HZ

MAX_SOUND_SECONDS = 300
"""What the model's own front end takes; it cuts off the rest without a word, we refuse."""

LEAST_RATE_HZ, MOST_RATE_HZ = 1_000, 768_000
"""Rates at which sound is taken."""

LARGEST_SAMPLE = 1e30
"""Beyond it a change of rate may leave the range of float32."""

MOST_CHANNELS = 8
"""A wave of so few columns and more rows is [n, channels]: the other way round."""

PARAM = "messages"


def read_sound(content: bytes | Path, name: str) -> np.ndarray:
    """Samples float32 [n] at SAMPLE_HZ of a sound file, or of the sound of a film.

    Raises RequestError when it is damaged, holds no sound, or is longer than MAX_SOUND_SECONDS.
    """
    with opened(content, name, PARAM) as container:
        pieces = [(_mono(piece), rate) for piece, rate in decoded(container, name, PARAM, MAX_SOUND_SECONDS)]
    return at_16_khz(np.concatenate([mono for mono, _ in pieces]), pieces[0][1], name)


def has_sound(content: bytes | Path, name: str) -> bool:
    """Whether a film has a sound track."""
    with opened(content, name, PARAM) as container:
        return readable(container.streams.audio)


def at_16_khz(wave: np.ndarray, sample_rate_hz: int | None, name: str) -> np.ndarray:
    """Samples float32 [n] at SAMPLE_HZ of a wave [n] or [channels, n]. Raises RequestError for what is no sound."""
    rate, mono = checked_rate(sample_rate_hz, name), checked(wave, name)
    _check_length(len(mono) / rate, name)
    if rate == SAMPLE_HZ:
        return mono
    resampled: np.ndarray = extra("soxr").resample(mono, rate, SAMPLE_HZ)
    return resampled


def checked_rate(sample_rate_hz: int | None, name: str) -> int:
    """A rate that sound is taken at. Raises RequestError for any other."""
    if isinstance(sample_rate_hz, bool) or not isinstance(sample_rate_hz, (int, np.integer)):
        raise RequestError(f"{name} needs its sample_rate_hz, a whole number, which is {sample_rate_hz!r}", PARAM)
    if not LEAST_RATE_HZ <= sample_rate_hz <= MOST_RATE_HZ:
        raise RequestError(
            f"{name} has sample_rate_hz = {sample_rate_hz}: it must be from {LEAST_RATE_HZ} to {MOST_RATE_HZ}", PARAM
        )
    return int(sample_rate_hz)


def checked(wave: np.ndarray, name: str) -> np.ndarray:
    """One channel float32 [n] of a wave [n] or [channels, n].

    Raises RequestError when it is empty, of another type or shape, not finite as float32 or too large.
    """
    if wave.ndim not in (1, 2) or not np.issubdtype(wave.dtype, np.floating):
        raise RequestError(f"{name} must be float samples [n] or [channels, n], not {wave.dtype} {wave.shape}", PARAM)
    if not wave.size:
        raise RequestError(f"{name} holds 0 samples", PARAM)
    if wave.ndim == 2 and wave.shape[1] <= MOST_CHANNELS and wave.shape[1] < wave.shape[0]:
        raise RequestError(
            f"{name} has samples {list(wave.shape)}, which is more channels than samples of each: samples are "
            "[channels, n], so transpose them (wave.T)",
            PARAM,
        )
    with np.errstate(over="ignore"):
        mono = np.ascontiguousarray(_mono(wave), np.float32)
    if not (np.abs(mono) <= LARGEST_SAMPLE).all():
        raise RequestError(f"{name} holds samples that are not numbers (NaN, infinite or too large)", PARAM)
    return mono


def _mono(wave: np.ndarray) -> np.ndarray:
    """The mean of all channels; what is not finite stays so."""
    with np.errstate(invalid="ignore", over="ignore"):
        mono: np.ndarray = wave.mean(0) if wave.ndim == 2 else wave
    return mono


def _check_length(seconds: float, name: str) -> None:
    if seconds > MAX_SOUND_SECONDS:
        raise RequestError(f"{name} is longer than {MAX_SOUND_SECONDS} s", PARAM)


class Stream:
    """A wave that comes in pieces → the same at SAMPLE_HZ."""

    def __init__(self, sample_rate_hz: int) -> None:
        self.sample_rate_hz = sample_rate_hz
        same = sample_rate_hz == SAMPLE_HZ
        self._resampler: Any = None if same else extra("soxr").ResampleStream(sample_rate_hz, SAMPLE_HZ, 1)

    def push(self, wave: np.ndarray) -> np.ndarray:
        """Samples that follow from this piece float32 [n]."""
        return wave if self._resampler is None else self._resampler.resample_chunk(wave)

    def finish(self) -> np.ndarray:
        """Samples that were held back."""
        nothing = np.zeros(0, np.float32)
        return nothing if self._resampler is None else self._resampler.resample_chunk(nothing, last=True)


def extra(module: str) -> Any:
    """A library of the extra `qwen`. Raises ConfigError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"this model needs {module}: pip install 'legato-speech[qwen]'") from error
