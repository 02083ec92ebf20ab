"""Voices kept in a folder, one safetensors file each: names, files, and what every family's voices have in common.

What a voice conditions on is the family's; its `Form` says how that becomes tensors and words, and back. Nothing in a
file is ever executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from legato.errors import CheckpointError, RequestError, UnknownVoice
from legato.types import Voice

SUFFIX = ".safetensors"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Tensors = dict[str, Tensor]
Words = dict[str, str]


@dataclass(frozen=True)
class Form:
    """How one family's voices are written. `name` stands in every file.

    `write` gives the facts of a voice as tensors and words; `read` makes them again, and raises KeyError, ValueError or
    TypeError for what is missing or cannot be.
    """

    name: str
    write: Callable[[Any], tuple[Tensors, Words]]
    read: Callable[[Tensors, Words], Any]


class VoiceMaker(Protocol):
    """Makes voices for one checkpoint from recordings, and keeps them; `folder` is where it keeps its own.

    A family that can has one in its module `voice_maker`, made from the checkpoint's folder.
    """

    folder: Path

    def make(self, name: str, wave: np.ndarray, rate_hz: int, text: str | None, speak_hz: int | None) -> Voice:
        """A voice like that of `wave` (float32 [channels, n]), to be spoken at `speak_hz` (None: the model's own).

        Raises RequestError for a recording, a text or a rate that cannot serve.
        """

    def keep(self, folder: Path, voice: Voice) -> Path:
        """Write a voice into a folder; its file."""

    def remark(self, voice: Voice, speak_hz: int | None) -> str:
        """What its maker should know about a voice; "" mostly."""


def check_name(name: str) -> str:
    """The name, if it may become a file's name. Raises RequestError: a voice is never a path."""
    if not _NAME.fullmatch(name):
        raise RequestError(f"{name!r} cannot name a voice: use 1 to 64 of the letters a-z, A-Z, 0-9, _ and -", "voice")
    return name


def save(folder: Path, voice: Voice, form: Form) -> Path:
    """Write a voice into the folder (made if need be), whole or not at all; give its file. Raises RequestError."""
    path = folder / f"{check_name(voice.name)}{SUFFIX}"
    folder.mkdir(parents=True, exist_ok=True)
    tensors, words = form.write(voice.facts)
    about = {"format": form.name, "description": voice.description, "languages": json.dumps(voice.languages)}
    unfinished = path.with_suffix(".part")
    save_file(tensors, unfinished, metadata=about | words)
    unfinished.replace(path)
    return path


def read(path: Path, form: Form) -> Voice:
    """A stored voice. Raises CheckpointError naming the file when it is damaged or of another kind."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or not a voice ({error})") from error
    if about.get("format") != form.name:
        raise CheckpointError(f"{path} is not a voice of this model: format {about.get('format')!r}, not {form.name!r}")
    try:
        languages = tuple(json.loads(about["languages"]))
        return Voice(check_name(path.stem), about["description"], languages, form.read(tensors, about))
    except (KeyError, ValueError, TypeError, RequestError) as error:
        raise CheckpointError(f"{path} is damaged: it lacks or misstates {error}") from error


def voice_files(folder: Path) -> Iterator[Path]:
    """The files of the stored voices, by name."""
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
        if _NAME.fullmatch(path.stem):
            yield path


def file_of(folder: Path, name: str) -> Path:
    """The file of the stored voice of that name. Raises RequestError or UnknownVoice."""
    path = folder / f"{check_name(name)}{SUFFIX}"
    if not path.is_file():
        raise UnknownVoice(name, tuple(path.stem for path in voice_files(folder)))
    return path


def remove_voice(folder: Path, name: str) -> None:
    """Delete a stored voice, damaged or not. Raises RequestError or UnknownVoice."""
    file_of(folder, name).unlink()
