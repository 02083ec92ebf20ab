"""Speech from another server: any OpenAI-compatible `POST …/v1/audio/speech`, streamed, with the same report.

The sound is asked for as `pcm` (16-bit, mono, 24 kHz unless the answer says otherwise): it has no container that would
have to be waited for. Nothing is tried twice: a request that has begun may have been spoken, and paid for.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from legato.config import ApiConfig
from legato.errors import ConfigError, RequestError, ServerError, SpeechError
from legato.playback import Heard
from legato.report import StreamReport
from legato.types import AudioChunk

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("legato")

ROUTE = "/v1/audio/speech"
PCM_RATE_HZ = 24000
CONNECT_LIMIT_S = 10.0

DEFAULT_MODEL, DEFAULT_VOICE = "tts-1", "alloy"
"""Names that OpenAI's own server and most of those that follow it know."""

_OURS_TO_MEND = {408, 429}
"""Refusals in the 400s that say nothing against the request."""

_LONGEST_MESSAGE = 500


class RemoteSpeech:
    """A client of one endpoint. Usable from any thread; `close` it, or use it as a context manager.

    Raises ConfigError when the key's variable is not set or the address is none, SpeechError when httpx is missing.
    """

    _client: httpx.Client

    def __init__(self, config: ApiConfig, model: str | None = None) -> None:
        self.url = speech_url(config.base_url)
        self.model = model or DEFAULT_MODEL
        self._stream = config.stream
        key = config.api_key
        if key is not None and not _private_way(self.url):
            log.warning("%s is not https: the key travels in the clear", config.base_url)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        httpx = _httpx()
        # The read limit is the longest silence, not the length of the speech.
        timeout = httpx.Timeout(config.timeout_seconds, connect=min(CONNECT_LIMIT_S, config.timeout_seconds))
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.Client(headers=headers, timeout=timeout, limits=limits)

    def stream(
        self,
        text: str,
        voice: str | None = None,
        *,
        speed: float = 1.0,
        seed: int | None = None,
        normalize: bool | None = None,
    ) -> Heard:
        """Ask for speech; its chunks come as the server sends them. `seed` and `normalize` are left out when None.

        Returns once the server has answered. Raises RequestError for what the server refuses to speak, ServerError
        for everything else that goes wrong there or on the way; reading raises ServerError when the answer breaks off.
        """
        body: dict[str, Any] = {"model": self.model, "input": text, "voice": voice or DEFAULT_VOICE}
        body |= {"response_format": "pcm", "stream": self._stream}
        optional = {"speed": None if speed == 1.0 else speed, "seed": seed, "normalize": normalize}
        body |= {name: value for name, value in optional.items() if value is not None}
        began_s = time.perf_counter()
        with _failures(self.url):
            response = self._client.send(self._client.build_request("POST", self.url, json=body), stream=True)
        try:
            with _failures(self.url):
                rate_hz = _checked(response)
        except SpeechError:
            response.close()
            raise
        report = StreamReport(rate_hz, seed or 0, self.model, voice or DEFAULT_VOICE)
        return Heard(_chunks(response, self.url, rate_hz), report, response.close, began_s)

    def close(self) -> None:
        """Close all connections; streams still being read end with ServerError."""
        self._client.close()

    def __enter__(self) -> RemoteSpeech:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def speech_url(base_url: str) -> str:
    """The address to post to: a base with or without /v1, or the whole address. Raises ConfigError when it is none."""
    if not re.fullmatch(r"https?://[^/\s?#]+[^\s?#]*", base_url):
        raise ConfigError(f"api.base_url = {base_url!r} is not an address; write https://host or https://host/v1")
    base = base_url.rstrip("/")
    if base.endswith(ROUTE.removeprefix("/v1")):
        return base
    return base + (ROUTE.removeprefix("/v1") if base.endswith("/v1") else ROUTE)


def _private_way(url: str) -> bool:
    """Whether nobody on the way can read along: https, or this machine."""
    host = re.sub(r"^https?://(?:[^@/]*@)?(\[[^]]*\]|[^:/]*).*", r"\1", url).strip("[]")
    if url.startswith("https:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _httpx() -> ModuleType:
    try:
        import httpx as module
    except ImportError:
        raise SpeechError("a remote endpoint needs the package httpx: pip install 'legato-speech[bench]'") from None
    return module


@contextmanager
def _failures(url: str) -> Iterator[None]:
    """What httpx raises, as ServerError."""
    httpx = _httpx()
    try:
        yield
    except httpx.TimeoutException as error:
        raise ServerError(f"{url} did not answer in time ({type(error).__name__})") from error
    except httpx.ConnectError as error:
        raise ServerError(f"{url} cannot be reached: {error}") from error
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
        raise ServerError(f"{url} failed: {error or type(error).__name__}") from error


def _checked(response: httpx.Response) -> int:
    """The sample rate of an answer that carries sound. Raises RequestError or ServerError with the server's words."""
    if response.status_code != 200:
        response.read()
        raise _refusal(response)
    kind = response.headers.get("content-type", "").lower()
    sound = re.match(r"audio/(?:x-)?(?:pcm|l16|raw)|application/octet-stream|$", kind)
    if sound is None:
        raise ServerError(f"{response.url} answered with {kind!r} when asked for pcm")
    rate = re.search(r"rate=(\d+)", kind)
    return int(rate[1]) if rate else PCM_RATE_HZ


def _refusal(response: httpx.Response) -> SpeechError:
    status = response.status_code
    message, param = _words(response.text)
    if response.has_redirect_location:
        message = f"it moved to {response.headers['location']}; write that into api.base_url"
    said = f"{response.url} answered {status}: {message or response.reason_phrase}"
    if 400 <= status < 500 and status not in _OURS_TO_MEND:
        return RequestError(said, param)
    return ServerError(said)


def _words(text: str) -> tuple[str, str | None]:
    """Message and parameter of an error body: OpenAI's shape, FastAPI's, or plain text."""
    try:
        body = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:_LONGEST_MESSAGE], None
    error = body.get("error", body.get("detail", body)) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error)[:_LONGEST_MESSAGE], None
    param = error.get("param")
    return str(error.get("message", error))[:_LONGEST_MESSAGE], param if isinstance(param, str) else None


def _chunks(response: httpx.Response, url: str, rate_hz: int) -> Iterator[AudioChunk]:
    """Whole samples as they arrive, then an empty final chunk."""
    start, rest = 0, b""
    with _failures(url):
        for piece in response.iter_bytes():
            if start == 0 and piece.startswith(b"RIFF"):
                raise ServerError(f"{url} answered with a wav file when asked for pcm")
            data = rest + piece
            whole = len(data) - len(data) % 2
            rest = data[whole:]
            pcm = np.frombuffer(data[:whole], "<i2").astype(np.float32) / 32767.0
            if len(pcm):
                yield AudioChunk(0, start, pcm, rate_hz, 0, False)
            start += len(pcm)
    if not start:
        raise ServerError(f"{url} answered without any sound")
    yield AudioChunk(0, start, np.zeros(0, np.float32), rate_hz, 0, True)
