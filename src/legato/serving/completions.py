"""Pieces of a reply → OpenAI's chat completion: one object, or events with its chunks. Text and sound in one choice.

Clients disagree on where the text of a spoken reply is: OpenAI's read `audio.transcript`, others `content`. It is in
both. Clients that join chunks add up every field, so what is said once (role, id, expires_at) is sent once; and those
that see `audio` read `audio.data`, so it is in every `audio`, if need be empty.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from legato.streams import ChatStream
from legato.types import AudioChunk, FinishReason, TextDelta

from .encoders import Encoder
from .events import DONE, Base64Pieces, event
from .transcripts import Transcripts


class Completion:
    """One reply on its way out; `whole` and `events` are bodies of a response. `encoder` None: in text only."""

    def __init__(
        self, stream: ChatStream, model: str, encoder: Encoder | None, transcripts: Transcripts, include_usage: bool
    ) -> None:
        self._stream, self._model, self._encoder, self._transcripts = stream, model, encoder, transcripts
        self._include_usage = include_usage
        self._id, self._audio_id = f"chatcmpl-{uuid.uuid4().hex}", f"audio_{uuid.uuid4().hex}"
        self._created_s = int(time.time())
        self._base64 = Base64Pieces()
        self._text = ""
        self._reason: FinishReason | None = None

    async def whole(self, pieces: AsyncIterator[AudioChunk | TextDelta]) -> AsyncIterator[bytes]:
        """The reply as one object, when all of it is there."""
        data = "".join([data async for _, data in self._parts(pieces)])
        message: dict[str, Any] = {"role": "assistant", "content": self._text, "refusal": None}
        if self._encoder is not None:
            message["audio"] = {
                "id": self._audio_id,
                "data": data + self._end_of_sound(self._encoder),
                "expires_at": self._transcripts.keep(self._audio_id, self._text),
                "transcript": self._text,
            }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason}
        completion = self._head("chat.completion") | {"choices": [choice]} | self._bill()
        yield json.dumps(completion, separators=(",", ":")).encode()

    async def events(self, pieces: AsyncIterator[AudioChunk | TextDelta]) -> AsyncIterator[bytes]:
        """Chunks, the reason of the end, the usage if it is wanted, and [DONE]."""
        started = False
        async for text, data in self._parts(pieces):
            if not started:
                started = True
                yield self._chunk({"role": "assistant", "content": ""}, {"id": self._audio_id})
            if text:
                yield self._chunk({"content": text}, {"transcript": text})
            if data:
                yield self._chunk({}, {"data": data})
        if self._encoder is not None:
            if data := self._end_of_sound(self._encoder):
                yield self._chunk({}, {"data": data})
            yield self._chunk({}, {"expires_at": self._transcripts.keep(self._audio_id, self._text)})
        yield self._event([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": self._reason}])
        if self._include_usage:
            yield event(self._head("chat.completion.chunk") | {"choices": []} | self._bill())
        yield DONE

    async def _parts(self, pieces: AsyncIterator[AudioChunk | TextDelta]) -> AsyncIterator[tuple[str, str]]:
        """For every piece its text, and base64 of what the encoder gave for it."""
        async for piece in pieces:
            if isinstance(piece, TextDelta):
                self._text += piece.text
                self._reason = piece.finish_reason or self._reason
                yield piece.text, ""
            else:
                yield "", "" if self._encoder is None else self._base64.push(self._encoder.push(piece.pcm))
            # A stream that is ahead of its reader never waits; without this neither would anybody else get a turn.
            await asyncio.sleep(0)

    def _end_of_sound(self, encoder: Encoder) -> str:
        return self._base64.push(encoder.finish()) + self._base64.finish()

    def _chunk(self, delta: dict[str, Any], audio: dict[str, Any]) -> bytes:
        if self._encoder is not None:
            delta = delta | {"audio": {"data": ""} | audio}
        return self._event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        usage = {"usage": None} if self._include_usage else {}
        return event(self._head("chat.completion.chunk") | {"choices": choices} | usage)

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created_s, "model": self._model}

    def _bill(self) -> dict[str, Any]:
        """What the reply has cost, and our figures."""
        report = self._stream.report
        prompt, generated = report.usage.prompt_tokens, report.usage.generated_tokens
        usage = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
        return {"usage": usage, "stats": report.as_dict()}
