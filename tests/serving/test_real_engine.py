"""The embedded voice behind the real server: what a client hears is what the engine made."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from legato.serving.encoders import to_int16

from .fakes import Server, wait_for

ROUTE = "/v1/audio/speech"
TEXT = "Good morning."


def test_the_served_samples_are_the_engines_own(real: Server) -> None:
    made = to_int16(real.engine.generate(TEXT, seed=3).samples).tobytes()
    body = {"model": "tts-1", "voice": "alloy", "input": TEXT, "seed": 3, "response_format": "wav"}
    streamed = httpx.post(real.url + ROUTE, json=body, timeout=60)
    whole = httpx.post(real.url + ROUTE, json=body | {"stream": False}, timeout=60)
    assert streamed.content[44:] == whole.content[44:] == made
    events = httpx.post(real.url + ROUTE, json=body | {"stream_format": "sse"}, timeout=60).text.split("\n\n")[:-1]
    *deltas, done = [json.loads(event.removeprefix("data: ")) for event in events]
    assert b"".join(base64.b64decode(delta["audio"]) for delta in deltas) == streamed.content
    assert done["usage"]["output_tokens"] > 0
    assert done["stats"]["audio_s"] == pytest.approx(len(made) / 2 / real.engine.model.rates.sample_hz, abs=1e-5)


def test_at_once_is_as_alone(real: Server) -> None:
    def ask(seed: int) -> bytes:
        body = {"model": "tts-1", "input": TEXT, "seed": seed, "response_format": "pcm"}
        return httpx.post(real.url + ROUTE, json=body, timeout=60).content

    alone = [ask(seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(ask, range(3))) == alone
    assert len({np.frombuffer(sound, "<i2").tobytes() for sound in alone}) == 3


def test_leaving_gives_everything_back(real: Server) -> None:
    text = "This sentence is long enough to be left in the middle. " * 20
    with httpx.stream("POST", real.url + ROUTE, json={"model": "tts-1", "input": text}, timeout=60) as answer:
        next(answer.iter_raw())
        assert real.engine.status()["running"] == 1
    wait_for(lambda: real.engine.status()["running"] == 0)


def test_refusals_of_the_real_engine(real: Server) -> None:
    for change, code in (({"input": " … "}, "empty_input"), ({"voice": "nobody"}, "voice_not_found")):
        answer = httpx.post(real.url + ROUTE, json={"model": "tts-1", "input": "a"} | change, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
