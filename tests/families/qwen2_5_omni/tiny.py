"""A Qwen2.5-Omni checkpoint folder with random weights, in the released layout of files, keys and settings.

Weights are scaled by fan-in, so that a wrong port shows, and the mel and the wave stay off their clamps.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from .layout import shapes
from .settings import IDS, MEL_BINS, MIDDLE, TINY, Ids, Sizes, config

__all__ = ["IDS", "MIDDLE", "TINY", "Ids", "Sizes", "build", "tensors", "tokenizer"]

REFERENCE_FRAMES = 61


def random_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A tensor of about unit gain: matrices by fan-in, gains near 1, biases small."""
    noise = torch.randn(shape, generator=generator)
    if name.endswith(("alpha", "beta")):
        return noise * 0.3
    if len(shape) >= 2:
        fan_in = shape[-1] if "embed_tokens" in name or "codec_embed" in name else math.prod(shape[1:])
        small = 0.02 if name.endswith("conv_post.weight") else 1.0
        return noise * small / math.sqrt(fan_in)
    if name.endswith("bias"):
        return noise * 0.1 - (4.0 if name.endswith("proj_out.bias") else 0.0)
    return 1.0 + noise * 0.1


def tensors(sizes: Sizes, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: random_tensor(name, shape, generator) for name, shape in shapes(sizes)}


# --- files ---

SPECIAL = {
    "<|im_start|>": IDS.start, "<|im_end|>": IDS.end, "<|endoftext|>": IDS.pad, "<|AUDIO|>": IDS.audio,
    "<|audio_bos|>": IDS.audio_start, "<|audio_eos|>": IDS.audio_end, "<|IMAGE|>": IDS.image, "<|VIDEO|>": IDS.video,
    "<|vision_bos|>": IDS.vision_start, "<|vision_eos|>": IDS.vision_end, "<|spare_310|>": IDS.text_pad,
    "<|spare_311|>": IDS.text_start, "<|spare_312|>": IDS.text_end, "<|spare_313|>": IDS.chelsie,
    "<|spare_314|>": IDS.ethan, "<|vision_pad|>": IDS.vision_pad,
}  # fmt: skip
PIECES = (
    *("th", "he", "in", "er", "an", "on", "re", "nd", "ou", "en", "at", "ed", "is", "it", "or", "es", "ar", "te", "st"),
    *("ng", "al", "to", "nt", "ha", "as", "ll", "ea", "ti", "we", "om", "us"),
)
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer() -> Tokenizer:
    """Byte-level pairs, as the released one, with some thirty pairs."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: id for id, letter in enumerate(letters)}
    vocabulary |= {piece: len(letters) + index for index, piece in enumerate(PIECES)}
    out = Tokenizer(models.BPE(vocab=vocabulary, merges=[(piece[0], piece[1]) for piece in PIECES]))
    out.normalizer = normalizers.NFC()
    out.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    out.decoder = decoders.ByteLevel()
    spare = [f"<|spare_{id}|>" for id in range(len(vocabulary), IDS.start)]
    named = [name for name, _ in sorted(SPECIAL.items(), key=lambda pair: pair[1])]
    out.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in (*spare, *named)])
    assert all(out.token_to_id(name) == id for name, id in SPECIAL.items())
    return out


def voices(sizes: Sizes, seed: int) -> dict[str, dict[str, Any]]:
    """spk_dict.pt"""
    generator = torch.Generator().manual_seed(seed + 1)
    return {
        name: {
            "cond": torch.randn(1, sizes.speaker_width, generator=generator),
            "ref_mel": torch.randn(1, REFERENCE_FRAMES, MEL_BINS, generator=generator) * 2 - 4,
            "bos_token": token,
        }
        for name, token in (("Chelsie", IDS.chelsie), ("Ethan", IDS.ethan))
    }


def write_shards(folder: Path, known: dict[str, Tensor]) -> None:
    """One file for each of thinker, talker and token2wav, and the index that names them."""
    parts = ("thinker.", "talker.", "token2wav.")
    files = {part: f"model-{number:05d}-of-{len(parts):05d}.safetensors" for number, part in enumerate(parts, 1)}
    for part, file in files.items():
        save_file({n: t for n, t in known.items() if n.startswith(part)}, folder / file, metadata={"format": "pt"})
    where = {name: next(file for part, file in files.items() if name.startswith(part)) for name in known}
    size = sum(t.nbytes for t in known.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def build(folder: Path, sizes: Sizes = TINY, *, seed: int = 0, newer: bool = False) -> Path:
    """Write the whole checkpoint into a folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(sizes, newer=newer), indent=1), encoding="utf-8")
    generation = {"bos_token_id": IDS.start, "eos_token_id": [IDS.end], "pad_token_id": IDS.pad}
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    write_shards(folder, tensors(sizes, seed))
    torch.save(voices(sizes, seed), folder / "spk_dict.pt")
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder
