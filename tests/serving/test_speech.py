"""`POST /v1/audio/speech` through a real server and real clients: what is asked, what is answered."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest

from legato.errors import EngineError, Overloaded
from legato.serving.encoders import FORMATS, SIZE_UNKNOWN, to_int16
from legato.serving.names import MODEL_ALIASES, VOICE_ALIASES

from .fakes import FakeEngine, Plan, Server, serving, tone
from .test_encoders import SLACK_SAMPLES, decode, loudest_pitch_hz

ROUTE = "/v1/audio/speech"


def body(text: str = "hello", **fields: object) -> dict[str, object]:
    return {"model": "fake", "input": text, "voice": "ada", **fields}


def spoken(plan: Plan, pitch_hz: int = 440) -> bytes:
    return to_int16(tone(pitch_hz, 0, plan.samples)).tobytes()


def events(text: str) -> list[dict]:
    blocks = text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [json.loads(block[6:]) for block in blocks]


# --- audio ---


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_streams_all_of_the_sound(client: httpx.Client, server: Server, name: str) -> None:
    answer = client.post(ROUTE, json=body(response_format=name))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == FORMATS[name].content_type
    assert answer.headers["transfer-encoding"] == "chunked"
    decoded, rate_hz = decode(name, answer.content)
    extra = len(decoded) / rate_hz * 24000 - server.engine.plan.samples
    assert 0 <= extra <= SLACK_SAMPLES[name]
    assert loudest_pitch_hz(decoded, rate_hz) == pytest.approx(440, abs=2)


def test_headers(client: httpx.Client) -> None:
    answer = client.post(ROUTE, json=body(seed=41), headers={"x-request-id": "turn-7"})
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.headers["x-request-id"] == "turn-7"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-seed"] == "41"
    assert answer.headers["server-timing"].startswith("ttfa;dur=")
    assert "x-ignored-parameters" not in answer.headers


@pytest.mark.parametrize("sent", ["", "a b", "x" * 200, "ä"])
def test_a_strange_request_id_is_replaced(client: httpx.Client, sent: str) -> None:
    made = client.get("/health", headers={"x-request-id": sent.encode()}).headers["x-request-id"]
    assert made.startswith("req_") and len(made) == 36


def test_streamed_and_whole_wav(client: httpx.Client, server: Server) -> None:
    streamed = client.post(ROUTE, json=body(response_format="wav"))
    whole = client.post(ROUTE, json=body(response_format="wav", stream=False))
    assert int.from_bytes(streamed.content[4:8], "little") == SIZE_UNKNOWN
    assert whole.headers["content-length"] == str(len(whole.content))
    assert "transfer-encoding" not in whole.headers
    assert int.from_bytes(whole.content[4:8], "little") == len(whole.content) - 8
    assert streamed.content[44:] == whole.content[44:] == spoken(server.engine.plan)


def test_pcm_is_24_khz_whatever_the_model(server: Server) -> None:
    with serving(FakeEngine(sample_hz=48000)) as other:
        pcm = httpx.post(other.url + ROUTE, json=body(response_format="pcm")).content
        wav = httpx.post(other.url + ROUTE, json=body(response_format="wav")).content
    assert abs(len(pcm) // 2 - server.engine.plan.samples // 2) <= 1
    assert int.from_bytes(wav[24:28], "little") == 48000


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed_changes_the_length_and_not_the_pitch(client: httpx.Client, server: Server, speed: float) -> None:
    answer = client.post(ROUTE, json=body(response_format="pcm", speed=speed))
    pcm, rate_hz = decode("pcm", answer.content)
    assert len(pcm) * speed == pytest.approx(server.engine.plan.samples, rel=0.1)
    assert loudest_pitch_hz(pcm, rate_hz) == pytest.approx(440, rel=0.03)


# --- fields ---


@pytest.mark.parametrize(
    ("voice", "asked"),
    [
        ("bea", "bea"),
        ({"id": "cy"}, "cy"),
        (None, None),
        ("", None),
        ("alloy", "ada"),
        ("ash", "bea"),
        ("ballad", "cy"),
        ("coral", "ada"),
    ],
)
def test_voice(client: httpx.Client, server: Server, voice: object, asked: str | None) -> None:
    assert client.post(ROUTE, json=body(voice=voice)).status_code == 200
    assert server.engine.runs[-1].request.voice == asked


def test_every_openai_name_works(client: httpx.Client, server: Server) -> None:
    server.engine.plan = Plan(chunks=1)
    for voice in VOICE_ALIASES:
        assert client.post(ROUTE, json=body(voice=voice)).status_code == 200
    for model in MODEL_ALIASES:
        assert client.post(ROUTE, json={"model": model, "input": "hello"}).status_code == 200


def test_fields_reach_the_engine(client: httpx.Client, server: Server) -> None:
    client.post(ROUTE, json=body("Grüß dich, 你好", seed=2**63 - 1, normalize=False))
    request = server.engine.runs[-1].request
    assert (request.text, request.seed, request.normalize) == ("Grüß dich, 你好", 2**63 - 1, False)


def test_null_is_a_field_left_out(client: httpx.Client, server: Server) -> None:
    nulls = dict.fromkeys(["instructions", "response_format", "speed", "stream_format", "seed", "normalize", "stream"])
    answer = client.post(ROUTE, json=body(**nulls))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/mpeg")
    assert server.engine.runs[-1].request.normalize is True


def test_fields_without_effect_are_named(client: httpx.Client) -> None:
    extras = {"instructions": "whisper", "language": "en", "a\r\nSet-Cookie: b": 1}
    answer = client.post(ROUTE, json=body(**extras))
    assert answer.status_code == 200
    assert answer.headers["x-ignored-parameters"] == "instructions, language, a??Set-Cookie??b"
    assert "set-cookie" not in answer.headers


# --- events ---


def test_events_carry_one_stream(client: httpx.Client, server: Server) -> None:
    plain = client.post(ROUTE, json=body(response_format="mp3"))
    answer = client.post(ROUTE, json=body(response_format="mp3", stream_format="sse", seed=5))
    assert answer.headers["content-type"] == "text/event-stream"
    *deltas, done = events(answer.text)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    pieces = [base64.b64decode(event["audio"]) for event in deltas]
    assert b"".join(pieces) == plain.content
    assert len(pieces) > 5 and all(len(piece) % 6 == 0 for piece in pieces[:-1])
    # Clients that join the texts and decode once get all of it too.
    assert base64.b64decode("".join(event["audio"] for event in deltas)) == plain.content
    assert done["type"] == "speech.audio.done"
    assert done["usage"] == {"input_tokens": 7, "output_tokens": 20, "total_tokens": 27}
    assert done["stats"]["audio_s"] == pytest.approx(server.engine.plan.samples / 24000, abs=1e-5)
    assert done["stats"]["seed"] == 5 and done["stats"]["ttfa_s"] > 0


# --- failures ---


def with_broken_stream(server: Server, **fields: object) -> tuple[httpx.Response, bytes]:
    """The answer, and what came before the body broke; fails if the body ended as if all were well."""
    server.engine.plan = Plan(fail_after=3, failure=EngineError("out of memory"))
    received = b""
    with httpx.stream("POST", server.url + ROUTE, json=body(**fields)) as answer:
        with pytest.raises(httpx.RemoteProtocolError):
            for piece in answer.iter_bytes():
                received += piece
        return answer, received


def test_a_failure_in_the_middle_breaks_the_audio(server: Server) -> None:
    answer, received = with_broken_stream(server, response_format="pcm")
    assert answer.status_code == 200
    assert received == spoken(server.engine.plan)[: 3 * 2 * server.engine.plan.chunk_samples]


def test_a_failure_in_the_middle_is_an_error_event_and_no_end(server: Server) -> None:
    _, received = with_broken_stream(server, stream_format="sse")
    *deltas, last = events(received.decode())
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert last["type"] == "error"
    assert last["error"] == {
        "message": "out of memory", "type": "server_error", "param": None, "code": "engine_error"
    }  # fmt: skip


@pytest.mark.parametrize("fields", [{}, {"stream_format": "sse"}, {"stream": False}])
def test_a_failure_before_the_first_sound_has_its_status(
    client: httpx.Client, server: Server, fields: dict[str, object]
) -> None:
    server.engine.plan = Plan(fail_after=0, failure=EngineError("out of memory"))
    answer = client.post(ROUTE, json=body(**fields))
    assert answer.status_code == 500
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["code"] == "engine_error"


def test_a_whole_body_has_its_status_even_when_it_fails_late(client: httpx.Client, server: Server) -> None:
    server.engine.plan = Plan(fail_after=7, failure=EngineError("out of memory"))
    assert client.post(ROUTE, json=body(stream=False)).status_code == 500


def test_a_full_queue_says_when_to_come_back(client: httpx.Client, server: Server) -> None:
    server.engine.plan = Plan(refuse=Overloaded(9, 9, retry_after_s=7))
    answer = client.post(ROUTE, json=body())
    assert answer.status_code == 429
    assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("7", "true")
    assert (answer.json()["error"]["type"], answer.json()["error"]["code"]) == ("rate_limit_error", "server_busy")


# --- many at once ---


def test_eight_at_once_get_their_own_sound(server: Server) -> None:
    server.engine.plan = Plan(chunks=12, between_s=0.01)
    pitches = [300 + 50 * index for index in range(8)]

    def ask(pitch_hz: int) -> bytes:
        return httpx.post(server.url + ROUTE, json=body(f"{pitch_hz} hertz", response_format="pcm"), timeout=10).content

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, pitches))
    assert answers == [spoken(server.engine.plan, pitch_hz) for pitch_hz in pitches]


# --- OpenAI's own client ---


@pytest.fixture
def openai_client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def test_openai_client_streams(openai_client: openai.OpenAI, server: Server) -> None:
    server.engine.plan = Plan(chunks=6, between_s=0.03)
    pieces = []
    with openai_client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="nova", input="hello", response_format="pcm"
    ) as answer:
        for piece in answer.iter_bytes():
            pieces.append(piece)
            if len(pieces) == 1:
                assert server.engine.runs[-1].made_chunks < 6  # it is heard while it is still being made
    assert b"".join(pieces) == spoken(server.engine.plan)
    assert answer.headers["x-request-id"].startswith("req_")


def test_openai_client_whole(openai_client: openai.OpenAI, server: Server) -> None:
    answer = openai_client.audio.speech.create(
        model="gpt-4o-mini-tts", voice="marin", input="hello", instructions="softly", speed=1.0, response_format="flac"
    )
    assert np.array_equal(np.rint(decode("flac", answer.content)[0] * 32768), to_int16(tone(440, 0, 19210)))


def test_openai_client_reads_events(openai_client: openai.OpenAI) -> None:
    with openai_client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="ash", input="hello", stream_format="sse"
    ) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert json.loads(lines[-1].removeprefix("data: "))["usage"]["total_tokens"] == 27


def test_openai_client_raises_its_own_errors(openai_client: openai.OpenAI, server: Server) -> None:
    speech = openai_client.audio.speech
    with pytest.raises(openai.NotFoundError, match="unknown model") as unknown_model:
        speech.create(model="other", voice="ash", input="hello")
    assert (unknown_model.value.code, unknown_model.value.param) == ("model_not_found", "model")
    assert unknown_model.value.request_id
    with pytest.raises(openai.BadRequestError, match="ada, cy") as unknown_voice:
        speech.create(model="tts-1", voice="nobody", input="hello")
    assert unknown_voice.value.code == "voice_not_found"
    server.engine.plan = Plan(refuse=Overloaded(9, 9))
    with pytest.raises(openai.RateLimitError):
        speech.create(model="tts-1", voice="ash", input="hello")


def test_openai_client_lists_models(openai_client: openai.OpenAI) -> None:
    assert [model.id for model in openai_client.models.list()] == ["fake"]
    assert openai_client.models.retrieve("tts-1").id == "tts-1"
