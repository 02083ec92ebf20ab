"""A cloned voice: what it conditions on, and its file. The file is safetensors; nothing in it is ever executed."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from legato.errors import CheckpointError, RequestError, UnknownVoice
from legato.types import Voice

log = logging.getLogger("legato")

FORMAT = "legato-glm-tts-voice-1"
SUFFIX = ".safetensors"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


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


def check_name(name: str) -> str:
    """The name, if it may become a file's name. Raises RequestError: a voice is never a path."""
    if not _NAME.fullmatch(name):
        raise RequestError(f"{name!r} cannot name a voice: use 1 to 64 of the letters a-z, A-Z, 0-9, _ and -", "voice")
    return name


def save_voice(folder: Path, voice: Voice) -> Path:
    """Write a voice into the folder (made if need be), whole or not at all; give its file."""
    facts: GlmVoice = voice.facts
    path = folder / f"{check_name(voice.name)}{SUFFIX}"
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        "text_ids": torch.tensor(facts.text_ids, dtype=torch.int32),
        "speech_ids": torch.tensor(facts.speech_ids, dtype=torch.int32),
        "speaker_ids": torch.tensor(facts.speaker_ids, dtype=torch.int32),
        "mel": facts.mel.detach().float().cpu().contiguous(),
        "speaker": facts.speaker.detach().float().cpu().contiguous(),
    }
    about = {
        "format": FORMAT,
        "text": facts.text,
        "mel_sample_hz": str(facts.mel_sample_hz),
        "description": voice.description,
        "languages": json.dumps(voice.languages),
        "warnings": json.dumps(facts.warnings),
    }
    unfinished = path.with_suffix(".part")
    save_file(tensors, unfinished, metadata=about)
    unfinished.replace(path)
    return path


def read_voice(path: Path) -> Voice:
    """A stored voice. Raises CheckpointError naming the file when it is damaged or of another kind."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or not a voice ({error})") from error
    if about.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a voice of this model: format {about.get('format')!r}, not {FORMAT!r}")
    try:
        facts = _facts(tensors, about)
        languages = tuple(json.loads(about["languages"]))
        return Voice(check_name(path.stem), about["description"], languages, facts)
    except (KeyError, ValueError, TypeError, RequestError) as error:
        raise CheckpointError(f"{path} is damaged: it lacks or misstates {error}") from error


def _facts(tensors: dict[str, Tensor], about: dict[str, str]) -> GlmVoice:
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


def voice_files(folder: Path) -> Iterator[Path]:
    """The files of the stored voices, by name."""
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
        if _NAME.fullmatch(path.stem):
            yield path


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
    return read_voice(_file_of(folder, name))


def _file_of(folder: Path, name: str) -> Path:
    path = folder / f"{check_name(name)}{SUFFIX}"
    if not path.is_file():
        raise UnknownVoice(name, tuple(path.stem for path in voice_files(folder)))
    return path


def remove_voice(folder: Path, name: str) -> None:
    """Delete a stored voice, damaged or not. Raises RequestError or UnknownVoice."""
    _file_of(folder, name).unlink()
