"""Reference audio → a voice of piccolo. What it says need not be known."""

from __future__ import annotations

import logging

import numpy as np
import torch
from torch import Tensor

from legato.errors import RequestError
from legato.nn.mel import MelSpec, log_mel
from legato.nn.resample import resample
from legato.types import Voice

from .codec import FRAMES_PER_TOKEN, SpeechTokenizer
from .config import PiccoloConfig
from .flow import PiccoloFlow
from .voices import PiccoloVoice

log = logging.getLogger("legato")

SHORTEST_S, SHORT_S, LONGEST_S = 1.5, 3.0, 12.0
"""Less is refused, less is warned of, and more is not listened to."""

QUIETEST = 0.005
"""Root mean square of speech below which a reference is refused."""

LOUDEST = 0.7
"""References are brought to this peak, as the teachers' speech is."""

GATE = 0.02
"""Edges quieter than this share of the peak are cut off."""

GATE_FRAME_S = 0.02


class PiccoloCloner:
    """Makes voices; holds the nets, nothing of any voice."""

    def __init__(self, tokenizer: SpeechTokenizer, flow: PiccoloFlow, config: PiccoloConfig, mel: MelSpec) -> None:
        self._tokenizer, self._flow, self._config, self._mel = tokenizer, flow, config, mel

    @torch.inference_mode()
    def clone(self, name: str, wave: np.ndarray, sample_rate_hz: int, text: str | None) -> Voice:
        """A voice like that of `wave` (float32 [channels, n] in [-1, 1]); `text` is not needed.

        Raises RequestError naming what was measured when the audio cannot serve.
        """
        mono = resample(torch.from_numpy(np.ascontiguousarray(wave, np.float32)).mean(0), sample_rate_hz, self._hz)
        speech = self._speech(mono)
        seconds = len(speech) / self._hz
        if seconds < SHORTEST_S:
            raise RequestError(
                f"the reference holds {seconds:.1f} s of speech; at least {SHORTEST_S} s are needed", "prompt_audio"
            )
        if seconds < SHORT_S:
            log.warning("voice %s: %.1f s of speech make a poor clone; 3 to 10 s are good", name, seconds)
        facts = self.facts(log_mel(speech, self._mel))
        return Voice(name, f"cloned from {seconds:.1f} s of speech", tuple(self._config.languages), facts)

    @torch.inference_mode()
    def facts(self, mel: Tensor) -> PiccoloVoice:
        """What a voice conditions on, from the log-mel [F, bins] of its reference."""
        device = self._tokenizer.outputs.weight.device
        mel = mel[: len(mel) // FRAMES_PER_TOKEN * FRAMES_PER_TOKEN].to(device)
        codes = tuple(int(i) for i in self._tokenizer.encode(mel))
        past_frames = self._flow.facts.look_back_blocks * self._config.dit.block_frames
        if len(mel) < past_frames:
            raise RequestError(
                f"the reference has {len(mel)} mel frames; at least {past_frames} are needed", "prompt_audio"
            )
        assert self._flow.speaker is not None
        return PiccoloVoice(
            codes=codes[-self._config.prompt_codes :],
            mel=mel[-past_frames:].clone(),
            mel_codes=codes[-past_frames // FRAMES_PER_TOKEN :],
            speaker=self._flow.speaker(mel[None])[0].clone(),
        )

    @property
    def _hz(self) -> int:
        return self._mel.sample_hz

    def _speech(self, mono: Tensor) -> Tensor:
        """At most LONGEST_S without the quiet edges, at the teachers' peak. Raises RequestError when too quiet."""
        frame = int(self._hz * GATE_FRAME_S)
        peaks = mono[: len(mono) // frame * frame].view(-1, frame).abs().amax(1)
        if not len(peaks) or not bool(torch.isfinite(mono).all()) or float(mono.square().mean().sqrt()) < QUIETEST:
            raise RequestError("the reference is silent, or nearly: at least -46 dB are needed", "prompt_audio")
        loud = (peaks > GATE * peaks.max()).nonzero().flatten()
        first, last = int(loud[0]), int(loud[-1]) + 1
        speech = mono[first * frame : last * frame][: int(LONGEST_S * self._hz)]
        return speech * (LOUDEST / float(speech.abs().max()))
