"""One stream → one HTTP response, and an end to the stream as soon as the client is gone.

The first bytes are waited for before the response starts, so what fails until then still has its status. What fails
later breaks the body: a response that ends as if all were well is heard as a complete, shorter sentence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from legato.errors import SpeechError
from legato.report import StreamReport
from legato.streams import Stream

from .events import KEEP_ALIVE, event
from .failures import failure_of

logger = logging.getLogger(__name__)

Body = Callable[[AsyncIterator[Any]], AsyncIterator[bytes]]
"""From the pieces of a stream to the pieces of a response body."""


class BodyBroken(RuntimeError):
    """The stream failed after its response had started; raised to make the HTTP layer cut the body off."""


class StreamResponse(Response):
    """Streams a body made of `stream`'s pieces, or sends it whole. Cancels the stream when the client leaves.

    `keep_alive_s` is for a body of events (None: it is none). After a silence of that length, be it before the first
    event, a comment is sent; a failure is told in a last event before the body breaks.
    """

    def __init__(
        self,
        stream: Stream[Any],
        body: Body,
        headers: dict[str, str],
        *,
        whole: bool = False,
        keep_alive_s: float | None = None,
    ) -> None:
        self.stream, self.body_of, self.whole, self.keep_alive_s = stream, body, whole, keep_alive_s
        self.status_code, self.background = 200, None
        self.delivered = False
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        delivering = asyncio.ensure_future(self._deliver(send))
        leaving = asyncio.ensure_future(_until_disconnect(receive))
        try:
            await asyncio.wait((delivering, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stream.cancel()  # nothing to a stream that has ended
            delivering.cancel()
            leaving.cancel()
            await asyncio.wait((delivering, leaving))
            figures = _figures(self.stream.report)
            logger.info("%s %s: %s", scope["state"]["request_id"], self._outcome(delivering), figures)
        if not delivering.cancelled():
            delivering.result()

    def _outcome(self, delivering: asyncio.Future[None]) -> str:
        if self.delivered:
            return "ok"
        if delivering.cancelled() or (error := delivering.exception()) is None:
            return "cancelled"
        return f"failed ({type(error.__cause__ or error).__name__})"

    async def _deliver(self, send: Send) -> None:
        body = self.body_of(aiter(self.stream))
        if self.whole:
            content = b"".join([piece async for piece in body])
            self.headers["Content-Length"] = str(len(content))
            body = _once(content)
        async with aclosing(with_pauses(body, self.keep_alive_s)) as pieces:
            first = await anext(pieces, b"")
            if self.stream.report.ttfa_s is not None:
                self.headers["Server-Timing"] = f"ttfa;dur={self.stream.report.ttfa_s * 1000:.1f}"
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await _send(send, first)
            try:
                async for piece in pieces:
                    await _send(send, piece)
            except SpeechError as error:
                if self.keep_alive_s is not None:
                    await _send(send, event({"type": "error", "error": failure_of(error).fields}))
                raise BodyBroken(f"{type(error).__name__} after the response had started") from error
        self.delivered = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def with_pauses(pieces: AsyncIterator[bytes], every_s: float | None) -> AsyncGenerator[bytes | None, None]:
    """The same pieces, and None whenever none has come for that long."""
    coming: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(pieces))
            if not (await asyncio.wait((coming,), timeout=every_s))[0]:
                yield None
                continue
            come, coming = coming, None
            piece = come.result()
            if piece is None:
                return
            yield piece
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def _send(send: Send, piece: bytes | None) -> None:
    body = KEEP_ALIVE if piece is None else piece
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _figures(report: StreamReport) -> str:
    """One line for the log. Nothing of what was said is in it."""
    if report.first_text_s is None:
        return report.line()
    characters = sum(count for _, count in report.texts)
    return f"first text {report.first_text_s * 1000:.0f} ms · {characters} characters · {report.line()}"
