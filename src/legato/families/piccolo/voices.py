"""A voice of piccolo: what it conditions on, and its file. The file is safetensors; nothing in it is ever executed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from legato.errors import CheckpointError, RequestError
from legato.types import Voice

from .codec import FRAMES_PER_TOKEN

FORMAT = "legato-piccolo-voice-2"
SUFFIX = ".safetensors"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, eq=False)
class PiccoloVoice:
    """The facts of a piccolo voice (`Voice.facts`).

    `codes` are the codec tokens of a few seconds of its reference, for the language model. `mel` float32 [F, bins] is
    the log-mel that the flow takes for its past, with its codes `mel_codes` [F / 2]; `speaker` float32 [n] the vector
    that tells the flow who speaks.
    """

    codes: tuple[int, ...]
    mel: Tensor
    mel_codes: tuple[int, ...]
    speaker: Tensor


def save_voice(folder: Path, voice: Voice) -> Path:
    """Write a voice into the folder (made if need be), whole or not at all; give its file.

    Raises RequestError when its name cannot be a file's: a voice is never a path.
    """
    if not _NAME.fullmatch(voice.name):
        raise RequestError(
            f"{voice.name!r} cannot name a voice: use 1 to 64 of the letters a-z, A-Z, 0-9, _ and -", "voice"
        )
    facts: PiccoloVoice = voice.facts
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{voice.name}{SUFFIX}"
    tensors = {
        "codes": torch.tensor(facts.codes, dtype=torch.int32),
        "mel": facts.mel.detach().half().cpu().contiguous(),
        "mel_codes": torch.tensor(facts.mel_codes, dtype=torch.int32),
        "speaker": facts.speaker.detach().float().cpu().contiguous(),
    }
    about = {"format": FORMAT, "description": voice.description, "languages": json.dumps(voice.languages)}
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
        return Voice(path.stem, about["description"], tuple(json.loads(about["languages"])), _facts(tensors))
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: it lacks or misstates {error}") from error


def read_voices(folder: Path) -> dict[str, Voice]:
    """All stored voices by name. Raises CheckpointError naming the first file that is damaged."""
    files = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    return {path.stem: read_voice(path) for path in files}


def _facts(tensors: dict[str, Tensor]) -> PiccoloVoice:
    mel, speaker = tensors["mel"].float(), tensors["speaker"].float()
    codes, mel_codes = (tuple(int(i) for i in tensors[name].tolist()) for name in ("codes", "mel_codes"))
    if mel.dim() != 2 or speaker.dim() != 1 or len(mel) != FRAMES_PER_TOKEN * len(mel_codes):
        raise ValueError(f"mel {list(mel.shape)} with {len(mel_codes)} codes, and speaker {list(speaker.shape)}")
    if min((*codes, *mel_codes), default=0) < 0 or not bool(
        torch.isfinite(mel).all() and torch.isfinite(speaker).all()
    ):
        raise ValueError("codes from 0, mel and speaker finite")
    return PiccoloVoice(codes, mel, mel_codes, speaker)
