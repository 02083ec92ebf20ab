"""The released `ckpt/` tree → one folder of safetensors that loads without pickle.

Tensors keep their names, so either tree is read by the same code. Vocos2D has no other form than TorchScript and is
copied as it is; everything else is JSON, YAML, text, ONNX and safetensors.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import save_file

from legato.errors import CheckpointError, ConfigError

from . import REPLACEMENTS_FILE, SAFE_FILE, SPEAKER_FILE, TOKENIZER_FOLDER, beside, find_tree
from .speaker import need_speaker_net
from .speakers import SPEAKERS_FILE
from .speech_tokenizer import read_speech_tokenizer
from .tokenizer import read_tokenizer
from .vocoder import load_hift
from .weights import load_dit, load_lm, read_released

COPIED = {
    "llm": ("config.json", "adapter_config.json", SPEAKERS_FILE, "*.safetensors", "*.safetensors.index.json"),
    "flow": ("config.yaml",),
    "speech_tokenizer": ("config.json", "preprocessor_config.json", "*.safetensors"),
    TOKENIZER_FOLDER: ("tokenizer.model", "tokenizer_config.json"),
    "vocos2d": ("generator_jit.ckpt",),
    "voices": ("*.safetensors",),
}
OPTIONAL = ("vocos2d", "voices")


def convert(source: Path, target: Path) -> Path:
    """Write the converted checkpoint to `target`, whole or not at all, and give it back.

    Raises ConfigError when `target` is taken, CheckpointError naming the file of `source` that is missing, damaged or
    does not fit.
    """
    target = target.resolve()
    if target == Path.cwd():
        raise ConfigError(f"{target} is the folder you are in; name a new one")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} is there already; choose another folder")
    tree = find_tree(source)
    _check(tree)
    unfinished = target.with_name(f".{target.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        _write(tree, unfinished)
        if target.is_dir():
            target.rmdir()
        unfinished.replace(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _check(tree: Path) -> None:
    """Read the nets as they will be read later."""
    load_lm(tree / "llm")
    load_dit(tree / "flow")
    load_hift(tree / "hift")
    read_speech_tokenizer(tree / "speech_tokenizer")
    read_tokenizer(tree / TOKENIZER_FOLDER)
    need_speaker_net(beside(tree, SPEAKER_FILE))


def _write(tree: Path, target: Path) -> None:
    for folder, patterns in COPIED.items():
        found = [path for pattern in patterns for path in sorted((tree / folder).glob(pattern))]
        if not found and folder not in OPTIONAL:
            raise CheckpointError(f"{tree / folder} holds none of {', '.join(patterns)}")
        for path in found:
            _copy(path, target / folder / path.name)
    for name in ("flow", "hift"):
        tensors, _ = read_released(tree / name, name)
        path = target / name / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({key: tensor.contiguous().clone() for key, tensor in tensors.items()}, path, {"format": "pt"})
    _copy(need_speaker_net(beside(tree, SPEAKER_FILE)), target / SPEAKER_FILE)
    for name in (SAFE_FILE, REPLACEMENTS_FILE):
        if (table := beside(tree, name)).is_file():
            _copy(table, target / name)
    (target / "config.json").write_text(json.dumps({"family": "glm_tts"}) + "\n", encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
