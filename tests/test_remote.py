from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from legato.config import ApiConfig
from legato.doctor import loopback_server
from legato.engine import SpeechEngine
from legato.errors import ConfigError, RequestError, ServerError, SpeechError
from legato.protocols import SpeechModel
from legato.remote import RemoteSpeech, speech_url

PCM = np.arange(-3000, 3000, dtype="<i2")


@dataclass
class Endpoint:
    """A server that does what the test says with each request, and remembers it."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: send(handler, [PCM.tobytes()])


def send(
    handler: BaseHTTPRequestHandler,
    pieces: list[bytes],
    status: int = 200,
    kind: str = "audio/pcm",
    pause_s: float = 0.0,
) -> None:
    """A chunked answer; an empty piece cuts the connection in the middle."""
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for piece in pieces:
        if not piece:
            handler.close_connection = True
            return
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        time.sleep(pause_s)
    handler.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    state = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            state.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            state.headers.append(self.headers)
            try:
                state.answer(self)
            except OSError:
                self.close_connection = True  # the client had enough

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # clients that hang up are what some tests are about

    server = Server(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield state
    server.shutdown()
    server.server_close()


def client(endpoint: Endpoint, **settings: Any) -> RemoteSpeech:
    return RemoteSpeech(ApiConfig(base_url=endpoint.url, **settings))


def spoken(endpoint: Endpoint, **settings: Any) -> np.ndarray:
    with client(endpoint, **settings) as remote, remote.stream("Hello.") as heard:
        return np.concatenate([chunk.pcm for chunk in heard])


def answer_status(status: int, body: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: send(handler, [body.encode()], status, "application/json")


# --- speaking ---


@pytest.mark.parametrize("size", [1, 3, 1001, len(PCM) * 2])
def test_samples_survive_any_cut_of_the_body(endpoint: Endpoint, size: int) -> None:
    data = PCM[:600].tobytes() if size < 10 else PCM.tobytes()
    endpoint.answer = lambda handler: send(handler, [data[i : i + size] for i in range(0, len(data), size)])
    np.testing.assert_array_equal(np.rint(spoken(endpoint) * 32767), np.frombuffer(data, "<i2"))


def test_chunks_come_before_the_body_is_over_and_are_reported(endpoint: Endpoint) -> None:
    go_on = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "audio/pcm;rate=16000")
        handler.send_header("Content-Length", "4000")
        handler.end_headers()
        handler.wfile.write(bytes(1000))
        go_on.wait(5)
        handler.wfile.write(bytes(3000))

    endpoint.answer = answer
    with client(endpoint) as remote, remote.stream("Hello.", "ash", seed=7) as heard:
        chunks = iter(heard)
        first = next(chunks)
        assert 0 < len(first.pcm) <= 500
        go_on.set()
        rest = list(chunks)
    report = heard.report
    assert (report.sample_rate_hz, report.seed, report.model, report.voice) == (16000, 7, "tts-1", "ash")
    assert [chunk.start_sample for chunk in rest[:1]] == [len(first.pcm)]
    assert rest[-1].final and not len(rest[-1].pcm)
    assert report.audio_s == 2000 / 16000
    assert report.ttfa_s is not None and report.ttfa_s < report.wall_s


def test_request_says_what_was_asked_and_nothing_else(endpoint: Endpoint) -> None:
    with client(endpoint) as remote:
        for options in ({}, {"voice": "ash", "speed": 1.5, "seed": 3, "normalize": False}):
            with remote.stream("Hello.", **options) as heard:
                list(heard)
    plain = {"model": "tts-1", "input": "Hello.", "voice": "alloy", "response_format": "pcm", "stream": True}
    assert endpoint.bodies == [plain, plain | {"voice": "ash", "speed": 1.5, "seed": 3, "normalize": False}]
    assert "authorization" not in endpoint.headers[0]


def test_key_comes_from_the_named_variable_only(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEECH_KEY", "s3cret")
    spoken(endpoint, api_key_env="SPEECH_KEY")
    assert endpoint.headers[0]["authorization"] == "Bearer s3cret"
    with pytest.raises(ConfigError, match="SPEECH_KEY_2"):
        client(endpoint, api_key_env="SPEECH_KEY_2")


def test_key_over_plain_http_to_another_machine_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPEECH_KEY", "s3cret")
    for url in ("http://127.0.0.1:8000", "http://localhost", "http://[::1]:80", "https://host"):
        RemoteSpeech(ApiConfig(base_url=url, api_key_env="SPEECH_KEY")).close()
    assert not caplog.records
    RemoteSpeech(ApiConfig(base_url="http://host.example/v1", api_key_env="SPEECH_KEY")).close()
    assert "in the clear" in caplog.text and "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://host", "http://host/v1/audio/speech"),
        ("http://host/", "http://host/v1/audio/speech"),
        ("https://host:8/api/v1", "https://host:8/api/v1/audio/speech"),
        ("https://host/api", "https://host/api/v1/audio/speech"),
        ("https://host/v1/audio/speech", "https://host/v1/audio/speech"),
    ],
)
def test_address(base: str, url: str) -> None:
    assert speech_url(base) == url


@pytest.mark.parametrize("base", ["", "host", "ftp://host", "http://", "http://host/?x=1", "http://a b"])
def test_what_is_no_address_is_refused(base: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        RemoteSpeech(ApiConfig(base_url=base))


# --- failing ---


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (400, '{"error": {"message": "no such voice", "param": "voice"}}', RequestError, "no such voice"),
        (401, '{"error": {"message": "wrong key", "param": null}}', RequestError, "wrong key"),
        (422, '{"detail": "input is too long"}', RequestError, "input is too long"),
        (404, "<html>not\nhere</html>", RequestError, "<html>not here</html>"),
        (429, '{"error": {"message": "busy"}}', ServerError, "busy"),
        (503, '{"error": {"message": "not ready"}}', ServerError, "not ready"),
        (500, "", ServerError, "Internal Server Error"),
    ],
)
def test_refusals_carry_the_servers_words(
    endpoint: Endpoint, status: int, body: str, kind: type[Exception], words: str
) -> None:
    endpoint.answer = answer_status(status, body)
    if not body:
        endpoint.answer = lambda handler: send(handler, [], status, "text/plain")
    with pytest.raises(kind, match=f"answered {status}: {words}"):
        spoken(endpoint)
    assert len(endpoint.bodies) == 1, "a request must not be sent twice"


def test_parameter_of_a_refusal_is_kept(endpoint: Endpoint) -> None:
    endpoint.answer = answer_status(400, '{"error": {"message": "no such voice", "param": "voice"}}')
    with pytest.raises(RequestError) as caught:
        spoken(endpoint)
    assert caught.value.param == "voice"


def test_redirect_is_named_and_not_followed(endpoint: Endpoint) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(308)
        handler.send_header("Location", "https://elsewhere/v1/audio/speech")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    endpoint.answer = answer
    with pytest.raises(ServerError, match="moved to https://elsewhere"):
        spoken(endpoint)


@pytest.mark.parametrize(
    ("pieces", "kind", "words"),
    [
        ([b"ID3 mp3"], "audio/mpeg", "when asked for pcm"),
        ([b'{"ok": true}'], "application/json", "when asked for pcm"),
        ([b"RIFF0000WAVE"], "audio/pcm", "wav file"),
        ([], "audio/pcm", "without any sound"),
    ],
)
def test_answers_that_are_not_pcm_are_refused(endpoint: Endpoint, pieces: list[bytes], kind: str, words: str) -> None:
    endpoint.answer = lambda handler: send(handler, pieces, 200, kind)
    with pytest.raises(ServerError, match=words):
        spoken(endpoint)


def test_body_that_breaks_off_gives_what_came_and_then_an_error(endpoint: Endpoint) -> None:
    endpoint.answer = lambda handler: send(handler, [bytes(2000), b""])
    got = 0
    with client(endpoint) as remote, remote.stream("Hello.") as heard, pytest.raises(ServerError, match="failed"):
        for chunk in heard:
            got += len(chunk.pcm)
    assert got == 1000 and heard.report.audio_s > 0
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize("before", [[], [bytes(200)]])
def test_silence_beyond_the_limit_is_an_error(endpoint: Endpoint, before: list[bytes]) -> None:
    endpoint.answer = lambda handler: time.sleep(0.5) if not before else send(handler, [*before, bytes(2)], pause_s=0.5)
    with pytest.raises(ServerError, match="in time"):
        spoken(endpoint, timeout_seconds=0.15)


def test_nobody_there(endpoint: Endpoint) -> None:
    with RemoteSpeech(ApiConfig(base_url="http://127.0.0.1:9")) as remote, pytest.raises(ServerError, match="reached"):
        remote.stream("Hello.")


def test_leaving_early_hangs_up(endpoint: Endpoint) -> None:
    hung_up = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        try:
            send(handler, [bytes(20_000)] * 500, pause_s=0.005)
        except OSError:
            hung_up.set()

    endpoint.answer = answer
    with client(endpoint) as remote, remote.stream("Hello.") as heard:
        next(iter(heard))
    assert hung_up.wait(5)


def test_client_of_our_own_server_hears_the_engine(piccolo: SpeechModel) -> None:
    with SpeechEngine(piccolo) as engine, loopback_server(engine) as url:
        expected = engine.generate("Good morning.").samples
        with RemoteSpeech(ApiConfig(base_url=url), "piccolo") as remote, remote.stream("Good morning.") as heard:
            got = np.concatenate([chunk.pcm for chunk in heard])
        with RemoteSpeech(ApiConfig(base_url=url)) as remote, pytest.raises(RequestError, match="unknown voice"):
            remote.stream("Good morning.", "nobody")
    np.testing.assert_allclose(got, expected, atol=1 / 32767)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(SpeechError, match=r"legato-speech\[bench\]"):
        RemoteSpeech(ApiConfig(base_url="http://host"))
