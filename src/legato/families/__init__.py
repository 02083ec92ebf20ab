"""Model families. Each folder exports `load(checkpoint, options)`; adding one adds a line to FAMILIES."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from legato.errors import CheckpointError, UnknownModel
from legato.protocols import LoadOptions, SpeechModel

FAMILIES = {"piccolo": "legato.families.piccolo", "glm_tts": "legato.families.glm_tts"}
EMBEDDED = ("piccolo",)
"""Families whose weights are in the package, loaded by name."""

RELEASED = {"glm_tts": ("llm", "flow")}
"""Folders by which a checkpoint as released is known: it has no config.json of its own. They may be in `ckpt/`."""


def load(model: str | Path, options: LoadOptions) -> SpeechModel:
    """Load a model by the name of an embedded one, or from a checkpoint folder whose config.json names its family.

    Raises UnknownModel when there is neither, CheckpointError when the folder cannot be used.
    """
    if model in EMBEDDED:
        module = import_module(FAMILIES[str(model)])
        return _loader(str(model))(module.WEIGHTS, options)
    folder = Path(model)
    if not folder.is_dir():
        raise UnknownModel(str(model), EMBEDDED)
    return _loader(_family_of(folder))(folder, options)


def _family_of(folder: Path) -> str:
    config = folder / "config.json"
    if not config.is_file() and (released := _released(folder)):
        return released
    try:
        family = json.loads(config.read_text(encoding="utf-8")).get("family")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{config} cannot be read: {error}") from error
    if family not in FAMILIES:
        raise CheckpointError(f"{config} names the family {family!r}; known: {', '.join(FAMILIES)}")
    return str(family)


def _released(folder: Path) -> str | None:
    for tree in (folder, folder / "ckpt"):
        for family, parts in RELEASED.items():
            if all((tree / part).is_dir() for part in parts):
                return family
    return None


def _loader(family: str) -> Callable[[Path, LoadOptions], SpeechModel]:
    loader: Callable[[Path, LoadOptions], SpeechModel] = import_module(FAMILIES[family]).load
    return loader
