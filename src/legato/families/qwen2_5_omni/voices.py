"""Voices of a Qwen2.5-Omni checkpoint: a vector, a reference mel and an id each, from spk_dict.pt or a safetensors
twin of it (tensors named NAME.cond, NAME.ref_mel, NAME.bos_token)."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from legato.errors import CheckpointError
from legato.nn.weights import read_tensors
from legato.types import Voice

from .config import need_file
from .parts import FlowConfig

RELEASED_FILE, SAFE_FILE = "spk_dict.pt", "spk_dict.safetensors"

DESCRIPTIONS = {"Chelsie": "a warm, bright female voice", "Ethan": "a bright, upbeat male voice"}

LANGUAGES = ("zh", "en")


@dataclass(frozen=True, eq=False)
class QwenVoice:
    """What the model knows of a speaker; the three belong together.

    `vector` [speaker width] goes into every frame, `mel` [T, bins] (natural log) through the flow's own encoder, and
    `bos_id`, of the writer's vocabulary, tells the talker who speaks.
    """

    vector: Tensor
    mel: Tensor
    bos_id: int


def read_voices(folder: Path, config: FlowConfig, vocabulary: int, least_frames: int) -> dict[str, Voice]:
    """All voices by name, in the file's order. Raises CheckpointError naming the file, the voice and what is wrong."""
    safe = folder / SAFE_FILE
    path = safe if safe.is_file() else need_file(folder / RELEASED_FILE)
    raw = _grouped(read_tensors(safe)) if path == safe else _released(path)
    if not raw:
        raise CheckpointError(f"{path} holds no voices")
    voices = {}
    for name, facts in raw.items():
        try:
            voice = _voice(facts, config, vocabulary, least_frames)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path}: the voice {name!r} cannot be used: {error}") from error
        voices[name] = Voice(name, DESCRIPTIONS.get(name, ""), LANGUAGES, voice)
    return voices


def _released(path: Path) -> Mapping[str, Any]:
    try:
        raw = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        reason = f"{type(error).__name__}: {str(error)[:80]}"
        raise CheckpointError(f"{path} is damaged, or holds more than tensors ({reason})") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds a {type(raw).__name__}, not voices by name")
    return {str(name): facts for name, facts in raw.items()}


def _grouped(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    voices: dict[str, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        name, _, fact = key.rpartition(".")
        voices.setdefault(name, {})[fact] = tensor
    return voices


def _voice(facts: Any, config: FlowConfig, vocabulary: int, least_frames: int) -> QwenVoice:
    vector, mel = facts["cond"].float().flatten(), facts["ref_mel"].float()
    mel = mel[0] if mel.dim() == 3 else mel
    bos_id = int(facts["bos_token"])
    if vector.shape != (config.speaker_width,):
        raise ValueError(f"cond has {len(vector)} numbers, the flow takes {config.speaker_width}")
    if mel.dim() != 2 or mel.shape[1] != config.mel_bins or len(mel) < least_frames:
        raise ValueError(
            f"ref_mel is {list(mel.shape)}, the flow takes [frames, {config.mel_bins}] of at least {least_frames}"
        )
    if not bool(torch.isfinite(mel).all() and torch.isfinite(vector).all()):
        raise ValueError("it holds values that are not finite")
    if not 0 <= bos_id < vocabulary:
        raise ValueError(f"bos_token {bos_id} is not an id of the vocabulary of {vocabulary}")
    return QwenVoice(vector, mel, bos_id)
