"""Every refusal in OpenAI's shape; keys, origins, sizes, and the lists that clients ask for."""

from __future__ import annotations

import logging

import httpx
import pytest

from .fakes import FakeEngine, Server, serving

ROUTE = "/v1/audio/speech"
GOOD = {"model": "fake", "input": "hello", "voice": "ada"}


def error_of(answer: httpx.Response) -> dict[str, object]:
    """The error, whose shape is checked."""
    body = answer.json()
    assert list(body) == ["error"] and list(body["error"]) == ["message", "type", "param", "code"]
    assert body["error"]["message"] and answer.headers["x-request-id"]
    return body["error"]


@pytest.mark.parametrize(
    ("change", "status", "param", "code"),
    [
        ({"input": ""}, 400, "input", "empty_input"),
        ({"input": " \n"}, 400, "input", "empty_input"),
        ({"input": None}, 400, "input", "invalid_value"),
        ({"input": 5}, 400, "input", "invalid_value"),
        ({"input": "x" * 201}, 400, "input", "input_too_long"),
        ({"voice": "nobody"}, 400, "voice", "voice_not_found"),
        ({"voice": "../../etc/passwd"}, 400, "voice", "voice_not_found"),
        ({"voice": {"id": "nobody"}}, 400, "voice", "voice_not_found"),
        ({"voice": {"name": "ada"}}, 400, "voice", "invalid_value"),
        ({"voice": 3}, 400, "voice", "invalid_value"),
        ({"model": "other"}, 404, "model", "model_not_found"),
        ({"response_format": "ogg"}, 400, "response_format", "unsupported_format"),
        ({"speed": 0.2}, 400, "speed", "invalid_value"),
        ({"speed": 4.1}, 400, "speed", "invalid_value"),
        ({"speed": "fast"}, 400, "speed", "invalid_value"),
        ({"seed": -1}, 400, "seed", "invalid_value"),
        ({"seed": 2**63}, 400, "seed", "invalid_value"),
        ({"stream_format": "ws"}, 400, "stream_format", "invalid_value"),
        ({"stream_format": "sse", "stream": False}, 400, "stream", "unsupported_parameter"),
        ({"instructions": "x" * 4097}, 400, "instructions", "invalid_value"),
    ],
)
def test_fields(client: httpx.Client, change: dict[str, object], status: int, param: str, code: str) -> None:
    answer = client.post(ROUTE, json=GOOD | change)
    error = error_of(answer)
    assert (answer.status_code, error["type"]) == (status, "invalid_request_error")
    assert (error["param"], error["code"]) == (param, code)


@pytest.mark.parametrize("missing", ["model", "input"])
def test_missing_fields(client: httpx.Client, missing: str) -> None:
    answer = client.post(ROUTE, json={name: value for name, value in GOOD.items() if name != missing})
    assert answer.status_code == 400
    assert (error_of(answer)["param"], error_of(answer)["code"]) == (missing, "missing_parameter")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", None),
        (b"{", "invalid_json"),
        (b'{"model": "fake", "input": "hello" "voice"}', "invalid_json"),
        (b'"hello"', None),
        (b"[]", None),
        (b"\xff\xfe", "invalid_json"),
        (b'{"model": "\xff"}', None),
        (b'{"model":"fake","input":"\\ud800"}', "invalid_value"),
        (b'{"model":"fake","input":"hi","speed":NaN}', "invalid_value"),
        (b'{"model":"fake","input":"hi","speed":1e999}', "invalid_value"),
    ],
)
def test_bodies(client: httpx.Client, content: bytes, code: str | None) -> None:
    answer = client.post(ROUTE, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert error_of(answer)["code"] == code


def test_a_body_that_is_not_called_json(client: httpx.Client) -> None:
    """A page elsewhere can send text/plain without asking; it must not make this machine speak."""
    answer = client.post(ROUTE, content=b'{"model":"fake","input":"hi"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 400 and "application/json" in str(error_of(answer)["message"])


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
        ("GET", ROUTE, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/page/nothing.js", 404, "not_found"),
        ("GET", "/page/..%2f..%2fapp.py", 404, "not_found"),
        ("POST", "/page/page.js", 405, "method_not_allowed"),
    ],
)
def test_addresses(client: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert error_of(answer)["code"] == code


def test_large_bodies(client: httpx.Client) -> None:
    def in_pieces():
        for _ in range(20):
            yield b"x" * 10_000

    for content in (b"x" * 100_001, b"x" * 5_000_000, in_pieces()):
        answer = client.post(ROUTE, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert error_of(answer)["code"] == "file_too_large"


def test_a_bug_is_told_without_its_words() -> None:
    engine = FakeEngine()
    engine.status = lambda: {}["secret"]
    with serving(engine) as server:
        answer = httpx.get(server.url + "/ready")
    assert answer.status_code == 500 and "secret" not in answer.text
    assert error_of(answer)["type"] == "server_error"
    assert answer.headers["x-should-retry"] == "false"


def test_until_it_is_warm() -> None:
    with serving(FakeEngine(), ready=False) as server:
        for answer in (httpx.get(server.url + "/ready"), httpx.post(server.url + ROUTE, json=GOOD)):
            assert answer.status_code == 503
            assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("2", "true")
            assert error_of(answer)["code"] == "not_ready"
        assert httpx.get(server.url + "/health").json() == {"status": "ok"}
        server.app.state.ready = True
        assert httpx.get(server.url + "/ready").json()["status"] == "ready"
        assert httpx.post(server.url + ROUTE, json=GOOD).status_code == 200


def test_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_TEST_KEY", "sésame")
    with serving(FakeEngine(), api_key_env="LEGATO_TEST_KEY") as server, httpx.Client(base_url=server.url) as client:
        for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": "sésame".encode()}):
            for answer in (
                client.post(ROUTE, json=GOOD, headers=headers),
                client.get("/openapi.json", headers=headers),
            ):
                assert answer.status_code == 401
                assert error_of(answer)["code"] == "invalid_api_key"
        right = {"Authorization": "Bearer sésame".encode()}
        assert client.post(ROUTE, json=GOOD, headers=right).status_code == 200
        assert client.get("/v1/models", headers=right).status_code == 200
        for path in ("/", "/health", "/ready", "/page/page.js"):
            assert client.get(path).status_code == 200


def test_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_TEST_KEY", "k")
    settings = {"cors_origins": ("https://app.example",), "api_key_env": "LEGATO_TEST_KEY"}
    with serving(FakeEngine(), **settings) as server, httpx.Client(base_url=server.url) as client:
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        asked = client.options(ROUTE, headers={"Origin": "https://app.example", **ask})
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        assert "access-control-allow-credentials" not in asked.headers
        refused = client.post(ROUTE, json=GOOD, headers={"Origin": "https://app.example"})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://app.example")
        assert client.options(ROUTE, headers={"Origin": "https://evil.example", **ask}).status_code == 400


def test_no_origins_by_default(client: httpx.Client) -> None:
    answer = client.post(ROUTE, json=GOOD, headers={"Origin": "https://app.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_nothing_of_the_text_is_logged(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "legato")
    client.post(ROUTE, json=GOOD | {"input": "a private matter"}, headers={"x-request-id": "turn-9"})
    client.post(ROUTE, json=GOOD | {"input": "a private matter", "speed": 9})
    assert "turn-9 ok: first sound" in caplog.text
    assert "private" not in caplog.text


def test_models(client: httpx.Client) -> None:
    [card] = client.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], type(card["created"]), card["owned_by"]) == ("fake", "model", int, "legato")
    assert card["default_voice"] == "ada" and card["max_input_characters"] == 200
    assert client.get("/v1/models/fake").json()["id"] == "fake"
    assert client.get("/v1/models/tts-1").json()["root"] == "fake"
    assert client.get("/v1/audio/models").json() == {"models": [{"id": "fake", "name": "fake"}]}


def test_schema(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    fields = schema["components"]["schemas"]["SpeechBody"]
    assert set(fields["required"]) == {"model", "input"}
    assert "422" not in str(schema)
    assert {"/v1/audio/speech", "/v1/audio/voices", "/v1/models", "/ready"} <= set(schema["paths"])


def test_voices(client: httpx.Client) -> None:
    listed = client.get("/v1/audio/voices").json()
    assert listed["voices"] == listed["data"]
    assert [(voice["id"], voice["name"]) for voice in listed["voices"]] == [
        ("bea", "bea"),
        ("ada", "ada"),
        ("cy", "cy"),
    ]
    assert client.get("/v1/audio/voices?legacy=true").json()["voices"] == ["bea", "ada", "cy"]


def test_the_page_loads_nothing_from_elsewhere(client: httpx.Client, server: Server) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "<script>" not in page.text and "style=" not in page.text and "://" not in page.text
    for name in ("page.js", "player.js", "speech.js", "wav.js", "wave.js", "words.js", "worklet.js", "page.css"):
        asset = client.get(f"/page/{name}")
        assert asset.headers["content-type"].split(";")[0] in ("text/javascript", "application/javascript", "text/css")
        assert "://" not in asset.text
    assert client.head("/").status_code == client.head("/health").status_code == 200


def test_a_broken_engine_is_not_alive() -> None:
    """Whoever watches the process can start it again."""
    engine = FakeEngine()
    engine.broken = True
    with serving(engine) as server:
        for path in ("/health", "/ready"):
            answer = httpx.get(server.url + path)
            assert answer.status_code == 503 and answer.json()["error"]["code"] == "engine_error"
