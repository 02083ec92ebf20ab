"""`legato convert`: a checkpoint as it was released → one folder that loads without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legato.families import locate
from legato.families.glm_tts.convert import convert

from .terminal import note

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@commands.callback()
def _convert() -> None:
    """Rewrite a released checkpoint so that it loads without pickle."""


@commands.command("glm-tts")
def glm_tts(
    source: Annotated[
        str, typer.Argument(help="The released ckpt/ folder, or its id on the Hugging Face Hub.", metavar="DIR|ID")
    ],
    out: Annotated[Path, typer.Argument(help="A new folder.", metavar="OUT")],
) -> None:
    """Write GLM-TTS's released tree as one folder of safetensors, JSON, text and ONNX.

    The nets are read and checked first; OUT is written whole or not at all. It speaks the same samples.

    \b
    legato convert glm-tts ckpt glm-tts
    legato say "你好。" --model glm-tts --voice anna
    """
    note(f"wrote {convert(locate(source), out)}; legato say --model {out} speaks with it")
