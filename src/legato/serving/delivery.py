"""One speech stream → one HTTP response, and an end to the stream as soon as the client is gone.

The first sound is waited for before the response starts, so what fails until then still has its status. What fails
later breaks the body: a response that ends as if all were well is heard as a complete, shorter sentence.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from legato.errors import SpeechError
from legato.streams import SpeechStream
from legato.tempo import TempoStream
from legato.types import AudioChunk

from .encoders import Encoder
from .failures import failure_of

logger = logging.getLogger(__name__)

Body = Callable[[AsyncIterator[AudioChunk]], AsyncIterator[bytes]]
"""From the chunks of a stream to the pieces of a response body."""

BASE64_GROUP_BYTES = 6
"""Every piece but the last is a multiple of this: whole samples, and no base64 padding in the middle, at which clients
that join the texts before they decode would stop."""


class BodyBroken(RuntimeError):
    """The speech failed after its response had started; raised to make the HTTP layer cut the body off."""


class SpeechResponse(Response):
    """Streams a body made of `stream`'s chunks, or sends it whole. Cancels the stream when the client leaves."""

    def __init__(self, stream: SpeechStream, body: Body, headers: dict[str, str], *, whole: bool) -> None:
        self.stream, self.body_of, self.whole = stream, body, whole
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
            logger.info("%s %s: %s", scope["state"]["request_id"], self._outcome(delivering), self.stream.report.line())
        if not delivering.cancelled():
            delivering.result()

    def _outcome(self, delivering: asyncio.Future[None]) -> str:
        if self.delivered:
            return "ok"
        if delivering.cancelled() or (error := delivering.exception()) is None:
            return "cancelled"
        return f"failed ({type(error.__cause__ or error).__name__})"

    async def _deliver(self, send: Send) -> None:
        pieces = self.body_of(await with_first_sound(aiter(self.stream)))
        if self.whole:
            content = b"".join([piece async for piece in pieces])
            self.headers["Content-Length"] = str(len(content))
            pieces = _once(content)
        if self.stream.report.ttfa_s is not None:
            self.headers["Server-Timing"] = f"ttfa;dur={self.stream.report.ttfa_s * 1000:.1f}"
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except SpeechError as error:
            raise BodyBroken(f"{type(error).__name__} after the response had started") from error
        self.delivered = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def with_first_sound(chunks: AsyncIterator[AudioChunk]) -> AsyncIterator[AudioChunk]:
    """The same chunks, as soon as the first sound (or the end without any) is there."""
    first = await anext(chunks, None)
    while first is not None and not len(first.pcm) and not first.final:
        first = await anext(chunks, None)

    async def all_chunks() -> AsyncIterator[AudioChunk]:
        if first is not None:
            yield first
        async for chunk in chunks:
            yield chunk

    return all_chunks()


def audio_body(encoder: Encoder, tempo: TempoStream | None) -> Body:
    """One container over the whole body."""

    async def body(chunks: AsyncIterator[AudioChunk]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            if piece := encoder.push(chunk.pcm if tempo is None else tempo.push(chunk.pcm)):
                yield piece
            # A stream that is ahead of its reader never waits; without this neither would anybody else get a turn.
            await asyncio.sleep(0)
        tail = b"" if tempo is None else encoder.push(tempo.finish())
        if piece := tail + encoder.finish():
            yield piece

    return body


def event_body(audio: Body, stream: SpeechStream) -> Body:
    """The pieces of `audio` as OpenAI's speech events; the last one carries the usage, and our figures."""

    async def body(chunks: AsyncIterator[AudioChunk]) -> AsyncIterator[bytes]:
        held = b""
        try:
            async for piece in audio(chunks):
                held += piece
                ready = len(held) - len(held) % BASE64_GROUP_BYTES
                if ready:
                    yield _delta(held[:ready])
                    held = held[ready:]
        except SpeechError as error:
            yield _event({"type": "error", "error": failure_of(error).fields})
            raise
        if held:
            yield _delta(held)
        yield _event({"type": "speech.audio.done", "usage": _usage(stream), "stats": stream.report.as_dict()})

    return body


def _delta(audio: bytes) -> bytes:
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})


def _event(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def _usage(stream: SpeechStream) -> dict[str, int]:
    usage = stream.report.usage
    total = usage.prompt_tokens + usage.generated_tokens
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.generated_tokens, "total_tokens": total}


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
