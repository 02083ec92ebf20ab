"""Voices of a GLM-TTS checkpoint, made from recordings and kept; only the nets that this needs are loaded."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from legato.errors import RequestError
from legato.types import Voice

from . import HIFT_HZ, SPEAKER_FILE, TOKENIZER_FOLDER, VOCOS_HZ, beside, find_tree, made_for
from .cloner import GlmCloner
from .frontend import voice_ids
from .speaker import SpeakerNet
from .speech_tokenizer import read_speech_tokenizer
from .text_front import TextFront
from .tokenizer import read_tokenizer
from .voices import save_voice


class VoiceMaker:
    """See `legato.stored_voices.VoiceMaker`."""

    def __init__(self, checkpoint: Path) -> None:
        self._tree = find_tree(checkpoint)
        self.folder = self._tree / "voices"

    def make(self, name: str, wave: np.ndarray, rate_hz: int, text: str | None, speak_hz: int | None) -> Voice:
        speak_hz = speak_hz or HIFT_HZ
        if speak_hz not in (HIFT_HZ, VOCOS_HZ):
            raise RequestError(f"--sample-rate {speak_hz}: write {HIFT_HZ} or {VOCOS_HZ}")
        if text is None:
            raise RequestError("GLM-TTS must know what the recording says: give its words with --text", "prompt_text")
        tokenizer = read_tokenizer(self._tree / TOKENIZER_FOLDER)
        cloner = GlmCloner(
            partial(voice_ids, tokenizer, TextFront()),
            partial(read_speech_tokenizer, self._tree / "speech_tokenizer"),
            partial(SpeakerNet, beside(self._tree, SPEAKER_FILE)),
            speak_hz,
        )
        return cloner.clone(name, wave, rate_hz, text)

    def keep(self, folder: Path, voice: Voice) -> Path:
        return save_voice(folder, voice)

    def remark(self, voice: Voice, speak_hz: int | None) -> str:
        return made_for(speak_hz) if speak_hz not in (None, HIFT_HZ) else ""
