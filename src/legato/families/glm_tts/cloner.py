"""Reference audio and what it says → a voice. Each of the three extractors hears the audio as in the release.

Codec tokens: all channels resampled to 16 kHz, then the first one. Speaker vector and mel: the mean of the channels,
resampled to 16 kHz and to the vocoder's rate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from legato.errors import RequestError
from legato.nn.mel import MelSpec, log_mel
from legato.nn.resample import resample
from legato.types import Voice

from .kaldi_fbank import SAMPLE_HZ as SPEAKER_HZ
from .prompt_audio import Samples, check, check_pace
from .speaker import SpeakerNet
from .speech_tokenizer import SpeechTokenizer
from .voices import GlmVoice

log = logging.getLogger("legato")

FRAME_HZ, MEL_BINS, MEL_HIGH_HZ, FFT_HOPS = 50, 80, 8000.0, 4


def prompt_mel_spec(sample_hz: int) -> MelSpec:
    """The mel that the flow was trained on: 50 Hz whatever the rate, windows of four hops."""
    hop = sample_hz // FRAME_HZ
    return MelSpec(sample_hz, FFT_HOPS * hop, hop, MEL_BINS, 0.0, MEL_HIGH_HZ)


class GlmCloner:
    """Makes voices; holds the nets, nothing of any voice.

    `tokenize` gives the prompt text's ids as the language model is to see them. The nets come by call, so that a model
    that never clones does not load them.
    """

    def __init__(
        self,
        tokenize: Callable[[str], tuple[int, ...]],
        speech_tokenizer: Callable[[], SpeechTokenizer],
        speaker: Callable[[], SpeakerNet],
        sample_hz: int,
    ) -> None:
        self._tokenize, self._speech_tokenizer, self._speaker = tokenize, speech_tokenizer, speaker
        self._mel = prompt_mel_spec(sample_hz)

    def clone(self, name: str, wave: np.ndarray, sample_rate_hz: int, text: str | None) -> Voice:
        """A voice like that of `wave` (float32 [channels, n] in [-1, 1]), which says `text`.

        Raises RequestError naming what was measured when the audio or the text cannot serve;
        CheckpointError when a net that is needed is not there.
        """
        if text is None or not text.strip():
            raise RequestError(
                "this model needs to know what the reference audio says, word for word: give prompt_text", "prompt_text"
            )
        samples: Samples = np.ascontiguousarray(wave, np.float32)
        found, warnings = check(samples, sample_rate_hz)
        check_pace(text, found.seconds)
        text_ids = self._tokenize(text)
        for warning in warnings:
            log.warning("voice %s: %s", name, warning)
        facts = replace(self._facts(torch.from_numpy(samples), sample_rate_hz, warnings), text=text, text_ids=text_ids)
        return Voice(name, f"cloned from {samples.shape[1] / sample_rate_hz:.1f} s of audio", ("zh", "en"), facts)

    @torch.inference_mode()
    def _facts(self, wave: Tensor, rate_hz: int, warnings: tuple[str, ...]) -> GlmVoice:
        """All but the text."""
        tokenizer = self._speech_tokenizer()
        device = tokenizer.codebook.weight.device
        spoken = resample(wave, rate_hz, tokenizer.config.mel.sample_hz)[0]
        mono = wave.mean(0)
        return GlmVoice(
            text="",
            text_ids=(),
            speech_ids=tokenizer.encode(spoken.to(device)),
            mel=log_mel(resample(mono, rate_hz, self._mel.sample_hz), self._mel).clone(),
            speaker=self._speaker().vector(resample(mono, rate_hz, SPEAKER_HZ)).clone(),
            mel_sample_hz=self._mel.sample_hz,
            warnings=warnings,
        )
