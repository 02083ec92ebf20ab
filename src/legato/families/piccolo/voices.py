"""A voice of piccolo: what it conditions on, and how that is kept in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from legato.stored_voices import Form, Tensors, Words, read, save, voice_files
from legato.types import Voice

from .codec import FRAMES_PER_TOKEN


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


def _written(facts: PiccoloVoice) -> tuple[Tensors, Words]:
    tensors = {
        "codes": torch.tensor(facts.codes, dtype=torch.int32),
        "mel": facts.mel.detach().half().cpu().contiguous(),
        "mel_codes": torch.tensor(facts.mel_codes, dtype=torch.int32),
        "speaker": facts.speaker.detach().float().cpu().contiguous(),
    }
    return tensors, {}


def _read(tensors: Tensors, _: Words) -> PiccoloVoice:
    mel, speaker = tensors["mel"].float(), tensors["speaker"].float()
    codes, mel_codes = (tuple(int(i) for i in tensors[name].tolist()) for name in ("codes", "mel_codes"))
    if mel.dim() != 2 or speaker.dim() != 1 or len(mel) != FRAMES_PER_TOKEN * len(mel_codes):
        raise ValueError(f"mel {list(mel.shape)} with {len(mel_codes)} codes, and speaker {list(speaker.shape)}")
    if min((*codes, *mel_codes), default=0) < 0 or not bool(
        torch.isfinite(mel).all() and torch.isfinite(speaker).all()
    ):
        raise ValueError("codes from 0, mel and speaker finite")
    return PiccoloVoice(codes, mel, mel_codes, speaker)


FORM = Form("legato-piccolo-voice-2", _written, _read)


def save_voice(folder: Path, voice: Voice) -> Path:
    """Write a voice into the folder (made if need be), whole or not at all; give its file. Raises RequestError."""
    return save(folder, voice, FORM)


def read_voices(folder: Path) -> dict[str, Voice]:
    """All stored voices by name. Raises CheckpointError naming the first file that is damaged."""
    return {path.stem: read(path, FORM) for path in voice_files(folder)}
