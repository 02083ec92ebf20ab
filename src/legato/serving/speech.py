"""`POST /v1/audio/speech`: refuse at the door, submit, and hand the stream to its delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import Response

from legato.errors import UnsupportedFeature
from legato.tempo import TempoStream
from legato.types import SpeechRequest

from .delivery import StreamResponse
from .encoders import find_format, open_encoder
from .events import CONTENT_TYPE
from .failures import REFUSALS, not_ready
from .headers import stream_headers
from .names import check_model, resolve_voice
from .schemas import SpeechBody
from .speech_body import audio_body, event_body

if TYPE_CHECKING:
    from legato.engine import SpeechEngine


def speech_routes(engine: SpeechEngine, keep_alive_s: float) -> APIRouter:
    """The route, speaking through `engine`."""
    router = APIRouter(responses=REFUSALS)

    # The answer is a stream of our own making: FastAPI has nothing to validate or describe in it.
    @router.post("/v1/audio/speech", response_model=None, response_class=Response)
    async def create_speech(body: SpeechBody, request: Request) -> Response:
        """Text to speech, as OpenAI's route of that name."""
        if not request.app.state.ready:
            return not_ready("the server is not ready: it is warming up or shutting down").response()
        form = find_format(body.response_format)
        check_model(body.model, engine.model.name)
        refuse_contradictions(body)
        # What can fail comes before the submit: nobody would read a stream left behind by an error.
        rate_hz = engine.model.rates.sample_hz
        tempo = None if body.speed == 1.0 else TempoStream(rate_hz, body.speed)
        audio = audio_body(open_encoder(form, rate_hz, whole=not body.stream), tempo)
        stream = engine.submit(to_request(body, engine))
        ignored = ignored_parameters(body)
        if body.stream_format == "sse":
            headers = stream_headers(CONTENT_TYPE, body.seed, ignored)
            return StreamResponse(stream, event_body(audio, stream), headers, keep_alive_s=keep_alive_s)
        headers = stream_headers(form.content_type, body.seed, ignored)
        return StreamResponse(stream, audio, headers, whole=not body.stream)

    return router


def refuse_contradictions(body: SpeechBody) -> None:
    """Fields that are right alone and wrong together."""
    if body.stream_format == "sse" and not body.stream:
        raise UnsupportedFeature("stream_format 'sse' is a stream; leave `stream` out or true", "stream")


def to_request(body: SpeechBody, engine: SpeechEngine) -> SpeechRequest:
    """What the engine is asked."""
    model = engine.model
    voice = resolve_voice(body.voice_name, model.voices, model.default_voice)
    return SpeechRequest(
        text=body.input, voice=voice, seed=body.seed, normalize=body.normalize, pronunciation=body.pronunciation
    )


def ignored_parameters(body: SpeechBody) -> list[str]:
    """Names of the fields that had no effect. No model here takes instructions yet; agents set up for OpenAI send them
    all the same, and a refusal would silence them."""
    return (["instructions"] if body.instructions else []) + list(body.model_extra or {})
