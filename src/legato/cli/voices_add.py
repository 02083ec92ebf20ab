"""`legato voices add` and `remove`: voices cloned from a recording, kept with a checkpoint. voices.py lists them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from legato.audio_file import read_audio
from legato.errors import RequestError
from legato.families import glm_tts, is_hub_id
from legato.families.glm_tts.cloner import GlmCloner
from legato.families.glm_tts.frontend import voice_ids
from legato.families.glm_tts.speaker import SpeakerNet
from legato.families.glm_tts.speech_tokenizer import read_speech_tokenizer
from legato.families.glm_tts.text_front import TextFront
from legato.families.glm_tts.tokenizer import read_tokenizer
from legato.families.glm_tts.voices import save_voice
from legato.stored_voices import check_name, remove_voice, voice_files

from .options import CheckpointOption, JsonFlag, ModelOption, VoicesDirOption, locate_checkpoint
from .terminal import note
from .voices import kept_voices, voices

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
    text: Annotated[str, typer.Option(help="What the recording says, word for word.")],
    model: CheckpointOption,
    folder: VoicesDirOption = None,
    sample_rate: Annotated[int, typer.Option("--sample-rate", help="The rate it will be spoken at.")] = 24000,
    force: Annotated[bool, typer.Option("--force", help="Replace a voice of that name.")] = False,
) -> None:
    """Clone a voice from a recording and keep it under a name. Only the nets that this needs are loaded."""
    if sample_rate not in (glm_tts.HIFT_HZ, glm_tts.VOCOS_HZ):
        raise RequestError(f"--sample-rate {sample_rate}: write {glm_tts.HIFT_HZ} or {glm_tts.VOCOS_HZ}")
    kept, tree = _kept(model, folder), _tree(model)
    if not force and check_name(name) in {path.stem for path in voice_files(kept)}:
        raise RequestError(f"{kept} has a voice {name!r} already; --force replaces it", "voice")
    wave, rate_hz = read_audio(audio)
    voice = _cloner(tree, sample_rate).clone(name, wave, rate_hz, text)
    note(f"wrote {save_voice(kept, voice)}: {voice.description}")
    if sample_rate != glm_tts.HIFT_HZ:
        note(f"{name}: {glm_tts.made_for(sample_rate)}")


@commands.command()
def remove(
    name: Annotated[str, typer.Argument(help="The voice.")],
    model: CheckpointOption,
    folder: VoicesDirOption = None,
) -> None:
    """Delete a kept voice."""
    remove_voice(_kept(model, folder), name)
    note(f"removed {name}")


def _kept(model: str, folder: Path | None) -> Path:
    """Where a model's voices are. Raises RequestError for the hub's cache, which is no place to keep anything."""
    if folder is None and not Path(model).is_dir() and is_hub_id(model):
        raise RequestError(f"{model} lies in the hub's cache: keep voices in a folder of your own with --voices-dir")
    return folder or kept_voices(model)


def _tree(model: str) -> Path:
    return glm_tts.find_tree(locate_checkpoint(model))


def _cloner(tree: Path, sample_hz: int) -> GlmCloner:
    tokenizer = read_tokenizer(tree / glm_tts.TOKENIZER_FOLDER)
    return GlmCloner(
        partial(voice_ids, tokenizer, TextFront()),
        partial(read_speech_tokenizer, tree / "speech_tokenizer"),
        partial(SpeakerNet, glm_tts.beside(tree, glm_tts.SPEAKER_FILE)),
        sample_hz,
    )
