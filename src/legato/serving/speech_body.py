"""Chunks of a text read aloud → bodies: bare audio, or OpenAI's speech events around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from legato.streams import SpeechStream
from legato.tempo import TempoStream
from legato.types import AudioChunk

from .delivery import Body
from .encoders import Encoder
from .events import Base64Pieces, event


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
        pieces = Base64Pieces()
        async for piece in audio(chunks):
            if text := pieces.push(piece):
                yield event({"type": "speech.audio.delta", "audio": text})
        if text := pieces.finish():
            yield event({"type": "speech.audio.delta", "audio": text})
        yield event({"type": "speech.audio.done", "usage": _usage(stream), "stats": stream.report.as_dict()})

    return body


def _usage(stream: SpeechStream) -> dict[str, int]:
    usage = stream.report.usage
    total = usage.prompt_tokens + usage.generated_tokens
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.generated_tokens, "total_tokens": total}
