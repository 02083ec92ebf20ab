"""Every failure in OpenAI's shape: {"error": {"message", "type", "param", "code"}}, all four keys, always.

Clients read this shape and nothing else; FastAPI's own `{"detail": …}` shows as an empty message in them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from legato.errors import Cancelled, Overloaded, RequestError, SpeechError, UnknownModel

logger = logging.getLogger(__name__)

NOT_READY_RETRY_S = 2

REFUSALS: dict[int | str, dict[str, Any]] = {"4XX": {"description": "An error in OpenAI's shape."}}
"""For the schema of the API, which would promise FastAPI's own errors otherwise."""

_STATUS_CODES = {404: "not_found", 405: "method_not_allowed", 413: "file_too_large"}


@dataclass(frozen=True)
class Failure:
    """What a client is told: the HTTP status, the four fields, and headers."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        return {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}

    def response(self) -> JSONResponse:
        return JSONResponse({"error": self.fields}, self.status, self.headers)


def retry_in(seconds: int) -> dict[str, str]:
    """Headers of a failure that another attempt may mend."""
    return {"Retry-After": str(seconds), "x-should-retry": "true"}


def failure_of(error: SpeechError) -> Failure:
    """How an error of ours is told to a client."""
    if isinstance(error, UnknownModel):
        return Failure(404, str(error), param=error.param, code=error.code)
    if isinstance(error, RequestError):
        return Failure(400, str(error), param=error.param, code=error.code)
    if isinstance(error, Overloaded):
        return Failure(429, str(error), "rate_limit_error", code="server_busy", headers=retry_in(error.retry_after_s))
    if isinstance(error, Cancelled):
        # The client is still there, so it is the server that gave the request up.
        return not_ready("the server stopped this request")
    # Not to be tried again: a request that broke the engine once would break it, and everybody in it, three times.
    return Failure(500, str(error), "server_error", code="engine_error", headers={"x-should-retry": "false"})


def not_ready(message: str) -> Failure:
    """The server is starting or stopping."""
    return Failure(503, message, "server_error", code="not_ready", headers=retry_in(NOT_READY_RETRY_S))


def invalid(error: RequestValidationError) -> Failure:
    """The first thing that is wrong with a request body, without repeating what was in it."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return Failure(400, f"the body is not valid JSON: {first['ctx']['error']}", code="invalid_json")
    place = [str(part) for part in first["loc"][1:]]
    if not place:
        return Failure(400, "the body must be a JSON object, sent with Content-Type: application/json")
    if first["type"] == "missing":
        return Failure(400, f"missing required parameter: {'.'.join(place)}", param=place[0], code="missing_parameter")
    return Failure(400, f"{place[0]}: {first['msg']}", param=place[0], code="invalid_value")


def http_failure(request: Request, error: HTTPException) -> Failure:
    """What the router refuses: unknown addresses, wrong methods, bodies that are too large."""
    message = str(error.detail)
    if error.status_code in (404, 405) and message == HTTPStatus(error.status_code).phrase:
        message = f"{message}: {request.method} {request.url.path}"
    return Failure(
        error.status_code, message, code=_STATUS_CODES.get(error.status_code), headers=dict(error.headers or {})
    )


def add_failure_handlers(app: FastAPI) -> None:
    """Answer every failure of `app` in the one shape."""

    @app.exception_handler(SpeechError)
    async def on_speech_error(_: Request, error: SpeechError) -> JSONResponse:
        return failure_of(error).response()

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return invalid(error).response()

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        return http_failure(request, error).response()

    @app.exception_handler(Exception)
    async def on_bug(request: Request, _: Exception) -> JSONResponse:
        # This answer is made outside our middleware, so it carries the id itself.
        headers = {"x-should-retry": "false", "x-request-id": request.state.request_id}
        return Failure(500, "the server failed on this request", "server_error", headers=headers).response()
