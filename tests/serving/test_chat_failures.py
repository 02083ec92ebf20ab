"""Conversations that are refused, that fail, that wait and that are left."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from chatting import model

from legato.engine import SpeechEngine
from legato.errors import EngineError, Overloaded

from .conversing import BOTH, ROUTE, SMALL, HeldEars, body, chat_of, heard, said, small_engine, watched
from .fakes import FakeEngine, Plan, Server, serving, wait_for
from .test_refusals import error_of

# --- refused ---

JSON = {"content-type": "application/json"}
BROKEN = base64.b64encode(b"broken").decode()


@pytest.mark.parametrize(
    ("change", "status", "param", "code"),
    [
        ({"messages": []}, 400, "messages", None),
        ({"messages": "hello"}, 400, "messages", "invalid_value"),
        ({"messages": ["hello"]}, 400, "messages[0]", None),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages[0].role", None),
        ({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}, 400, "messages[0].audio.id", None),
        ({"messages": [{"role": "assistant", "audio": "audio_1"}]}, 400, "messages[0].content", None),
        ({"messages": [{"role": "user", "content": [{"type": "audio", "audio": "/etc/passwd"}]}]},
         400, "messages[0].content[0].type", None),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://host/x"}}]}]},
         400, "messages[0].content[0].image_url", None),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": BROKEN}}]}]},
         400, "messages", None),
        ({"messages": [*said(), *said("\ud800")]}, 400, "messages[1].content", None),
        ({"model": "other"}, 404, "model", "model_not_found"),
        ({"model": "tts-1"}, 404, "model", "model_not_found"),
        ({"modalities": ["smell"]}, 400, "modalities", None),
        ({"modalities": []}, 400, "modalities", None),
        ({"modalities": BOTH, "audio": {"voice": "nobody"}}, 400, "voice", "voice_not_found"),
        ({"modalities": BOTH, "audio": {"format": "ogg"}}, 400, "audio.format", "unsupported_format"),
        ({"modalities": BOTH, "audio": {"format": "mp3"}, "stream": True}, 400, "audio.format",
         "unsupported_parameter"),
        ({"modalities": BOTH, "audio": "bob"}, 400, "audio", "invalid_value"),
        ({"n": 2}, 400, "n", "unsupported_parameter"),
        ({"stop": "x"}, 400, "stop", "unsupported_parameter"),
        ({"stop": ["x"]}, 400, "stop", "unsupported_parameter"),
        ({"max_tokens": 0}, 400, "max_tokens", "invalid_value"),
        ({"temperature": 2.1}, 400, "temperature", "invalid_value"),
        ({"top_p": -1}, 400, "top_p", "invalid_value"),
        ({"seed": -1}, 400, "seed", "invalid_value"),
        ({"stream": "maybe"}, 400, "stream", "invalid_value"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_their_status(
    talker_client: httpx.Client, change: dict[str, Any], status: int, param: str, code: str | None, stream: bool
) -> None:
    content = json.dumps(body(stream=stream) | change)
    answer = talker_client.post(ROUTE, content=content, headers=JSON)
    error = error_of(answer)
    assert (answer.status_code, error["type"]) == (status, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)


def test_a_body_nested_too_deep(talker_client: httpx.Client) -> None:
    content = b'{"model":"small-talk","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for route in (ROUTE, "/v1/audio/speech"):
        answer = talker_client.post(route, content=content[: 99_000 if route != ROUTE else None], headers=JSON)
        assert answer.status_code == 400 and error_of(answer)["message"]


def test_a_full_queue_says_when_to_come_back(
    talker_client: httpx.Client, talker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: object) -> None:
        raise Overloaded(9, 9, retry_after_s=7)

    monkeypatch.setattr(talker.engine, "submit_chat", refuse)
    answer = talker_client.post(ROUTE, json=body(stream=True))
    assert answer.status_code == 429 and error_of(answer)["code"] == "server_busy"
    assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("7", "true")


def test_names_that_stand_for_the_model(talker_client: httpx.Client) -> None:
    assert talker_client.post(ROUTE, json=body(model="gpt-4o-audio-preview")).json()["model"] == "small-talk"
    assert talker_client.get("/v1/models/gpt-audio").json()["root"] == "small-talk"


def test_what_a_model_can_is_told() -> None:
    with small_engine() as engine, serving(engine) as server:
        [card] = httpx.get(server.url + "/v1/models").json()["data"]
    assert [card["capabilities"][name] for name in ("speech", "chat", "audio_input")] == [True, True, True]
    with SpeechEngine(model(writes=False), SMALL) as engine, serving(engine) as server:
        [card] = httpx.get(server.url + "/v1/models").json()["data"]
        answer = httpx.post(server.url + ROUTE, json=body())
    assert [card["capabilities"][name] for name in ("speech", "chat", "audio_input")] == [True, False, False]
    assert answer.status_code == 400 and error_of(answer)["code"] == "unsupported_parameter"
    assert "holds no conversations" in str(error_of(answer)["message"])


def test_a_model_without_its_voice() -> None:
    """It answers in text; speech is refused, under OpenAI's names too."""
    with small_engine() as engine, serving(engine) as server:
        engine.model = replace(engine.model, voices={}, default_voice="")
        engine.core.door.model = engine.model
        [card] = httpx.get(server.url + "/v1/models").json()["data"]
        text = httpx.post(server.url + ROUTE, json=body())
        spoken = httpx.post(server.url + ROUTE, json=body(modalities=BOTH, audio={"voice": "alloy"}))
    assert [card["capabilities"][name] for name in ("speech", "chat")] == [False, True]
    assert text.status_code == 200 and spoken.status_code == 400 and error_of(spoken)["param"] == "modalities"


def test_media_may_be_larger_than_texts() -> None:
    with small_engine() as engine, serving(engine, max_media_bytes=300_000) as server:
        padding = {"metadata": "x" * 200_000}
        assert httpx.post(server.url + ROUTE, json=body(**padding)).status_code == 200
        spoken = httpx.post(server.url + "/v1/audio/speech", json={"model": "small-talk", "input": "a", **padding})
        assert spoken.status_code == 413
        answer = httpx.post(server.url + ROUTE, json=body(metadata="x" * 300_000))
        assert answer.status_code == 413 and "300000" in str(error_of(answer)["message"])


def test_until_it_is_warm() -> None:
    with small_engine() as engine, serving(engine, ready=False) as server:
        answer = httpx.post(server.url + ROUTE, json=body())
    assert answer.status_code == 503 and error_of(answer)["code"] == "not_ready"


# --- failures ---


def test_a_failure_in_the_middle_is_an_error_event_and_no_end(talker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the engine's own failures end a stream: the event, no [DONE], and a body that breaks."""
    chat_of(talker).slow = True
    streams = watched(talker, monkeypatch)
    received = b""
    wanted = body(stream=True, max_tokens=200)
    with httpx.stream("POST", talker.url + ROUTE, json=wanted) as answer, pytest.raises(httpx.RemoteProtocolError):
        for piece in answer.iter_bytes():
            received += piece
            streams[0].fail(EngineError("out of memory"))
    *chunks, last, rest = received.decode().split("\n\n")
    assert rest == "" and b"[DONE]" not in received and '"role":"assistant"' in chunks[0]
    assert json.loads(last[6:]) == {
        "type": "error",
        "error": {"message": "out of memory", "type": "server_error", "param": None, "code": "engine_error"},
    }
    wait_for(lambda: talker.engine.status()["running"] == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_first_piece_has_its_status(
    talker_client: httpx.Client, talker: Server, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def submit(request: Any) -> Any:
        made = engine_submit(request)
        made.fail(EngineError("out of memory"))
        return made

    engine_submit = talker.engine.submit_chat
    monkeypatch.setattr(talker.engine, "submit_chat", submit)
    monkeypatch.setattr(chat_of(talker), "slow", True)
    answer = talker_client.post(ROUTE, json=body(stream=stream))
    assert answer.status_code == 500 and error_of(answer)["code"] == "engine_error"


# --- leaving, waiting, many at once ---


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream": True, "modalities": BOTH}, {"modalities": BOTH}])
def test_leaving_gives_everything_back(talker: Server, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    chat_of(talker).slow = True
    streams = watched(talker, monkeypatch)
    left = threading.Event()

    def ask() -> None:
        with httpx.stream("POST", talker.url + ROUTE, json=body(max_tokens=380, **fields), timeout=0.3) as answer:
            next(answer.iter_raw())

    def give_up() -> None:
        with suppress(httpx.ReadTimeout):  # the whole reply never comes
            ask()
        left.set()

    asking = threading.Thread(target=give_up)
    asking.start()
    assert left.wait(5)
    wait_for(lambda: talker.engine.status()["running"] == 0)
    asking.join()
    assert sum(count for _, count in streams[0].report.texts) < 200
    core = talker.engine.core
    assert not any(map(len, (core.lm, core.flow, core.vocoder, core.replies.lm, core.replies.media)))


def test_leaving_the_queue() -> None:
    """The second request waits for the first to end; whoever waited is not answered after they have gone."""
    with small_engine(SMALL.model_copy(update={"max_requests": 1})) as engine, serving(engine) as server:
        chat_of(server).slow = True
        with httpx.stream("POST", server.url + ROUTE, json=body(stream=True, max_tokens=300)) as first:
            received = first.iter_raw()
            next(received)
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(server.url + ROUTE, json=body(stream=True), timeout=0.3)
            wait_for(lambda: engine.status()["waiting"] == 0)
            assert engine.status()["running"] == 1 and next(received)
        assert len(chat_of(server).talks) == 1


def test_a_silent_queue_sends_comments() -> None:
    sound = base64.b64encode(bytes(100)).decode()
    parts = [{"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}]
    messages = [{"role": "user", "content": parts}]
    with small_engine() as engine, serving(engine, keep_alive_s=0.1) as server:
        assert engine.model.writer is not None and isinstance(engine.model.writer.media, HeldEars)
        ears = engine.model.writer.media
        ears.free.clear()
        threading.Timer(0.55, ears.free.set).start()
        answer = httpx.post(server.url + ROUTE, json=body(messages=messages, stream=True), timeout=10)
        comments = answer.text.count(": keep-alive\n\n")
        assert answer.status_code == 200 and comments >= 2
        assert heard(answer.text.replace(": keep-alive\n\n", "")).text
        ears.free.clear()
        threading.Timer(0.3, ears.free.set).start()
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            parts[0]["input_audio"]["data"] = base64.b64encode(bytes(90)).decode()  # not what was heard before
            chunks = client.chat.completions.create(model="small-talk", messages=messages, stream=True)  # type: ignore
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def test_a_failure_after_comments_is_an_error_event() -> None:
    with serving(FakeEngine(), keep_alive_s=0.05) as server:
        server.engine.plan = Plan(before_first_s=0.3, fail_after=0, failure=EngineError("out of memory"))
        received = b""
        wanted = {"model": "fake", "input": "hello", "stream_format": "sse"}
        url = server.url + "/v1/audio/speech"
        with httpx.stream("POST", url, json=wanted) as answer, pytest.raises(httpx.RemoteProtocolError):
            for piece in answer.iter_bytes():
                received += piece
    assert answer.status_code == 200 and received.startswith(b": keep-alive\n\n")
    assert json.loads(received.decode().split("\n\n")[-2][6:])["error"]["code"] == "engine_error"


def test_speech_events_are_kept_alive_between_chunks() -> None:
    with serving(FakeEngine(), keep_alive_s=0.05) as server:
        server.engine.plan = Plan(chunks=3, between_s=0.2)
        wanted = {"model": "fake", "input": "hello"}
        events = httpx.post(server.url + "/v1/audio/speech", json=wanted | {"stream_format": "sse"}).text
        plain = httpx.post(server.url + "/v1/audio/speech", json=wanted | {"response_format": "pcm"}).content
    blocks = events.split("\n\n")
    assert blocks[0].startswith("data: ") and blocks.count(": keep-alive") >= 2
    assert b"keep-alive" not in plain


def test_openai_client_raises_what_breaks_a_stream(
    openai_talker: openai.OpenAI, talker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_of(talker).slow = True
    streams = watched(talker, monkeypatch)
    chunks = openai_talker.chat.completions.create(model="small-talk", messages=said(), stream=True, max_tokens=200)  # type: ignore
    next(iter(chunks))
    streams[0].fail(EngineError("out of memory"))
    with pytest.raises(openai.APIError, match="out of memory"):
        list(chunks)
