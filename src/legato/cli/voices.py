"""`legato voices`: who can speak."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from legato.errors import CheckpointError
from legato.families import glm_tts
from legato.families import load as load_model
from legato.families.glm_tts.frontend import glm_voice
from legato.families.glm_tts.voices import read_voice
from legato.protocols import LoadOptions
from legato.stored_voices import voice_files
from legato.types import Voice

from .options import DEFAULT_MODEL, JsonFlag, ModelOption, VoicesDirOption, locate_checkpoint


def voices(model: ModelOption = None, as_json: JsonFlag = False, folder: VoicesDirOption = None) -> None:
    """List the voices of a model.

    \b
    legato voices
    legato voices --json
    """
    loaded = load_model(model or DEFAULT_MODEL, LoadOptions(voices_dir=folder))
    rows: list[dict[str, Any]] = [
        {
            "name": voice.name,
            "description": voice.description,
            "languages": list(voice.languages),
            "default": voice.name == loaded.default_voice,
            "sample_rate_hz": loaded.rates.sample_hz,
        }
        for voice in loaded.voices.values()
    ]
    if loaded.family == "glm_tts":
        rows += _of_other_rates(folder or kept_voices(model or DEFAULT_MODEL), loaded.rates.sample_hz)
    if as_json:
        typer.echo(json.dumps({"model": loaded.name, "voices": rows}, indent=1, ensure_ascii=False))
        return
    table = Table("voice", "description", "languages", "rate", box=None, pad_edge=False)
    for row in rows:
        name = f"{row['name']} (default)" if row["default"] else str(row["name"])
        table.add_row(name, row["description"], ", ".join(row["languages"]), f"{row['sample_rate_hz']} Hz")
    Console(highlight=False).print(table)


def kept_voices(model: str) -> Path:
    """Where a GLM-TTS checkpoint keeps its voices."""
    return glm_tts.find_tree(locate_checkpoint(model)) / "voices"


def _of_other_rates(folder: Path, sample_hz: int) -> list[dict[str, Any]]:
    """Stored voices that the model, as it was loaded here, cannot speak with."""
    return [
        {
            "name": name,
            "description": voice.description,
            "languages": list(voice.languages),
            "default": False,
            "sample_rate_hz": glm_voice(voice).mel_sample_hz,
        }
        for name, voice in _readable(folder)
        if glm_voice(voice).mel_sample_hz != sample_hz
    ]


def _readable(folder: Path) -> Iterator[tuple[str, Voice]]:
    """The stored voices that are not damaged; loading the model has warned about the others."""
    for path in voice_files(folder):
        with suppress(CheckpointError):
            yield path.stem, read_voice(path)
