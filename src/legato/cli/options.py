"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="A TOML file; `legato config init` writes one.", metavar="FILE")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", help="An embedded model, or a checkpoint folder. [piccolo]", metavar="NAME|FOLDER"),
]
VoiceOption = Annotated[
    str | None, typer.Option("--voice", "-v", help="One of `legato voices`. [the model's own]", metavar="NAME")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead.")]

DEFAULT_MODEL = "piccolo"
