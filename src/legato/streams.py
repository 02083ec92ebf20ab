"""SpeechStream and ChatStream: one request seen from outside, for threads and for asyncio alike.

The engine thread puts pieces in; one reader takes them out, by `for` or `async for`. Nothing is computed here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

import numpy as np
from typing_extensions import Self

from legato.errors import Cancelled, RequestError, SpeechError
from legato.report import StreamReport
from legato.types import AudioChunk, TextDelta

Piece = TypeVar("Piece", bound="AudioChunk | TextDelta")
Result = TypeVar("Result")


class Stream(Generic[Piece]):
    """Pieces of one request, in order. Ends exactly once: after a `final` piece, or with one error.

    Reading it raises the error that ended it. Leaving the loop early does not cancel; `cancel()` does, and so does
    closing the context (`with engine.submit(...) as stream`).
    """

    def __init__(
        self,
        request: int,
        report: StreamReport,
        *,
        on_cancel: Callable[[int], None],
        on_taken: Callable[[int, int], None],
    ) -> None:
        self.request = request
        self.report = report
        self.sample_rate_hz = report.sample_rate_hz
        self._on_cancel, self._on_taken = on_cancel, on_taken
        self._accepted_s = time.perf_counter()
        self._pieces: deque[Piece] = deque()
        self._error: SpeechError | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._wake_async: Callable[[], None] | None = None

    # --- the reader's side ---

    def cancel(self) -> None:
        """Stop and give everything back. Safe at any moment, from any thread, any number of times."""
        self._on_cancel(self.request)

    @property
    def ended(self) -> bool:
        """Whether the last piece, or an error, has come; pieces may still be waiting to be read."""
        return self._ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self.cancel()

    def __iter__(self) -> Iterator[Piece]:
        while True:
            with self._changed:
                while not self._pieces and not self._ended:
                    self._changed.wait()
                piece = self._next()
            if piece is None:
                return
            self._take(piece)
            yield piece

    async def __aiter__(self) -> AsyncIterator[Piece]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        with self._changed:
            self._wake_async = wake
        while True:
            with self._changed:
                waiting = not self._pieces and not self._ended
                piece = None if waiting else self._next()
                arrived.clear()
            if waiting:
                await arrived.wait()
            elif piece is None:
                return
            else:
                self._take(piece)
                yield piece

    def _next(self) -> Piece | None:
        if self._pieces:
            return self._pieces.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _take(self, piece: Piece) -> None:
        if isinstance(piece, AudioChunk):
            self._on_taken(self.request, len(piece.pcm))

    # --- the engine's side ---

    def put(self, piece: Piece) -> None:
        """Deliver a piece. Called by the engine thread only."""
        at_s = time.perf_counter() - self._accepted_s
        if isinstance(piece, AudioChunk):
            self.report.add(at_s, len(piece.pcm))
        else:
            self.report.add_text(at_s, piece.text)
        with self._changed:
            self._pieces.append(piece)
            self._ended = self._ended or piece.final
            self._notify()

    def fail(self, error: SpeechError) -> None:
        """End with an error; pieces not yet read are dropped when the request was cancelled."""
        with self._changed:
            if self._ended:
                return
            if isinstance(error, Cancelled):
                self._pieces.clear()
            self._error, self._ended = error, True
            self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        if self._wake_async is not None:
            self._wake_async()


class SpeechStream(Stream[AudioChunk]):
    """A text being read aloud; the text itself may still be coming."""

    def __init__(
        self,
        request: int,
        report: StreamReport,
        *,
        on_cancel: Callable[[int], None],
        on_text: Callable[[int, str | None], None],
        on_taken: Callable[[int, int], None],
    ) -> None:
        super().__init__(request, report, on_cancel=on_cancel, on_taken=on_taken)
        self._on_text = on_text

    def push_text(self, piece: str) -> None:
        """More text of a request that was submitted with `more_text`. Raises RequestError unless it is a str."""
        if not isinstance(piece, str):
            raise RequestError(f"a piece of text must be a str, not {type(piece).__name__}", "input")
        self._on_text(self.request, piece)

    def end_text(self) -> None:
        """No more text will come."""
        self._on_text(self.request, None)

    def fail_source(self, error: Exception) -> None:
        """The source of the text broke: the request ends with that."""
        failure: SpeechError
        if isinstance(error, SpeechError):
            failure = error
        else:
            failure = RequestError(f"the source of the text failed: {error!r}", "input")
            failure.__cause__ = error
        self.fail(failure)
        self.cancel()


class ChatStream(Stream["AudioChunk | TextDelta"]):
    """A reply being written and spoken: text and sound as they come, each in its own order."""

    def __init__(
        self,
        request: int,
        report: StreamReport,
        *,
        on_cancel: Callable[[int], None],
        on_audio: Callable[[int, np.ndarray | None, int], None],
        on_taken: Callable[[int, int], None],
    ) -> None:
        super().__init__(request, report, on_cancel=on_cancel, on_taken=on_taken)
        self._on_audio = on_audio

    def push_audio(self, wave: np.ndarray, sample_rate_hz: int) -> None:
        """More of what the user says, float32 [n], of a request that was submitted with `more_audio`."""
        if not isinstance(wave, np.ndarray) or wave.ndim != 1 or wave.dtype != np.float32:
            raise RequestError("a stretch of sound must be float32 [n]", "messages")
        self._on_audio(self.request, wave, sample_rate_hz)

    def end_audio(self) -> None:
        """The user has ended: the reply begins."""
        self._on_audio(self.request, None, 0)


async def in_thread(job: Callable[[], Result]) -> Result:
    """What a job returns that would hold up the event loop."""
    return await asyncio.to_thread(job)


@asynccontextmanager
async def feeding(stream: SpeechStream, text: object) -> AsyncIterator[None]:
    """Push an async iterator's pieces into a stream while the body reads it. Other kinds of text are left alone."""
    if not isinstance(text, AsyncIterable):
        yield
        return
    task = asyncio.ensure_future(_push_all(stream, text))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _push_all(stream: SpeechStream, pieces: AsyncIterable[str]) -> None:
    """Feed a stream until either ends. A failing source fails the request."""
    try:
        async for piece in pieces:
            if stream.ended:
                return
            stream.push_text(piece)
    except Exception as error:
        stream.fail_source(error)
        return
    stream.end_text()
