"""How server-sent events are written here: one line of JSON each, sound as base64, comments while there is nothing."""

from __future__ import annotations

import base64
import json
from typing import Any

CONTENT_TYPE = "text/event-stream"

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which clients pass over; proxies and clients that give up on a silent connection do not."""

DONE = b"data: [DONE]\n\n"
"""The end of a stream of OpenAI's chat completions."""

BASE64_GROUP_BYTES = 6
"""Every piece but the last is a multiple of this: whole samples, and no base64 padding in the middle, at which clients
that join the texts before they decode would stop."""


def event(content: dict[str, Any]) -> bytes:
    """One event."""
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


class Base64Pieces:
    """Bytes in, base64 texts out that can be joined before or after decoding."""

    def __init__(self) -> None:
        self._held = b""

    def push(self, data: bytes) -> str:
        """What is complete with these bytes; may be empty."""
        self._held += data
        ready = len(self._held) - len(self._held) % BASE64_GROUP_BYTES
        text = base64.b64encode(self._held[:ready]).decode()
        self._held = self._held[ready:]
        return text

    def finish(self) -> str:
        """The rest."""
        held, self._held = self._held, b""
        return base64.b64encode(held).decode()
