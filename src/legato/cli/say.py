"""`legato say`: text to a file, to stdout, to the loudspeaker, while it is still being made."""

from __future__ import annotations

import codecs
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import legato
from legato.config import Config, load_config
from legato.errors import ConfigError, RequestError
from legato.playback import Heard, Player, hear
from legato.remote import RemoteSpeech
from legato.streams import SpeechStream
from legato.tempo import check_speed
from legato.types import SpeechRequest

from .options import DEFAULT_MODEL, ConfigOption, ModelOption, VoiceOption, VoicesDirOption, with_voices
from .outputs import STDOUT, FileOutput, Output, check_outputs, output_format
from .terminal import console, note

DEFAULT_OUTPUT = "speech.wav"
LONG_TEXT_CHARS = 300
STDIN_PIECE_BYTES = 4096

NO_TEXT_LIMIT_CHARS = 2**31
"""`engine.max_text_chars` guards a server against its clients; here the user is the only one."""


@dataclass(frozen=True)
class Wish:
    """What is to be spoken, and how. `text` None stands for stdin."""

    text: str | None
    voice: str | None
    prompt_audio: Path | None
    prompt_text: str | None
    model: str | None
    seed: int | None
    speed: float
    use_cache: bool
    normalize: bool
    phonemes: bool


@dataclass(frozen=True)
class Target:
    """Where it goes: `output` is a file, or - for stdout. Not to `stream` is to wait until all is there."""

    output: str | None
    form: str | None
    play: bool
    stream: bool
    stats: Path | None

    @property
    def file(self) -> bool:
        return self.output not in (None, STDOUT)

    def check(self) -> None:
        """Refuse what cannot work before anything is loaded."""
        check_outputs(self.output, self.form, self.play, self.stats)

    def open(self, sample_rate_hz: int) -> list[Output]:
        outputs: list[Output] = []
        if self.output is not None:
            form = output_format(self.output, self.form)
            outputs.append(FileOutput(self.output, form, sample_rate_hz, whole=not self.stream))
        if self.play:
            outputs.append(Player(sample_rate_hz))
        return outputs


def say(
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="What to say; - reads stdin as it comes.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A sound file, or - for stdout.", metavar="FILE|-")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", "-f", help="wav, pcm, mp3, opus, aac or flac. [by the extension]", metavar="NAME"),
    ] = None,
    play: Annotated[bool, typer.Option("--play", "-p", help="Play on the loudspeaker as it comes.")] = False,
    voice: VoiceOption = None,
    prompt_audio: Annotated[
        Path | None, typer.Option(help="Speak like this recording of 3 to 10 s, instead of --voice.", metavar="FILE")
    ] = None,
    prompt_text: Annotated[
        str | None, typer.Option(help="What that recording says, for a model that must know.", metavar="TEXT")
    ] = None,
    voices_dir: VoicesDirOption = None,
    model: ModelOption = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same samples. [0]", min=0, metavar="N")
    ] = None,
    speed: Annotated[float, typer.Option(help="Tempo from 0.25 to 4; the pitch stays.", metavar="X")] = 1.0,
    stream: Annotated[bool, typer.Option("--stream/--no-stream", help="Write as it comes, or all at the end.")] = True,
    use_cache: Annotated[bool, typer.Option("--use-cache/--no-use-cache", help="Keep keys and values.")] = True,
    normalize: Annotated[
        bool, typer.Option("--normalize/--no-normalize", help="Spell out numbers and symbols.")
    ] = True,
    phonemes: Annotated[
        bool, typer.Option("--phonemes", help="Read characters that could be misread as phonemes, where a model can.")
    ] = False,
    config: ConfigOption = None,
    stats: Annotated[Path | None, typer.Option(help="Write the figures of the stream as JSON.", metavar="FILE")] = None,
    remote: Annotated[bool, typer.Option("--remote", help="Speak through the [api] endpoint of the config.")] = False,
) -> None:
    """Speak: into a file, to stdout, or aloud.

    Without --output and --play the speech goes to speech.wav.

    \b
    legato say "Good morning." -o morning.mp3
    legato say - --play < story.txt
    llm "Tell me a story" | legato say - --play
    legato say "Hello" -o - | ffplay -nodisp -autoexit -
    legato say "It is me." --prompt-audio me.wav
    legato say "Hello" --remote --config config.toml --voice alloy
    """
    wish = Wish(
        text=None if text == STDOUT else text,
        voice=voice,
        prompt_audio=prompt_audio,
        prompt_text=prompt_text,
        model=model,
        seed=seed,
        speed=speed,
        use_cache=use_cache,
        normalize=normalize,
        phonemes=phonemes,
    )
    by_default = output is None and not play
    target = Target(DEFAULT_OUTPUT if by_default else output, form, play, stream, stats)
    target.check()
    check_speed(speed)
    if remote and (voices_dir or prompt_audio):
        raise ConfigError("--voices-dir and --prompt-audio are choices of the local engine; leave --remote out")
    if prompt_audio is not None and voice is not None:
        raise RequestError("--voice and --prompt-audio both say whose voice it is: give one of them", "voice")
    heard = _speak(wish, target, with_voices(load_config(config), voices_dir), remote)
    if target.file:
        note(f"wrote {target.output}" + (" (--output names another file, --play plays)" if by_default else ""))
    note(heard.report.line())


def _speak(wish: Wish, target: Target, settings: Config, remote: bool) -> Heard:
    """Ask for the speech and send it where it is wanted."""
    with ExitStack() as stack:
        heard = _ask_remote(wish, settings, stack) if remote else _ask_engine(wish, settings, stack)
        outputs = target.open(heard.report.sample_rate_hz)
        total_chars = None if remote else len(wish.text or "")
        try:
            _deliver(heard, outputs, target.stream, total_chars)
        except KeyboardInterrupt:
            kept = f", kept in {target.output}" if target.file and target.stream and heard.report.chunks else ""
            note(f"cancelled after {heard.report.audio_s:.2f} s of audio{kept}")
            raise
        finally:
            if target.stats is not None:
                figures = json.dumps(heard.report.as_dict(), indent=1)
                target.stats.write_text(figures + "\n", encoding="utf-8")
    return heard


# --- asking ---


def _ask_engine(wish: Wish, settings: Config, stack: ExitStack) -> Heard:
    """Load the model and submit; text on stdin goes in as it comes."""
    if "max_text_chars" not in settings.engine.model_fields_set:
        settings = settings.model_copy(
            update={"engine": settings.engine.model_copy(update={"max_text_chars": NO_TEXT_LIMIT_CHARS})}
        )
    model = wish.model or DEFAULT_MODEL
    with console.status(f"loading {model}"):
        engine = stack.enter_context(legato.load(model, settings))
    cloned = engine.clone(wish.prompt_audio, wish.prompt_text) if wish.prompt_audio else None
    request = SpeechRequest(
        text=wish.text or "",
        voice=cloned or wish.voice,
        seed=wish.seed or 0,
        use_cache=wish.use_cache,
        normalize=wish.normalize,
        more_text=wish.text is None,
        pronunciation="phonemes" if wish.phonemes else None,
    )
    stream = stack.enter_context(engine.submit(request))
    if wish.text is None:
        threading.Thread(target=_feed, args=(stream,), name="legato-stdin", daemon=True).start()
    return hear(stream, wish.speed)


def _ask_remote(wish: Wish, settings: Config, stack: ExitStack) -> Heard:
    """Ask the configured endpoint. It takes whole texts only, so stdin is read to its end first."""
    if settings.api is None:
        raise ConfigError("--remote needs a config file whose [api] section names base_url; see `legato config init`")
    if not wish.use_cache:
        raise ConfigError("--no-use-cache is a choice of the local engine; a remote endpoint has no such field")
    if wish.phonemes:
        raise ConfigError("--phonemes is a choice of the local engine; a remote endpoint has no such field")
    client = stack.enter_context(RemoteSpeech(settings.api, wish.model))
    text = "".join(_stdin_pieces()) if wish.text is None else wish.text
    return client.stream(
        text, wish.voice, speed=wish.speed, seed=wish.seed, normalize=None if wish.normalize else False
    )


def _feed(stream: SpeechStream) -> None:
    """Push stdin into a stream until either ends."""
    try:
        for piece in _stdin_pieces():
            if stream.ended:
                return
            stream.push_text(piece)
    except RequestError as error:
        stream.fail_source(error)
        return
    stream.end_text()


def _stdin_pieces() -> Iterator[str]:
    """The text on stdin, as soon as each part is there. Raises RequestError when it is not UTF-8."""
    # Not sys.stdin.read1: a thread that waits inside Python's buffered reader crashes the interpreter when it exits.
    descriptor = sys.stdin.fileno()
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        while data := os.read(descriptor, STDIN_PIECE_BYTES):
            if piece := decoder.decode(data):
                yield piece
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise RequestError(f"stdin is not UTF-8 text ({error.reason})", "input") from None


# --- delivering ---


def _deliver(heard: Heard, outputs: list[Output], stream: bool, total_chars: int | None) -> None:
    """Send the speech to every output. Whatever breaks it off, the outputs end in good order."""
    try:
        with heard:
            for pcm in _spoken(heard, total_chars) if stream else _at_once(_spoken(heard, total_chars)):
                for output in outputs:
                    output.push(pcm)
        for output in outputs:
            output.finish()
    except BaseException:
        for output in outputs:
            with suppress(OSError):  # what is broken off already has its error
                output.stop()
        raise


def _spoken(heard: Heard, total_chars: int | None) -> Iterator[np.ndarray]:
    """The samples as they come, with a progress bar on a terminal when the text is long."""
    shown = console.is_terminal and (total_chars is None or total_chars > LONG_TEXT_CHARS)
    audio = TextColumn("{task.fields[audio_s]:.0f} s of audio")
    columns = (TextColumn("speaking"), BarColumn(), audio, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=total_chars or None, audio_s=0.0)
        for chunk in heard:
            spoken = heard.report.usage.utterances[: chunk.utterance + 1]
            progress.update(task, completed=sum(map(len, spoken)), audio_s=heard.report.audio_s)
            yield chunk.pcm


def _at_once(pieces: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    yield np.concatenate([np.zeros(0, np.float32), *pieces])
