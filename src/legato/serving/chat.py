"""`POST /v1/chat/completions`: refuse at the door, submit, and hand the reply to its delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import Response

from legato.errors import UnsupportedFeature, UnsupportedFormat
from legato.messages import read_messages
from legato.streams import in_thread
from legato.types import ChatRequest, Modality, Sampling

from .completions import Completion
from .delivery import StreamResponse
from .encoders import FORMATS, Encoder, open_encoder
from .events import CONTENT_TYPE
from .failures import REFUSALS, not_ready
from .headers import stream_headers
from .names import CHAT_MODEL_ALIASES, check_model, resolve_voice
from .schemas import ChatBody, name_of
from .transcripts import Transcripts

if TYPE_CHECKING:
    from legato.engine import SpeechEngine

CHAT_PATH = "/v1/chat/completions"

STREAMED_FORMATS = ("pcm16", "pcm", "wav")
"""Names under which clients ask for a streamed reply: all mean bare 16-bit samples. OpenAI's write pcm16, DashScope's
write wav and expect no header."""


def chat_routes(engine: SpeechEngine, keep_alive_s: float) -> APIRouter:
    """The route, answering through `engine`. A model that only reads aloud refuses every conversation."""
    router = APIRouter(responses=REFUSALS)
    transcripts = Transcripts()

    @router.post(CHAT_PATH, response_model=None, response_class=Response)
    async def create_chat_completion(body: ChatBody, request: Request) -> Response:
        """Answer a conversation in text, or in text and speech, as OpenAI's route of that name."""
        if not request.app.state.ready:
            return not_ready("the server is not ready: it is warming up or shutting down").response()
        check_model(body.model, engine.model.name, CHAT_MODEL_ALIASES)
        refuse_unsupported(body)
        # What can fail comes before the submit: nobody would read a stream left behind by an error.
        encoder = open_reply_encoder(body, engine.model.rates.sample_hz)
        messages = transcripts.filled_in(body.messages)
        stream = await in_thread(lambda: engine.submit_chat(to_request(body, messages, engine)))
        reply = Completion(stream, engine.model.name, encoder, transcripts, body.stream_options.include_usage)
        ignored = ignored_parameters(body)
        if body.stream:
            headers = stream_headers(CONTENT_TYPE, body.seed, ignored)
            return StreamResponse(stream, reply.events, headers, keep_alive_s=keep_alive_s)
        return StreamResponse(stream, reply.whole, stream_headers("application/json", body.seed, ignored), whole=True)

    return router


def refuse_unsupported(body: ChatBody) -> None:
    """Fields that would change the reply, and cannot."""
    if body.n != 1:
        raise UnsupportedFeature(f"n = {body.n}: one reply is made per request", "n")
    if body.stop:
        raise UnsupportedFeature("stop is not supported: what follows would be spoken already", "stop")


def open_reply_encoder(body: ChatBody, sample_rate_hz: int) -> Encoder | None:
    """The encoder of the reply's sound; None for a reply in text only. Raises RequestError for the format."""
    if "audio" not in body.modalities:
        return None
    name, param = body.audio.format or ("pcm16" if body.stream else "wav"), "audio.format"
    known = tuple(dict.fromkeys(("pcm16", *FORMATS)))
    if name not in known:
        error = UnsupportedFormat(name, known)
        error.param = param
        raise error
    if not body.stream:
        return open_encoder(FORMATS["pcm" if name == "pcm16" else name], sample_rate_hz, whole=True)
    if name not in STREAMED_FORMATS:
        raise UnsupportedFeature(f"a streamed reply carries pcm16, not {name}; ask for that, or do not stream", param)
    return open_encoder(FORMATS["pcm"], sample_rate_hz)


def to_request(body: ChatBody, messages: list[Any], engine: SpeechEngine) -> ChatRequest:
    """What the engine is asked. Decodes the media in the messages, which takes a while. Raises RequestError."""
    model, voice = engine.model, None
    if "audio" in body.modalities:
        voice = resolve_voice(name_of(body.audio.voice), model.voices, model.default_voice)
    sampling = None
    if body.temperature is not None or body.top_p is not None:
        temperature, top_p = body.temperature, body.top_p
        sampling = Sampling(1.0 if temperature is None else temperature, top_p=1.0 if top_p is None else top_p)
    return ChatRequest(
        read_messages(messages, from_outside=True),
        modalities=cast(tuple[Modality, ...], tuple(body.modalities)),  # which the engine checks
        voice=voice,
        seed=body.seed,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        sampling=sampling,
        audio_in_video=body.audio_in_video,
    )


def ignored_parameters(body: ChatBody) -> list[str]:
    """Names of the fields that had no effect."""
    unused = ["audio"] if body.audio.model_fields_set and "audio" not in body.modalities else []
    unused += ["stream_options"] if body.stream_options.model_fields_set and not body.stream else []
    return unused + list(body.model_extra or {})
