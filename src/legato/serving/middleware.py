"""What surrounds every request: its id, headers, the key, and the largest body. Pure ASGI, so that streams pass through
untouched and a client that leaves is seen at once.
"""

from __future__ import annotations

import hmac
import re
import uuid
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .failures import Failure

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

_OPEN_PATHS = {"/", "/health", "/ready"}
_OPEN_FOLDER = "/page/"

_MOST_DRAINED_BYTES = 16 << 20

_SAFETY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    # Everything here is either made for one request or a page asset that changes with an upgrade.
    "Cache-Control": "no-cache",
}


class Identify:
    """Give every request an id (the client's, if it is a sane one), and every answer that id and the safety headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in _SAFETY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


class RequireKey:
    """Refuse whoever does not know the key, everywhere but at the page and the health checks."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self.app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._open(scope) or self._knows_key(scope):
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008, "reason": "wrong or missing API key"})
        message = "wrong or missing API key; send it as Authorization: Bearer <key>"
        headers = {"WWW-Authenticate": "Bearer"}
        await Failure(401, message, code="invalid_api_key", headers=headers).response()(scope, receive, send)

    def _open(self, scope: Scope) -> bool:
        path = _path(scope)
        return scope["type"] == "http" and (path in _OPEN_PATHS or path.startswith(_OPEN_FOLDER))

    def _knows_key(self, scope: Scope) -> bool:
        given = Headers(scope=scope).get("authorization", "")
        return hmac.compare_digest(given.encode("latin-1"), self._expected)


class LimitBody:
    """Refuse bodies beyond a size, by their stated length or by counting. `larger` holds the sizes of the paths whose
    bodies may have more: those that carry media."""

    def __init__(self, app: ASGIApp, max_bytes: int, larger: Mapping[str, int]) -> None:
        self.app, self.max_bytes, self.larger = app, max_bytes, larger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        received, limit = 0, self.larger.get(_path(scope), self.max_bytes)

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                await _drain(receive, message)
                raise HTTPException(413, _too_large(limit))
            return message

        headers = Headers(scope=scope)
        stated = headers.get("content-length", "0")
        if stated.isdecimal() and int(stated) > limit:
            if "expect" not in headers:  # such a client waits for leave to send
                await _drain(receive, await receive())
            failure = Failure(413, _too_large(limit), code="file_too_large", headers={"Connection": "close"})
            return await failure.response()(scope, receive, send)
        await self.app(scope, counted, send)


def _too_large(limit: int) -> str:
    return f"the request body may have at most {limit} bytes"


def _path(scope: Scope) -> str:
    """The path as our routes know it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def _drain(receive: Receive, message: Message) -> None:
    """Read on and forget, within reason: a client refused while it still writes would lose the answer with its
    connection."""
    drained = 0
    while message.get("more_body", False) and drained < _MOST_DRAINED_BYTES:
        message = await receive()
        drained += len(message.get("body", b""))
