"""Voices of a piccolo checkpoint (format 2), made from recordings and kept; neither LM nor vocoder is loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from legato.errors import RequestError, UnsupportedFeature
from legato.types import Voice

from . import read_cloner
from .config import read_config
from .voices import save_voice


class VoiceMaker:
    """See `legato.stored_voices.VoiceMaker`. What a recording says need not be known."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self.folder = checkpoint / "voices"
        self._hz = read_config(checkpoint / "config.json").rates.sample_hz

    def make(self, name: str, wave: np.ndarray, rate_hz: int, text: str | None, speak_hz: int | None) -> Voice:
        if speak_hz not in (None, self._hz):
            raise RequestError(f"--sample-rate {speak_hz}: this model speaks at {self._hz}")
        cloner = read_cloner(self._checkpoint)
        if cloner is None:
            raise UnsupportedFeature("the first voice of piccolo cannot clone: use a checkpoint of format 2")
        return cloner.clone(name, wave, rate_hz, text)

    def keep(self, folder: Path, voice: Voice) -> Path:
        return save_voice(folder, voice)

    def remark(self, voice: Voice, speak_hz: int | None) -> str:
        return ""
