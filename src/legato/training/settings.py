"""A recipe's settings file (TOML): one table per trainer, every key a field of that trainer's settings."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from legato.errors import ConfigError

from .codec import CodecSettings
from .flow import FlowTraining
from .lm import LMSettings
from .vocoder import VocoderSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Recipe:
    """Settings of all trainers."""

    codec: CodecSettings = field(default_factory=CodecSettings)
    lm: LMSettings = field(default_factory=LMSettings)
    flow: FlowTraining = field(default_factory=FlowTraining)
    vocoder: VocoderSettings = field(default_factory=VocoderSettings)


def read_recipe(path: Path) -> Recipe:
    """Parse a settings file. Raises ConfigError naming the file and the key that is unknown."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    kinds: dict[str, type] = {
        "codec": CodecSettings, "lm": LMSettings, "flow": FlowTraining, "vocoder": VocoderSettings
    }  # fmt: skip
    if unknown := raw.keys() - kinds.keys():
        raise ConfigError(f"{path} names {', '.join(sorted(unknown))}; known: {', '.join(kinds)}")
    return Recipe(**{name: _settings(kinds[name], table, path) for name, table in raw.items()})


def _settings(kind: type[Settings], table: dict[str, Any], path: Path) -> Settings:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    if unknown := table.keys() - known:
        raise ConfigError(f"{path} sets {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in table.items()})
