"""The server: routes, failures, and what surrounds them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware

from .catalogue import catalogue_routes
from .chat import CHAT_PATH, chat_routes
from .failures import add_failure_handlers
from .middleware import Identify, LimitBody, RequireKey
from .speech import speech_routes

if TYPE_CHECKING:
    from legato.config import ServerConfig
    from legato.engine import SpeechEngine

PAGE = Path(__file__).parent / "page"

_EXPOSED_HEADERS = ("x-request-id", "x-ignored-parameters", "x-seed", "server-timing", "retry-after")


def create_app(engine: SpeechEngine, config: ServerConfig) -> FastAPI:
    """An ASGI app that speaks through `engine`, which stays the caller's to close.

    It refuses speech with 503 until the caller sets `app.state.ready = True`, once the engine is warm; setting it
    back to False lets running requests finish and takes no new ones.
    """
    # FastAPI's pages of documentation load scripts from elsewhere; the schema itself stays at /openapi.json.
    app = FastAPI(title="Legato", docs_url=None, redoc_url=None)
    app.state.ready = False
    add_failure_handlers(app)
    app.include_router(speech_routes(engine, config.keep_alive_s))
    app.include_router(chat_routes(engine, config.keep_alive_s))
    app.include_router(catalogue_routes(engine))
    app.mount("/page", StaticFiles(directory=PAGE))

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    # The last added is the outermost: the key is asked for before a body is read, and browsers see every refusal.
    app.add_middleware(LimitBody, max_bytes=config.max_body_bytes, larger={CHAT_PATH: config.max_media_bytes})
    if (api_key := config.api_key) is not None:
        app.add_middleware(RequireKey, api_key=api_key)
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=list(_EXPOSED_HEADERS),
        )
    app.add_middleware(Identify)
    return app
