"""A conversation on the terminal: turns are asked, text is printed as it comes, speech goes where it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import typer

from legato.engine import SpeechEngine
from legato.playback import Player
from legato.streams import ChatStream
from legato.types import ChatRequest, Message, Modality, Part, TextDelta

from .live_sound import Recording, Stretch
from .outputs import FileOutput, Output
from .terminal import note


@dataclass(frozen=True)
class Manner:
    """How replies are made, and where they go. `text_aside`: text goes to stderr, because stdout carries sound."""

    modalities: tuple[Modality, ...]
    voice: str | None
    seed: int
    max_tokens: int | None
    play: bool
    text_aside: bool


class Line:
    """A reply's text, printed as it comes: on stdout, or `aside` on stderr."""

    def __init__(self, aside: bool) -> None:
        self.text = ""
        self._aside, self._ended = aside, False

    def add(self, piece: TextDelta) -> None:
        """Print what is new; after the last piece the line ends, whatever sound may follow."""
        self.text += piece.text
        typer.echo(piece.text, nl=False, err=self._aside)
        if piece.finish_reason is not None:
            self.end()
        if piece.finish_reason == "length":
            note("(cut off: this is the longest a reply may be)")

    def end(self) -> None:
        """End the line, if there is one and it has not ended."""
        if self.text and not self._ended:
            typer.echo(err=self._aside)
        self._ended = True


class Talk:
    """What was said so far. `file` gets the speech of all replies, one after the other, and ends with `close`.

    `answered` is whether there was any reply, if only a part of one.
    """

    def __init__(self, engine: SpeechEngine, manner: Manner, system: str | None, file: FileOutput | None) -> None:
        self._engine, self._manner, self._file = engine, manner, file
        self._messages = [] if system is None else [Message("system", (Part("text", system),))]
        self.answered = False

    def ask(
        self, parts: tuple[Part, ...], sound: Iterable[Stretch] | None = None, until: Callable[[], None] | None = None
    ) -> ChatStream:
        """One turn; returns when the reply was delivered, and heard where it is played.

        With `sound` the turn goes on with what is said while this runs, until it ends. `until` is called meanwhile.
        Raises SpeechError; then, and when it is interrupted, the conversation goes on without what was not answered.
        """
        line = Line(self._manner.text_aside)
        with self._submit(parts, sound is not None) as stream:
            recording = None if sound is None else Recording(stream, sound)
            if until is not None:
                until()
            try:
                self._deliver(stream, line)
            finally:
                if line.text:
                    heard = () if recording is None else recording.parts()
                    self._remember((*parts, *heard), line.text)
        return stream

    def _submit(self, parts: tuple[Part, ...], live: bool) -> ChatStream:
        manner = self._manner
        return self._engine.submit_chat(
            ChatRequest(
                (*self._messages, Message("user", parts)),
                modalities=manner.modalities,
                voice=manner.voice,
                seed=manner.seed,
                max_tokens=manner.max_tokens,
                more_audio=live,
            )
        )

    def _deliver(self, stream: ChatStream, line: Line) -> None:
        """Print and speak. Whatever breaks it off, the line and the loudspeaker end in good order."""
        player = Player(self._engine.model.rates.sample_hz) if self._manner.play else None
        outputs: list[Output] = [output for output in (self._file, player) if output is not None]
        try:
            for piece in stream:
                self.answered = True
                if isinstance(piece, TextDelta):
                    line.add(piece)
                    continue
                for output in outputs:
                    output.push(piece.pcm)
            if player is not None:
                player.finish()
        except BaseException:
            if player is not None:
                player.stop()
            raise
        finally:
            line.end()

    def _remember(self, asked: tuple[Part, ...], reply: str) -> None:
        self._messages += [Message("user", asked), Message("assistant", (Part("text", reply),))]

    def close(self, broken_off: bool) -> None:
        """End the file in good order. What is broken off has its own error already."""
        if self._file is None or not self.answered:
            return
        if not broken_off:
            self._file.finish()
            return
        with suppress(OSError):
            self._file.stop()
