"""What this server has and how it is: models, voices, health. In the shapes that common clients read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from .encoders import FORMATS
from .failures import REFUSALS, Failure, not_ready
from .names import CHAT_MODEL_ALIASES, MODEL_ALIASES, check_model

if TYPE_CHECKING:
    from legato.engine import SpeechEngine


BROKEN = Failure(503, "the engine broke: this process must be started again", "server_error", code="engine_error")


def catalogue_routes(engine: SpeechEngine) -> APIRouter:
    """The GET routes."""
    router = APIRouter(responses=REFUSALS)
    created_s = int(time.time())

    @router.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [model_card(engine, created_s)]}

    @router.get("/v1/models/{name:path}")
    async def get_model(name: str) -> dict[str, Any]:
        """The loaded model, under its own name or one of OpenAI's."""
        chat_aliases = () if engine.model.writer is None else CHAT_MODEL_ALIASES
        check_model(name, engine.model.name, (*MODEL_ALIASES, *chat_aliases))
        return {**model_card(engine, created_s), "id": name, "root": engine.model.name}

    @router.get("/v1/audio/models")
    async def list_audio_models() -> dict[str, Any]:
        """Open WebUI's list."""
        return {"models": [{"id": engine.model.name, "name": engine.model.name}]}

    @router.get("/v1/audio/voices")
    async def list_voices(legacy: bool = False) -> dict[str, Any]:
        """Clients disagree on this list: some read `voices`, some `data`, older ones plain names (`?legacy=true`)."""
        if legacy:
            return {"object": "list", "voices": list(engine.model.voices)}
        cards = voice_cards(engine)
        return {"object": "list", "voices": cards, "data": cards}

    @router.head("/health", include_in_schema=False)
    @router.get("/health", response_model=None)
    async def health() -> Response:
        """The process is alive, and so is its engine: one that broke needs a new process."""
        return BROKEN.response() if engine.broken else JSONResponse({"status": "ok"})

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready", response_model=None)
    async def ready(request: Request) -> Response:
        """Warm, and taking requests."""
        if engine.broken:
            return BROKEN.response()
        if not request.app.state.ready:
            return not_ready("warming up or shutting down").response()
        return JSONResponse({"status": "ready", "engine": engine.status()})

    return router


def model_card(engine: SpeechEngine, created_s: int) -> dict[str, Any]:
    """OpenAI's four fields, and what this model can do."""
    model = engine.model
    return {
        "id": model.name,
        "object": "model",
        "created": created_s,
        "owned_by": "legato",
        "sample_rate_hz": model.rates.sample_hz,
        "languages": list(model.languages),
        "default_voice": model.default_voice,
        "formats": list(FORMATS),
        "max_input_characters": engine.config.max_text_chars,
        "capabilities": {
            "speech": bool(model.voices),
            "chat": model.writer is not None,
            "audio_input": model.writer is not None,
            "streaming": True,
            "speed": True,
            "instructions": False,
        },
    }


def voice_cards(engine: SpeechEngine) -> list[dict[str, Any]]:
    return [
        {"id": name, "name": name, "description": voice.description, "languages": list(voice.languages)}
        for name, voice in engine.model.voices.items()
    ]
