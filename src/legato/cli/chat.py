"""`legato chat`: talk with a model that hears, sees, writes and speaks. One question, or a conversation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

import legato
from legato.config import load_config
from legato.engine import SpeechEngine
from legato.errors import Overloaded, RequestError, SpeechError
from legato.streams import ChatStream
from legato.types import Part, PartKind

from .live_sound import Microphone, check_microphone, stdin_sound
from .options import DEFAULT_MODEL, ConfigOption, VoiceOption
from .outputs import STDOUT, FileOutput, check_outputs, output_format
from .talk import Manner, Talk
from .terminal import console, note, say_error

DEFAULT_OUTPUT = "reply.wav"
EXIT = "/exit"


@dataclass(frozen=True)
class Question:
    """What the first turn holds. Nothing at all: the user is asked for every turn. `stdin` and `mic` are live sound."""

    media: tuple[Part, ...]
    text: str | None
    stdin: bool
    mic: bool

    @property
    def given(self) -> bool:
        return bool(self.parts) or self.stdin

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.media if self.text is None else (*self.media, Part("text", self.text))


@dataclass(frozen=True)
class Target:
    """Where speech goes: `output` is a file, or - for stdout. Without any choice it is a file of our naming."""

    output: str | None
    form: str | None
    play: bool
    text_only: bool
    stats: Path | None

    @property
    def by_default(self) -> bool:
        return self.output is None and not self.play and not self.text_only

    @property
    def written(self) -> str | None:
        return DEFAULT_OUTPUT if self.by_default else self.output

    def check(self) -> None:
        """Refuse what cannot work before anything is loaded."""
        check_outputs(self.written, self.form, self.play, self.stats)

    def open(self, sample_rate_hz: int) -> FileOutput | None:
        if self.written is None:
            return None
        return FileOutput(self.written, output_format(self.written, self.form), sample_rate_hz, whole=False)


def chat(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What to say or ask.")] = None,
    audio: Annotated[
        list[str] | None, typer.Option(help="A recording, or - for a wav stream on stdin.", metavar="FILE|-")
    ] = None,
    image: Annotated[list[Path] | None, typer.Option(help="A picture.", metavar="FILE")] = None,
    video: Annotated[list[Path] | None, typer.Option(help="A film.", metavar="FILE")] = None,
    mic: Annotated[bool, typer.Option("--mic", help="Speak into the microphone; Enter ends what you say.")] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A sound file, or - for stdout.", metavar="FILE|-")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", "-f", help="wav, pcm, mp3, opus, aac or flac. [by the extension]", metavar="NAME"),
    ] = None,
    play: Annotated[bool, typer.Option("--play", "-p", help="Play replies on the loudspeaker as they come.")] = False,
    text_only: Annotated[bool, typer.Option("--text-only", help="Make no speech.")] = False,
    system: Annotated[str | None, typer.Option(help="What the model is told beforehand.", metavar="TEXT")] = None,
    voice: VoiceOption = None,
    model: Annotated[
        str | None,
        typer.Option(
            *("--model", "-m"), help="One that answers: a checkpoint folder or a Hugging Face id.", metavar="FOLDER|ID"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same reply.", min=0, metavar="N")] = 0,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of a reply's text.", min=1, metavar="N")] = None,
    config: ConfigOption = None,
    stats: Annotated[Path | None, typer.Option(help="Write the figures of the reply as JSON.", metavar="FILE")] = None,
) -> None:
    """Talk with a model that answers, such as Qwen2.5-Omni.

    Without TEXT and files it is a conversation: type, and press Enter; with --mic an empty line starts to record.
    /exit ends it, Ctrl-C stops a reply. Text is printed as it comes; without --output and --play the speech goes to
    reply.wav.

    \b
    legato chat --model ./Qwen2.5-Omni-7B --play
    legato chat "What is this?" --image cat.png --model ./Qwen2.5-Omni-7B -o answer.wav
    legato chat --audio question.wav --text-only --model ./Qwen2.5-Omni-7B
    arecord -d 5 -f S16_LE -r 16000 | legato chat --audio - --play --model ./Qwen2.5-Omni-7B
    """
    target = Target(output, form, play, text_only, stats)
    question = Question(_media(audio or [], image or [], video or []), text, STDOUT in (audio or []), mic)
    manner = Manner(("text",) if text_only else ("text", "audio"), voice, seed, max_tokens, play, output == STDOUT)
    _refuse_contradictions(question, target)
    target.check()
    settings, name = load_config(config), model or DEFAULT_MODEL
    if model is None:
        raise _cannot_chat(name)
    with console.status(f"loading {name}"):
        engine = legato.load(name, settings)
    with engine:
        if engine.model.writer is None:
            raise _cannot_chat(name)
        if not engine.model.voices:
            manner, target = _without_voice(name, manner, target)
        with _talking(engine, manner, system, target) as talk:
            _ask_once(talk, question, target) if question.given else _converse(talk, mic)


def _media(audio: list[str], image: list[Path], video: list[Path]) -> tuple[Part, ...]:
    """The files as parts of a message. Raises SpeechError for one that is not there."""
    named: list[tuple[PartKind, list[Path]]] = [
        ("image", image),
        ("video", video),
        ("audio", [Path(name) for name in audio if name != STDOUT]),
    ]
    for path in (path for _, paths in named for path in paths):
        if not path.is_file():
            raise SpeechError(f"there is no file at {path}")
    return tuple(Part(kind, path) for kind, paths in named for path in paths)


def _refuse_contradictions(question: Question, target: Target) -> None:
    """Options that are right alone and wrong together."""
    if target.text_only and (target.output is not None or target.play):
        raise typer.BadParameter("there is no speech to write or play with --text-only", param_hint="--text-only")
    if question.stdin and question.mic:
        raise typer.BadParameter("listens to stdin or to the microphone, not to both", param_hint="--mic")
    if target.stats is not None and not question.given:
        raise typer.BadParameter("is about one reply: give TEXT or a file", param_hint="--stats")
    if question.mic:
        check_microphone()


def _cannot_chat(model: str) -> typer.BadParameter:
    return typer.BadParameter(
        f"{model} reads texts aloud and holds no conversations; name a model that does, "
        "such as a folder with Qwen2.5-Omni's checkpoint",
        param_hint="--model",
    )


def _without_voice(model: str, manner: Manner, target: Target) -> tuple[Manner, Target]:
    """Text only, unless speech was asked for. Raises SpeechError."""
    if not (target.by_default or target.text_only):
        raise SpeechError(f"{model} was loaded without its voice; leave out --output and --play")
    return replace(manner, modalities=("text",)), replace(target, text_only=True)


@contextmanager
def _talking(engine: SpeechEngine, manner: Manner, system: str | None, target: Target) -> Iterator[Talk]:
    """A conversation whose file of speech ends in good order."""
    talk = Talk(engine, manner, system, target.open(engine.model.rates.sample_hz))
    try:
        yield talk
    except BaseException:
        talk.close(broken_off=True)
        raise
    talk.close(broken_off=False)
    if target.written not in (None, STDOUT) and talk.answered:
        note(f"wrote {target.written}" + (" (--output names another file, --play plays)" if target.by_default else ""))


# --- one question ---


def _ask_once(talk: Talk, question: Question, target: Target) -> None:
    """Ask, and tell the figures."""
    if question.stdin:
        stream = talk.ask(question.parts, stdin_sound())
    elif question.mic:
        stream = _ask_aloud(talk, question.parts)
    else:
        stream = talk.ask(question.parts)
    report = stream.report
    figures = report.as_dict() | {"first_text_s": report.first_text_s}
    if target.stats is not None:
        target.stats.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    first = "no text" if report.first_text_s is None else f"first text {report.first_text_s * 1000:.0f} ms"
    note(first if target.text_only else f"{first} · {report.line()}")


# --- a conversation ---


def _converse(talk: Talk, mic: bool) -> None:
    """Turns of the user until there are no more. What cannot be answered ends its turn only, and so does Ctrl-C."""
    if sys.stdin.isatty():
        spoken = "; an empty line starts to record" if mic else ""
        note(f"{EXIT} ends the conversation, Ctrl-C stops a reply{spoken}")
    while (line := _read_line()) not in (None, EXIT):
        try:
            if line:
                talk.ask((Part("text", line),))
            elif mic:
                _ask_aloud(talk, ())
        except KeyboardInterrupt:
            note("stopped")
        except (RequestError, Overloaded) as error:
            say_error(error)


def _ask_aloud(talk: Talk, parts: tuple[Part, ...]) -> ChatStream:
    """A turn that is spoken, until Enter is pressed."""
    microphone = Microphone()

    def until_enter() -> None:
        try:
            note("listening; Enter ends what you say")
            _read_line()
        finally:
            microphone.stop()

    return talk.ask(parts, microphone, until_enter)


def _read_line() -> str | None:
    """The next line on stdin; None at its end."""
    if sys.stdin.isatty():
        console.print("> ", end="")
    line = sys.stdin.readline()
    return line.strip() if line else None
