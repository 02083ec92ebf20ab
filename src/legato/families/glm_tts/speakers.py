"""Speakers of a fine-tuned (SFT) language model: a name → the ids that stand for it at the start of every prompt.

The release keeps `configs/spk_prompt_dict.yaml` beside every checkpoint, pretrained ones too, which do not know these
speakers. So the file counts where it lies with the weights it belongs to, in `llm/`, or where it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from legato.errors import CheckpointError
from legato.stored_voices import check_name
from legato.types import Voice

from .config import read_plain_yaml
from .voices import GlmVoice

SPEAKERS_FILE = "spk_prompt_dict.yaml"


def read_speakers(path: Path, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Ids by speaker. Raises CheckpointError naming the file and what is wrong with it."""
    table = read_plain_yaml(path)
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{path} is not a table of speakers")
    speakers = {}
    for name, ids in table.items():
        if not isinstance(ids, list) or not ids or not all(type(i) is int and 0 <= i < vocabulary for i in ids):
            raise CheckpointError(f"{path}: the ids of {name!r} must be whole numbers below {vocabulary}")
        speakers[check_name(str(name))] = tuple(ids)
    return speakers


def silent_voice(mel_bins: int, speaker_size: int, mel_sample_hz: int) -> GlmVoice:
    """A voice that the flow is told nothing of: the release publishes no recordings of its speakers."""
    return GlmVoice("", (), (), torch.zeros(0, mel_bins), torch.zeros(speaker_size), mel_sample_hz)


def with_speakers(
    voices: Mapping[str, Voice], speakers: Mapping[str, tuple[int, ...]], nobody: GlmVoice
) -> dict[str, Voice]:
    """The speakers as voices, then the other stored ones.

    A stored voice of a speaker's name is the recording that this speaker's prompts go on from and whose timbre the flow
    follows; a speaker without one has the prompts of the release's SFT training, and of `nobody` the rest.
    """
    found = {}
    for name, ids in speakers.items():
        unknown = Voice(name, "a speaker of the fine-tuned model", ("zh", "en"), nobody)
        voice = voices.get(name, unknown)
        found[name] = replace(voice, facts=replace(voice.facts, speaker_ids=ids))
    return found | {name: voice for name, voice in voices.items() if name not in found}
