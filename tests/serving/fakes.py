"""A small engine that fails, stalls and floods on demand, and a real server around it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import uvicorn

from legato.config import ServerConfig
from legato.errors import Cancelled, EmptyText, SpeechError, TextTooLong, UnknownVoice
from legato.report import StreamReport
from legato.serving.app import create_app
from legato.streams import SpeechStream
from legato.types import AudioChunk, Rates, SpeechRequest, Voice

RATE_HZ = 24000


@dataclass
class Plan:
    """How the fake engine speaks."""

    chunks: int = 10
    chunk_samples: int = 1921  # odd on purpose: no codec's frame, no multiple of three
    before_first_s: float = 0.0
    between_s: float = 0.0
    queue_chunks: int = 4
    refuse: SpeechError | None = None
    fail_after: int | None = None
    failure: SpeechError | None = None

    @property
    def samples(self) -> int:
        return self.chunks * self.chunk_samples


@dataclass
class Running:
    """One request inside the fake engine."""

    request: SpeechRequest
    stream: SpeechStream
    taken: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    cancelled_s: float | None = None
    waiting_chunks: int = 0
    made_chunks: int = 0
    most_waiting: int = 0


class FakeEngine:
    """Speaks a tone whose pitch is the number at the start of the text (440 without one)."""

    broken = False

    def __init__(self, sample_hz: int = RATE_HZ) -> None:
        voices = {name: Voice(name, f"the voice of {name}", ("en",)) for name in ("bea", "ada", "cy")}
        self.model = SimpleNamespace(
            name="fake",
            rates=Rates(25, 50, sample_hz),
            voices=voices,
            default_voice="ada",
            languages=("en", "zh"),
            writer=None,
        )
        self.config = SimpleNamespace(max_text_chars=200)
        self.plan = Plan()
        self.runs: list[Running] = []

    def status(self) -> dict[str, int]:
        return {"waiting": 0, "running": 0, "kv_pages_used": 0, "kv_pages": 8}

    def submit(self, request: SpeechRequest) -> SpeechStream:
        if not request.text.strip():
            raise EmptyText
        if len(request.text) > self.config.max_text_chars:
            raise TextTooLong(len(request.text), self.config.max_text_chars)
        if request.voice is not None and request.voice not in self.model.voices:
            raise UnknownVoice(request.voice, tuple(self.model.voices))
        if self.plan.refuse is not None:
            raise self.plan.refuse
        number = len(self.runs)
        report = StreamReport(self.model.rates.sample_hz, request.seed, "fake", request.voice or "ada")
        stream = SpeechStream(
            number, report, on_cancel=self._cancel, on_text=lambda *_: None, on_taken=lambda n, _: self._taken(n)
        )
        run = Running(request, stream)
        self.runs.append(run)
        threading.Thread(target=self._speak, args=(run, self.plan), daemon=True).start()
        return stream

    def _cancel(self, number: int) -> None:
        run = self.runs[number]
        run.cancelled_s = run.cancelled_s or time.perf_counter()
        run.cancelled.set()
        run.taken.set()

    def _taken(self, number: int) -> None:
        run = self.runs[number]
        run.waiting_chunks -= 1
        run.taken.set()

    def _speak(self, run: Running, plan: Plan) -> None:
        pitch_hz = tone_pitch(run.request.text)
        run.cancelled.wait(plan.before_first_s)
        for index in range(plan.chunks):
            if index == plan.fail_after and plan.failure is not None:
                return run.stream.fail(plan.failure)
            while run.waiting_chunks >= plan.queue_chunks and not run.cancelled.is_set():
                run.taken.wait(0.05)
                run.taken.clear()
            if index:
                run.cancelled.wait(plan.between_s)
            if run.cancelled.is_set():
                return run.stream.fail(Cancelled("cancelled"))
            run.waiting_chunks += 1
            run.most_waiting = max(run.most_waiting, run.waiting_chunks)
            run.stream.report.usage.generated_tokens += 2
            run.stream.report.usage.prompt_tokens = 7
            run.made_chunks += 1
            start = index * plan.chunk_samples
            pcm = tone(pitch_hz, start, plan.chunk_samples, self.model.rates.sample_hz)
            final = index == plan.chunks - 1
            run.stream.put(AudioChunk(run.stream.request, start, pcm, self.model.rates.sample_hz, 0, final))


def tone_pitch(text: str) -> int:
    first = text.split()[0]
    return int(first) if first.isdecimal() else 440


def tone(pitch_hz: float, start: int, samples: int, rate_hz: int = RATE_HZ) -> np.ndarray:
    phase = 2 * np.pi * pitch_hz / rate_hz * np.arange(start, start + samples)
    return (0.5 * np.sin(phase)).astype(np.float32)


@dataclass
class Server:
    """A server that is up."""

    engine: FakeEngine
    url: str
    port: int
    app: object


@contextmanager
def serving(engine: object, *, ready: bool = True, **config: object) -> Iterator[Server]:
    """A real uvicorn on a free port of the loopback, in a thread."""
    app = create_app(engine, ServerConfig(max_body_bytes=100_000, **config))
    app.state.ready = ready
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield Server(engine, f"http://127.0.0.1:{port}", port, app)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def wait_for(condition, limit_s: float = 5.0) -> float:
    """Seconds until `condition()` held."""
    began_s = time.perf_counter()
    while not condition():
        assert time.perf_counter() - began_s < limit_s, "waited in vain"
        time.sleep(0.002)
    return time.perf_counter() - began_s
