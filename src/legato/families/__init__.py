"""Model families. Each folder exports `load(checkpoint, options)`; adding one adds a line to FAMILIES."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from legato.errors import CheckpointError, UnknownModel, UnsupportedFeature
from legato.protocols import LoadOptions, SpeechModel
from legato.stored_voices import VoiceMaker

from .hub import fetch
from .hub import is_hub_id as is_hub_id

FAMILIES = {
    "piccolo": "legato.families.piccolo",
    "glm_tts": "legato.families.glm_tts",
    "qwen2_5_omni": "legato.families.qwen2_5_omni",
}
EMBEDDED = ("piccolo",)
"""Families whose weights are in the package, loaded by name."""

RELEASED = {"glm_tts": ("llm", "flow", "hift", "vq32k-phoneme-tokenizer")}
"""Folders by which a checkpoint as released is known: it has no config.json of its own. They may be in `ckpt/`.

One is enough: the family says which of its own is missing, and how to fetch it.
"""

MODEL_TYPES = {"qwen2_5_omni": "qwen2_5_omni"}
"""Families of checkpoints as released whose config.json names them as `model_type`."""

HUB_FILES = (
    "config.json",
    *("llm/*.json", "llm/*.safetensors", "flow/config.yaml", "flow/flow.pt", "flow/flow.safetensors"),
    *("hift/hift.pt", "hift/hift.safetensors", "vocos2d/generator_jit.ckpt"),
    *("speech_tokenizer/*.json", "speech_tokenizer/*.safetensors"),
    *("vq32k-phoneme-tokenizer/tokenizer.model", "vq32k-phoneme-tokenizer/tokenizer_config.json"),
    *("frontend/campplus.onnx", "configs/*.json", "configs/*.jsonl", "configs/*.yaml", "voices/*.safetensors"),
    *("model*.safetensors", "model.safetensors.index.json", "spk_dict.pt", "tokenizer.json"),
    "preprocessor_config.json",
)
"""Of a model on the hub, what its family reads; nothing else is downloaded, code least of all."""


def load(model: str | Path, options: LoadOptions) -> SpeechModel:
    """Load a model by the name of an embedded one, from a checkpoint folder or by its id on the Hugging Face Hub.

    A converted folder's config.json names its family. Raises UnknownModel when there is none of these, CheckpointError
    when the checkpoint cannot be had or used.
    """
    if model in EMBEDDED:
        module = import_module(FAMILIES[str(model)])
        return _loader(str(model))(module.WEIGHTS, options)
    folder = locate(model)
    return _loader(family_of(folder))(folder, options)


def voice_maker(model: str | Path) -> VoiceMaker:
    """What makes and keeps voices for a model. Raises UnknownModel and CheckpointError as `load` does, and
    UnsupportedFeature for a family whose voices are its own."""
    embedded = model in EMBEDDED
    folder = import_module(FAMILIES[str(model)]).WEIGHTS if embedded else locate(model)
    family = str(model) if embedded else family_of(folder)
    name = f"{FAMILIES[family]}.voice_maker"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UnsupportedFeature(f"{family} speaks with its own voices: none can be added", "voice") from None
    maker: VoiceMaker = module.VoiceMaker(folder)
    return maker


def locate(model: str | Path) -> Path:
    """The folder of a checkpoint: the one given, or else the one that the hub's cache has under that id.

    Raises UnknownModel for what can be neither, CheckpointError as `fetch` does.
    """
    folder = Path(model)
    if folder.is_dir():
        return folder
    if isinstance(model, str) and is_hub_id(model):
        return fetch(model, HUB_FILES)
    raise UnknownModel(str(model), EMBEDDED)


def family_of(folder: Path) -> str:
    """Which family a checkpoint folder is of. Raises CheckpointError when that cannot be told."""
    config = folder / "config.json"
    if not config.is_file() and (released := _released(folder)):
        return released
    try:
        raw = json.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} holds no checkpoint: neither config.json nor a released model's folders"
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{config} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{config} should hold one JSON object")
    family = raw.get("family") or MODEL_TYPES.get(str(raw.get("model_type")))
    if not isinstance(family, str) or family not in FAMILIES:
        named = raw.get("family") or raw.get("model_type")
        raise CheckpointError(f"{config} names the family {named!r}; known: {', '.join(FAMILIES)}")
    return family


def _released(folder: Path) -> str | None:
    for tree in (folder, folder / "ckpt"):
        for family, parts in RELEASED.items():
            if any((tree / part).is_dir() for part in parts):
                return family
    return None


def _loader(family: str) -> Callable[[Path, LoadOptions], SpeechModel]:
    loader: Callable[[Path, LoadOptions], SpeechModel] = import_module(FAMILIES[family]).load
    return loader
