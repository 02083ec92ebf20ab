"""SpeechStream: one request seen from outside, for threads and for asyncio alike.

The engine thread puts chunks in; one reader takes them out, by `for` or `async for`. It does not compute.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

from legato.errors import Cancelled, RequestError, SpeechError
from legato.report import StreamReport
from legato.types import AudioChunk


class SpeechStream:
    """Chunks of one request, in order. Ends exactly once: after a `final` chunk, or with one error.

    Reading it raises the error that ended it. Leaving the loop early does not cancel; `cancel()` does, and so does
    closing the context (`with engine.submit(...) as stream`).
    """

    def __init__(
        self,
        request: int,
        report: StreamReport,
        *,
        on_cancel: Callable[[int], None],
        on_text: Callable[[int, str | None], None],
        on_taken: Callable[[int, int], None],
    ) -> None:
        self.request = request
        self.report = report
        self.sample_rate_hz = report.sample_rate_hz
        self._on_cancel, self._on_text, self._on_taken = on_cancel, on_text, on_taken
        self._accepted_s = time.perf_counter()
        self._chunks: deque[AudioChunk] = deque()
        self._error: SpeechError | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._wake_async: Callable[[], None] | None = None

    # --- the reader's side ---

    def push_text(self, piece: str) -> None:
        """More text of a request that was submitted with `more_text`. Raises RequestError unless it is a str."""
        if not isinstance(piece, str):
            raise RequestError(f"a piece of text must be a str, not {type(piece).__name__}", "input")
        self._on_text(self.request, piece)

    def end_text(self) -> None:
        """No more text will come."""
        self._on_text(self.request, None)

    def cancel(self) -> None:
        """Stop and give everything back. Safe at any moment, from any thread, any number of times."""
        self._on_cancel(self.request)

    @property
    def ended(self) -> bool:
        """Whether the last chunk, or an error, has come; chunks may still be waiting to be read."""
        return self._ended

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self.cancel()

    def __iter__(self) -> Iterator[AudioChunk]:
        while True:
            with self._changed:
                while not self._chunks and not self._ended:
                    self._changed.wait()
                chunk = self._next()
            if chunk is None:
                return
            self._on_taken(self.request, len(chunk.pcm))
            yield chunk

    async def __aiter__(self) -> AsyncIterator[AudioChunk]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        with self._changed:
            self._wake_async = wake
        while True:
            with self._changed:
                waiting = not self._chunks and not self._ended
                chunk = None if waiting else self._next()
                arrived.clear()
            if waiting:
                await arrived.wait()
            elif chunk is None:
                return
            else:
                self._on_taken(self.request, len(chunk.pcm))
                yield chunk

    def _next(self) -> AudioChunk | None:
        if self._chunks:
            return self._chunks.popleft()
        if self._error is not None:
            raise self._error
        return None

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

    # --- the engine's side ---

    def put(self, chunk: AudioChunk) -> None:
        """Deliver a chunk. Called by the engine thread only."""
        self.report.add(time.perf_counter() - self._accepted_s, len(chunk.pcm))
        with self._changed:
            self._chunks.append(chunk)
            self._ended = self._ended or chunk.final
            self._notify()

    def fail(self, error: SpeechError) -> None:
        """End with an error; chunks not yet read are dropped when the request was cancelled."""
        with self._changed:
            if self._ended:
                return
            if isinstance(error, Cancelled):
                self._chunks.clear()
            self._error, self._ended = error, True
            self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        if self._wake_async is not None:
            self._wake_async()


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
