"""A cloned voice: what it conditions on, and how that is kept in a file."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from legato.errors import CheckpointError
from legato.stored_voices import Form, Tensors, Words, file_of, read, save, voice_files
from legato.types import Voice

log = logging.getLogger("legato")


@dataclass(frozen=True)
class GlmVoice:
    """The facts of a GLM-TTS voice (`Voice.facts`).

    `text_ids` are the tokens of what the reference audio says, `speech_ids` [n] its codec tokens (from 0, 25 Hz), `mel`
    float32 [F, 80] its log-mel (50 Hz, of audio at `mel_sample_hz`), `speaker` float32 [192] its CAM++ vector (not
    normalised). `speaker_ids` name the speaker of a fine-tuned model. `warnings` say what was measured that may make a
    poor clone.
    """

    text: str
    text_ids: tuple[int, ...]
    speech_ids: tuple[int, ...]
    mel: Tensor
    speaker: Tensor
    mel_sample_hz: int
    warnings: tuple[str, ...] = ()
    speaker_ids: tuple[int, ...] = ()


def _written(facts: GlmVoice) -> tuple[Tensors, Words]:
    tensors = {
        "text_ids": torch.tensor(facts.text_ids, dtype=torch.int32),
        "speech_ids": torch.tensor(facts.speech_ids, dtype=torch.int32),
        "speaker_ids": torch.tensor(facts.speaker_ids, dtype=torch.int32),
        "mel": facts.mel.detach().float().cpu().contiguous(),
        "speaker": facts.speaker.detach().float().cpu().contiguous(),
    }
    words = {"text": facts.text, "mel_sample_hz": str(facts.mel_sample_hz), "warnings": json.dumps(facts.warnings)}
    return tensors, words


def _read(tensors: Tensors, about: Words) -> GlmVoice:
    mel, speaker = tensors["mel"], tensors["speaker"]
    if mel.dim() != 2 or speaker.dim() != 1 or not bool(torch.isfinite(mel).all() and torch.isfinite(speaker).all()):
        raise ValueError(f"mel {list(mel.shape)} and speaker {list(speaker.shape)} (a matrix and a vector, finite)")
    return GlmVoice(
        text=about["text"],
        text_ids=_ids(tensors["text_ids"]),
        speech_ids=_ids(tensors["speech_ids"]),
        mel=mel.float(),
        speaker=speaker.float(),
        mel_sample_hz=int(about["mel_sample_hz"]),
        warnings=tuple(json.loads(about["warnings"])),
        speaker_ids=_ids(tensors["speaker_ids"]),
    )


def _ids(tensor: Tensor) -> tuple[int, ...]:
    if tensor.dim() != 1 or tensor.is_floating_point() or bool((tensor < 0).any()):
        raise ValueError("ids (a vector of whole numbers from 0)")
    return tuple(int(i) for i in tensor.tolist())


FORM = Form("legato-glm-tts-voice-1", _written, _read)


def save_voice(folder: Path, voice: Voice) -> Path:
    """Write a voice into the folder (made if need be), whole or not at all; give its file. Raises RequestError."""
    return save(folder, voice, FORM)


def read_voice(path: Path) -> Voice:
    """A stored voice. Raises CheckpointError naming the file when it is damaged or of another kind."""
    return read(path, FORM)


def read_voices(folder: Path) -> dict[str, Voice]:
    """All stored voices by name; a file that is damaged is left out, with a warning that names it."""
    voices = {}
    for path in voice_files(folder):
        try:
            voices[path.stem] = read_voice(path)
        except CheckpointError as error:
            log.warning("a stored voice is left out: %s. `legato voices remove %s` deletes it", error, path.stem)
    return voices


def find_voice(folder: Path, name: str) -> Voice:
    """The stored voice of that name. Raises RequestError, UnknownVoice or CheckpointError."""
    return read_voice(file_of(folder, name))
