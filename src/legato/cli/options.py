"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legato.config import Config
from legato.errors import CheckpointError, UnknownModel
from legato.families import locate

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="A TOML file; `legato config init` writes one.", metavar="FILE")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="An embedded model, a checkpoint folder or a Hugging Face id. [piccolo]",
        metavar="NAME|FOLDER|ID",
    ),
]
CheckpointOption = Annotated[
    str,
    typer.Option("--model", "-m", help="The GLM-TTS checkpoint folder, or a Hugging Face id.", metavar="FOLDER|ID"),
]
VoicesDirOption = Annotated[
    Path | None,
    typer.Option("--voices-dir", help="Where cloned voices are kept. [voices/ in the checkpoint]", metavar="DIR"),
]
VoiceOption = Annotated[
    str | None, typer.Option("--voice", "-v", help="One of `legato voices`. [the model's own]", metavar="NAME")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead.")]

DEFAULT_MODEL = "piccolo"


def with_voices(config: Config, folder: Path | None) -> Config:
    """The config with the voices of a folder, if one was named on the command line."""
    if folder is None:
        return config
    return config.model_copy(update={"engine": config.engine.model_copy(update={"voices_dir": folder})})


def locate_checkpoint(model: str) -> Path:
    """The folder of a checkpoint. Raises CheckpointError saying what the option takes when there is none."""
    try:
        return locate(model)
    except UnknownModel:
        raise CheckpointError(f"there is no checkpoint folder at {model}; --model names another") from None
