"""Trained nets → a checkpoint folder that `legato.load` reads: float16 safetensors, config.json, named voices."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from legato.families.piccolo import mel_spec
from legato.families.piccolo.cloner import PiccoloCloner
from legato.families.piccolo.config import PHONEME_IDS
from legato.families.piccolo.flow import PiccoloFlow
from legato.families.piccolo.voices import save_voice
from legato.types import Voice

from .corpus import Corpus
from .lm import phoneme_table
from .stages import Workshop, read_tokenizer, trained

REFERENCE_FRAMES = (200, 500)
"""A built-in voice's reference is the first utterance of its speaker that is this long (4 to 10 s)."""


def export(shop: Workshop, out: Path, voices: Mapping[str, str]) -> int:
    """Write the checkpoint; `voices` gives each voice's name its speaker in the corpus. The size of the files, bytes.

    Raises CheckpointError naming the stage that was not trained, ValueError naming a speaker who is not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(shop.work / "config.json", out / "config.json")
    for net in ("lm", "flow", "vocoder"):
        _save(out / f"{net}.safetensors", trained(shop.work / net, net))
    tokenizer = read_tokenizer(shop)
    _save(out / "codec.safetensors", tokenizer.state_dict())
    corpus, config = shop.corpus, shop.config
    _save(out / "phone_table.safetensors", {"ptab": phoneme_table(corpus, PHONEME_IDS, config.codes)})
    flow = PiccoloFlow(config)
    flow.load_state_dict(trained(shop.work / "flow", "flow"))
    cloner = PiccoloCloner(tokenizer, flow.eval(), config, mel_spec(config))
    for name, speaker in voices.items():
        mel, language = _reference(corpus, speaker)
        save_voice(out / "voices", Voice(name, f"the teacher's {speaker}", (language,), cloner.facts(mel)))
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file({name: t.detach().half().contiguous() for name, t in tensors.items()}, path)


def _reference(corpus: Corpus, speaker: str) -> tuple[Tensor, str]:
    """Log-mel [F, bins] of one utterance of a speaker, and its language."""
    low, high = REFERENCE_FRAMES
    for index in corpus.speakers.get(speaker, ()):
        spoken = corpus.utterances[index]
        if low <= spoken.frames <= high:
            return torch.from_numpy(corpus.mel(index)), spoken.language
    raise ValueError(
        f"no utterance of {low} to {high} frames by {speaker}; known: {', '.join(sorted(corpus.speakers))}"
    )
