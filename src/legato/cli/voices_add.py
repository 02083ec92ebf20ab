"""`legato voices add` and `remove`: voices cloned from a recording, kept with a checkpoint. voices.py lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legato.audio_file import read_audio
from legato.errors import CheckpointError, RequestError, UnknownModel
from legato.families import EMBEDDED, is_hub_id, voice_maker
from legato.stored_voices import VoiceMaker, check_name, remove_voice, voice_files

from .options import DEFAULT_MODEL, JsonFlag, ModelOption, VoicesDirOption
from .terminal import note
from .voices import voices

commands = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@commands.callback()
def _list(
    context: typer.Context, model: ModelOption = None, as_json: JsonFlag = False, folder: VoicesDirOption = None
) -> None:
    """List the voices of a model; add and remove cloned ones.

    \b
    legato voices
    legato voices --json
    legato voices add anna anna.wav --text "What she says, word for word." --model ckpt
    """
    if context.invoked_subcommand is None:
        voices(model, as_json, folder)


@commands.command()
def add(
    name: Annotated[str, typer.Argument(help="Letters, digits, _ and -.")],
    audio: Annotated[Path, typer.Argument(help="A recording of 3 to 10 s.", metavar="FILE")],
    text: Annotated[
        str | None, typer.Option(help="What the recording says, word for word. GLM-TTS must know; piccolo need not.")
    ] = None,
    model: ModelOption = None,
    folder: VoicesDirOption = None,
    sample_rate: Annotated[
        int | None, typer.Option("--sample-rate", help="The rate it will be spoken at. [24000]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a voice of that name.")] = False,
) -> None:
    """Clone a voice from a recording and keep it under a name. Only the nets that this needs are loaded."""
    maker = _maker(model)
    kept = _kept(model, maker, folder)
    if not force and check_name(name) in {path.stem for path in voice_files(kept)}:
        raise RequestError(f"{kept} has a voice {name!r} already; --force replaces it", "voice")
    wave, rate_hz = read_audio(audio)
    voice = maker.make(name, wave, rate_hz, text, sample_rate)
    note(f"wrote {maker.keep(kept, voice)}: {voice.description}")
    if remark := maker.remark(voice, sample_rate):
        note(f"{name}: {remark}")


@commands.command()
def remove(
    name: Annotated[str, typer.Argument(help="The voice.")],
    model: ModelOption = None,
    folder: VoicesDirOption = None,
) -> None:
    """Delete a kept voice."""
    remove_voice(_kept(model, _maker(model), folder), name)
    note(f"removed {name}")


def _maker(model: str | None) -> VoiceMaker:
    try:
        return voice_maker(model or DEFAULT_MODEL)
    except UnknownModel:
        raise CheckpointError(f"there is no checkpoint folder at {model}; --model names another") from None


def _kept(model: str | None, maker: VoiceMaker, folder: Path | None) -> Path:
    """Where a model's voices are. Raises RequestError where nothing can be kept: the hub's cache, the package."""
    if folder is not None:
        return folder
    name = model or DEFAULT_MODEL
    if name in EMBEDDED:
        raise RequestError(f"{name} lies in the package: keep voices in a folder of your own with --voices-dir")
    if not Path(name).is_dir() and is_hub_id(name):
        raise RequestError(f"{name} lies in the hub's cache: keep voices in a folder of your own with --voices-dir")
    return maker.folder
