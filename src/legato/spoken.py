"""What callers of the engine choose, and what they get when they wait for all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typing_extensions import TypedDict

from legato.report import StreamReport
from legato.types import Modality, Pronunciation, Sampling


class SpeakOptions(TypedDict, total=False):
    """What a caller may choose. `prompt_audio` and `prompt_text` clone a voice, where the model can; see
    SpeechRequest for the others."""

    voice: str | None
    seed: int
    use_cache: bool
    normalize: bool
    speed: float
    sampling: Sampling | None
    pronunciation: Pronunciation | None
    prompt_audio: str | Path | None
    prompt_text: str | None


class ChatOptions(TypedDict, total=False):
    """What a caller may choose about a reply: see ChatRequest."""

    modalities: Iterable[Modality]
    voice: str | None
    seed: int
    max_tokens: int | None
    sampling: Sampling | None
    speech_sampling: Sampling | None
    audio_in_video: bool
    more_audio: bool
    use_cache: bool


@dataclass(frozen=True)
class Audio:
    """A text, spoken: `samples` float32 [n] in [-1, 1], and the figures of how it came."""

    samples: np.ndarray
    sample_rate_hz: int
    stats: StreamReport

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.sample_rate_hz

    def save(self, path: str | Path) -> None:
        """Write a sound file; the ending chooses the format (wav, flac, ogg, mp3)."""
        import soundfile

        soundfile.write(str(path), np.clip(self.samples, -1, 1), self.sample_rate_hz)
