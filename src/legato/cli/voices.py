"""`legato voices`: who can speak."""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.table import Table

from legato.families import load as load_model
from legato.protocols import LoadOptions

from .options import DEFAULT_MODEL, JsonFlag, ModelOption, VoicesDirOption


def voices(model: ModelOption = None, as_json: JsonFlag = False, folder: VoicesDirOption = None) -> None:
    """List the voices of a model.

    \b
    legato voices
    legato voices --json
    """
    loaded = load_model(model or DEFAULT_MODEL, LoadOptions(voices_dir=folder))
    rows = [
        {
            "name": voice.name,
            "description": voice.description,
            "languages": list(voice.languages),
            "default": voice.name == loaded.default_voice,
        }
        for voice in loaded.voices.values()
    ]
    if as_json:
        typer.echo(json.dumps({"model": loaded.name, "voices": rows}, indent=1, ensure_ascii=False))
        return
    table = Table("voice", "description", "languages", box=None, pad_edge=False)
    for row in rows:
        name = f"{row['name']} (default)" if row["default"] else str(row["name"])
        table.add_row(name, str(row["description"]), ", ".join(loaded.voices[str(row["name"])].languages))
    Console(highlight=False).print(table)
