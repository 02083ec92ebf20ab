"""SpeechEngine: the public face. One thread runs the loop of EngineCore; callers hold streams.

Blocking, threaded and asyncio callers all read the same SpeechStream, so there is one way of driving the engine.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from typing_extensions import Unpack

from legato.audio_file import read_audio
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.errors import EngineError, Overloaded, RequestError, SpeechError, UnsupportedFeature
from legato.messages import Conversing, read_messages
from legato.protocols import SpeechModel
from legato.report import StreamReport
from legato.spoken import Audio, ChatOptions, SpeakOptions
from legato.streams import ChatStream, SpeechStream, Stream, feeding, in_thread
from legato.tempo import Retimer, check_speed
from legato.types import AudioChunk, ChatRequest, SpeechRequest, TextDelta, Voice
from legato.worker import Worker

log = logging.getLogger("legato")

Text = str | Iterable[str]
T = TypeVar("T")


class SpeechEngine:
    """Speaks. Made by `legato.load`; usable from any thread; `close` it, or use it as a context manager."""

    def __init__(self, model: SpeechModel, config: EngineConfig | None = None, worker: Worker | None = None) -> None:
        self.model = model
        self.config = config or EngineConfig()
        self._worker = worker or Worker("legato-engine")
        self.core = self._worker.call(lambda: EngineCore(model, self.config, self._on_chunk, self._on_error))
        self._streams: dict[int, Stream[Any]] = {}
        self._numbers = itertools.count()
        self._commands: deque[Callable[[], None]] = deque()
        self._jobs: set[Future[Any]] = set()
        self._wake = threading.Condition()
        self._closed = False
        self._broken: BaseException | None = None
        self._worker.start(self._run)
        self._at_exit = partial(_close_if_there, weakref.ref(self))
        atexit.register(self._at_exit)

    # --- speaking ---

    def generate(self, text: Text, **options: Unpack[SpeakOptions]) -> Audio:
        """Speak a text, or pieces of text, and return it whole.

        Raises RequestError for what cannot be spoken, Overloaded when too many requests wait.
        """
        stream, tempo = self._open(_pullable(text), options)
        return _gathered(list(_retimed(stream, tempo)), stream)

    def stream(self, text: Text, **options: Unpack[SpeakOptions]) -> Iterator[AudioChunk]:
        """Speak a text and yield its chunks as they become final; `text` may come in pieces (an LLM's tokens).

        Raises like `generate`, at once. Leaving the loop early cancels the request.
        """
        stream, tempo = self._open(_pullable(text), options)
        chunks = _retimed(stream, tempo)
        weakref.finalize(chunks, stream.cancel)
        return chunks

    async def agenerate(self, text: Text | AsyncIterable[str], **options: Unpack[SpeakOptions]) -> Audio:
        """`generate` for asyncio; `text` may also be an async iterator of pieces."""
        stream, tempo = self._open(text, await self._acloned(options))
        async with feeding(stream, text):
            return _gathered([chunk async for chunk in _aretimed(stream, tempo)], stream)

    async def astream(
        self, text: Text | AsyncIterable[str], **options: Unpack[SpeakOptions]
    ) -> AsyncIterator[AudioChunk]:
        """`stream` for asyncio; `text` may also be an async iterator of pieces."""
        stream, tempo = self._open(text, await self._acloned(options))
        async with feeding(stream, text):
            async for chunk in _aretimed(stream, tempo):
                yield chunk

    def _open(self, text: Text | AsyncIterable[str], options: SpeakOptions) -> tuple[SpeechStream, float]:
        """Submit a text; its pieces, if it comes in pieces, are pulled by a thread of their own."""
        settings = dict(self._cloned(options))
        speed = settings.pop("speed", 1.0)
        if not isinstance(speed, (int, float)):
            raise RequestError(f"speed must be a number, not {type(speed).__name__}", "speed")
        check_speed(speed)
        if not isinstance(text, (Iterable, AsyncIterable)):
            raise RequestError(f"text must be a str or pieces of str, not {type(text).__name__}", "input")
        whole = isinstance(text, str)
        request = SpeechRequest(text=text if whole else "", more_text=not whole, **settings)  # type: ignore[arg-type]
        stream = self.submit(request)
        if isinstance(text, Iterable) and not whole:
            threading.Thread(target=_push_all, args=(stream, text), name="legato-text", daemon=True).start()
        return stream, speed

    def clone(self, audio: str | Path, text: str | None = None) -> Voice:
        """A voice from a sound file that says `text`, for the `voice` of any number of requests.

        It is made between two steps, by the thread that computes, and holds up what is being spoken meanwhile.
        Raises RequestError when the model cannot clone, or not from that.
        """
        cloner = self.model.cloner
        if cloner is None:
            raise UnsupportedFeature(f"{self.model.name} cannot clone a voice from audio", "prompt_audio")
        wave, rate = read_audio(Path(audio))
        return self._between_steps(lambda: cloner.clone(Path(audio).stem, wave, rate, text))

    def _cloned(self, options: SpeakOptions) -> SpeakOptions:
        """The options with a voice in place of prompt audio and its text."""
        audio, text = options.get("prompt_audio"), options.get("prompt_text")
        if audio is None and text is not None:
            raise RequestError("prompt_text needs prompt_audio, the recording that says it", "prompt_audio")
        settings = options.copy()
        settings.pop("prompt_audio", None)
        settings.pop("prompt_text", None)
        if audio is not None:
            settings["voice"] = self.clone(audio, text)  # type: ignore[typeddict-item]
        return settings

    async def _acloned(self, options: SpeakOptions) -> SpeakOptions:
        """The same for asyncio, whose loop goes on meanwhile."""
        return await in_thread(lambda: self._cloned(options)) if "prompt_audio" in options else options

    def submit(self, request: SpeechRequest) -> SpeechStream:
        """Accept a request and return its stream at once. Raises RequestError, Overloaded or EngineError."""
        voice = self.core.door.check(request)
        report = StreamReport(self.model.rates.sample_hz, request.seed, self.model.name, voice.name)
        with self._wake:
            self._refuse_if_unable()
            number = next(self._numbers)
            stream = SpeechStream(number, report, on_cancel=self._cancel, on_text=self._push_text, on_taken=self._taken)
            self._enter(number, stream, lambda: self.core.submit(number, request))
        return stream

    def _enter(self, number: int, stream: Stream[Any], command: Callable[[], None]) -> None:
        self._streams[number] = stream
        self._commands.append(command)
        self._wake.notify()

    # --- conversations ---

    def chat(self, messages: Conversing, **options: Unpack[ChatOptions]) -> ChatStream:
        """Answer a conversation; iterate over the stream (`for` or `async for`) for text and sound as they come.

        `messages` are Message objects or dicts as in OpenAI's chat API, whose content parts may also be
        {"type": "audio" | "image" | "video", …: a path, bytes or (audio) samples}. Raises RequestError at once for what
        cannot be answered, media included. Reading large media takes a while: from asyncio, call `achat`.
        """
        settings = dict(options)
        modalities = settings.get("modalities", ("text", "audio"))
        if isinstance(modalities, str) or not isinstance(modalities, Iterable):
            raise RequestError(f"modalities must be a list of names, not {modalities!r}", "modalities")
        settings["modalities"] = tuple(modalities)
        return self.submit_chat(ChatRequest(read_messages(messages), **settings))  # type: ignore[arg-type]

    async def achat(self, messages: Conversing, **options: Unpack[ChatOptions]) -> ChatStream:
        """`chat` for asyncio: media are read in a thread."""
        return await in_thread(lambda: self.chat(messages, **options))

    def submit_chat(self, request: ChatRequest) -> ChatStream:
        """Accept a conversation and return its stream. Raises RequestError, Overloaded or EngineError."""
        writer = self.core.door.check_chat(request)
        with self._wake:
            self._refuse_if_unable()
        request = replace(request, seed=request.seed % 2**63)
        prepared = writer.chat.prepare(request)
        voice = (request.voice or self.model.default_voice) if "audio" in request.modalities else ""
        report = StreamReport(self.model.rates.sample_hz, request.seed, self.model.name, voice)
        with self._wake:
            self._refuse_if_unable()
            number = next(self._numbers)
            stream = ChatStream(number, report, on_cancel=self._cancel, on_audio=self._hear, on_taken=self._taken)
            self._enter(number, stream, lambda: self.core.submit_chat(number, request, prepared))
        return stream

    def _refuse_if_ended(self) -> None:
        if self._closed or self._broken is not None:
            raise EngineError("the engine is closed" if self._closed else f"the engine broke: {self._broken}")

    def _refuse_if_unable(self) -> None:
        self._refuse_if_ended()
        waiting = len(self._streams) - self.config.max_requests
        if waiting >= self.config.max_waiting:
            raise Overloaded(max(0, waiting), self.config.max_waiting)

    @property
    def broken(self) -> bool:
        """Whether it ended by itself: it serves nobody any more."""
        return self._broken is not None

    def status(self) -> dict[str, int]:
        """How busy the engine is, for health checks and admission."""
        pool, replies = self.core.lm.pool, self.core.replies
        status = {
            "running": self.core.running,
            "waiting": max(0, len(self._streams) - self.core.running),
            "kv_pages_used": pool.used,
            "kv_pages": pool.pages - 1,
        }
        if replies is not None:
            status["writer_kv_pages_used"] = replies.lm.pool.used
            status["writer_kv_pages"] = replies.lm.pool.pages - 1
            status["media_cache_mb"] = replies.media.cached_bytes >> 20
        return status

    def warm_up(self) -> None:
        """Speak a word to nobody, so that the first listener does not pay for first-time costs.

        A model without a voice writes one.
        """
        if self.model.voices:
            self.generate("Ready." if "en" in self.model.languages else "好。")
        else:
            for _ in self.chat([{"role": "user", "content": "Ready?"}], modalities=("text",), max_tokens=2):
                pass

    def close(self) -> None:
        """Stop the engine; requests still in it end with EngineError."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._worker.close()
        atexit.unregister(self._at_exit)

    def __enter__(self) -> SpeechEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the engine thread ---

    def _run(self) -> None:
        """Commands, then a step, until closed. The one boundary where any exception is caught: it fails everyone."""
        try:
            idle = True
            while self._wait(idle):
                idle = not self.core.step()
        except Exception as error:
            log.exception("the engine broke")
            self._broken = error
        for stream in list(self._streams.values()):
            stream.fail(self._failure())
        self._streams.clear()
        with self._wake:
            jobs, self._jobs = self._jobs, set()
        for future in jobs:
            future.set_exception(self._failure())

    def _failure(self) -> EngineError:
        """What everything that was still in the engine ends with."""
        failure = EngineError("the engine was closed" if self._broken is None else f"the engine broke: {self._broken}")
        failure.__cause__ = self._broken
        return failure

    def _wait(self, idle: bool) -> bool:
        """Run the commands that have come, waiting for one when idle. False when the engine is closed."""
        with self._wake:
            while idle and not self._commands and not self._closed:
                self._wake.wait()
            commands = list(self._commands)
            self._commands.clear()
        for command in commands:
            command()
        return not self._closed

    def _command(self, command: Callable[[], None]) -> None:
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _between_steps(self, job: Callable[[], T]) -> T:
        """Run a job in the thread that computes; give what it gives, or raise what it raises.

        Raises EngineError when the engine ends before its turn comes.
        """
        future: Future[T] = Future()

        def run() -> None:
            with self._wake:
                self._jobs.discard(future)
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        with self._wake:
            self._refuse_if_ended()
            self._jobs.add(future)
            self._commands.append(run)
            self._wake.notify()
        return future.result()

    def _cancel(self, number: int) -> None:
        self._command(lambda: self.core.cancel(number))

    def _push_text(self, number: int, piece: str | None) -> None:
        self._command(lambda: self.core.push_text(number, piece))

    def _taken(self, number: int, samples: int) -> None:
        self._command(lambda: self.core.taken(number, samples))

    def _hear(self, number: int, wave: np.ndarray | None, sample_rate_hz: int) -> None:
        self._command(lambda: self.core.push_audio(number, wave, sample_rate_hz))

    def _on_chunk(self, number: int, piece: AudioChunk | TextDelta) -> None:
        stream = self._streams[number]
        stream.report.usage = self.core.usage(number) or stream.report.usage
        if piece.final:
            self._leave(number)
        stream.put(piece)

    def _on_error(self, number: int, error: SpeechError) -> None:
        stream = self._streams[number]
        self._leave(number)
        stream.fail(error)

    def _leave(self, number: int) -> None:
        with self._wake:
            del self._streams[number]


def _close_if_there(engine: weakref.ref[SpeechEngine]) -> None:
    """Let the engine's thread end before the interpreter does: torch does not survive it otherwise."""
    if (still := engine()) is not None:
        still.close()


def _pullable(text: Text) -> Text:
    """Text that a blocking caller can give. Raises RequestError for an async iterator, which nobody would pull."""
    if isinstance(text, AsyncIterable):
        raise RequestError("an async iterator of text needs agenerate or astream", "input")
    return text


def _push_all(stream: SpeechStream, pieces: Iterable[str]) -> None:
    """Feed a stream from an iterator until either ends. A failing source fails the request."""
    try:
        for piece in pieces:
            if stream.ended:
                return
            stream.push_text(piece)
    except Exception as error:
        stream.fail_source(error)
        return
    stream.end_text()


def _gathered(chunks: list[AudioChunk], stream: SpeechStream) -> Audio:
    samples = np.concatenate([chunk.pcm for chunk in chunks]) if chunks else np.zeros(0, np.float32)
    return Audio(samples, stream.sample_rate_hz, stream.report)


def _retimed(stream: SpeechStream, speed: float) -> Iterator[AudioChunk]:
    """The stream's chunks at another speed; closing this cancels the stream."""
    retime = Retimer(stream.sample_rate_hz, speed)
    with stream:
        for chunk in stream:
            yield retime(chunk)


async def _aretimed(stream: SpeechStream, speed: float) -> AsyncIterator[AudioChunk]:
    retime = Retimer(stream.sample_rate_hz, speed)
    with stream:
        async for chunk in stream:
            yield retime(chunk)
