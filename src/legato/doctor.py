"""Is all well here? What is installed, whether the voice is sound, and whether the promises hold on this machine.

Every check looks at one thing and gives Findings; none stops the others.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np

from legato.config import Config, ServerConfig
from legato.engine import SpeechEngine
from legato.errors import SpeechError
from legato.types import SpeechRequest

Mark = Literal["ok", "warn", "fail"]

PACKAGES = ("torch", "numpy", "safetensors", "av", "pydantic", "fastapi", "uvicorn", "hibari-tts")
EXTRAS = {"play": ("sounddevice",), "bench": ("httpx", "matplotlib"), "flash": ("flash_attn",)}
"""Extra of the package → the modules it brings."""

SENTENCE = "The quick brown fox jumps over the lazy dog, and then it has a rest."
COMPANY = (
    "Good morning, how are you today?",
    "I will take the next train to the coast.",
    "It should be dry this morning, with a little rain after lunch.",
)
LONGER = "She opened the window. The rain had stopped! Was it really so late? Nobody answered, so she closed it again."
RAMPS = ((1,), (1, 3), (4,))

CHARS_PER_S = (5.0, 40.0)
"""Speech slower or faster than this is no speech."""

QUIETEST_RMS, LOUDEST_RMS = 0.005, 0.5
HTTP_LIMIT_S = 60.0
LOW_MEMORY_MB = 1000
SETTLE_S = 1.0


@dataclass(frozen=True)
class Finding:
    """What one check saw."""

    name: str
    mark: Mark
    detail: str


def look(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Run a check; a failure in it is a finding too."""
    try:
        return check()
    except (SpeechError, OSError, HTTPException) as error:
        return [Finding(name, "fail", str(error))]


def healthy(findings: list[Finding]) -> bool:
    return all(finding.mark != "fail" for finding in findings)


# --- the machine ---


def check_packages() -> list[Finding]:
    """Versions of what is needed, and what optional parts are missing."""
    import torch

    versions = {name: _version(name) for name in PACKAGES}
    listed = ", ".join(f"{name} {version or 'MISSING'}" for name, version in versions.items())
    mark: Mark = "ok" if all(versions.values()) else "fail"
    findings = [Finding("packages", mark, f"Python {platform.python_version()}, {listed}")]
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        if not missing:
            findings.append(Finding(f"extra [{extra}]", "ok", "installed"))
        elif extra != "flash" or torch.cuda.is_available():
            detail = f"{' and '.join(missing)} missing; to add: pip install 'legato-speech[{extra}]'"
            findings.append(Finding(f"extra [{extra}]", "warn", detail))
    return findings


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_device(config: Config) -> list[Finding]:
    """What computes."""
    import torch

    if torch.cuda.is_available():
        memory_gb = torch.cuda.get_device_properties(0).total_memory / 2**30
        found = f"{torch.cuda.get_device_name()} with {memory_gb:.0f} GB, CUDA {torch.version.cuda}"
    else:
        threads = config.engine.threads or torch.get_num_threads()
        found = f"CPU, {threads} threads; no CUDA device"
    return [Finding("device", "ok", f"engine.device = {config.engine.device}: {found}")]


# --- the model ---


def check_weights(model: str) -> list[Finding]:
    """The files of a checkpoint: there, readable, finite. That they fit the model strictly is shown by loading it."""
    import torch

    from legato.families import EMBEDDED, FAMILIES
    from legato.nn.weights import read_tensors

    folder = import_module(FAMILIES[model]).WEIGHTS if model in EMBEDDED else Path(model)
    files = sorted(folder.rglob("*.safetensors"))
    if not files:
        return [Finding("weights", "fail", f"no safetensors files in {folder}")]
    tensors, size = 0, 0
    for file in files:
        for name, tensor in read_tensors(file).items():
            tensors += 1
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                return [Finding("weights", "fail", f"{file}: {name} holds values that are not finite")]
        size += file.stat().st_size
    detail = f"{len(files)} files, {tensors} tensors, {size / 2**20:.0f} MB, all finite"
    return [Finding("weights", "ok", detail)]


def check_kernel(engine: SpeechEngine) -> list[Finding]:
    """The attention kernel in use, and why this one."""
    kernel, note = engine.core.kernel, engine.core.kernel_note
    reason = note or {
        "tiled": "results do not depend on what shares a batch",
        "sdpa": "torch's own; flash_attention_2 needs CUDA, 16 bits and the package flash-attn",
        "flash_attention_2": "the fastest this device has",
    }.get(kernel, "as configured")
    return [Finding("attention", "warn" if note else "ok", f"{kernel}: {reason}")]


def check_voice(engine: SpeechEngine) -> list[Finding]:
    """One sentence, spoken: of a plausible length, finite, neither silent nor clipped."""
    audio = engine.generate(SENTENCE)
    samples, seconds = audio.samples, audio.duration_s
    detail = f"{seconds:.2f} s for {len(SENTENCE)} characters, {audio.stats.line()}"
    if not len(samples) or not np.isfinite(samples).all():
        return [Finding("voice", "fail", "no samples, or samples that are not finite")]
    rms, rate = float(np.sqrt(np.mean(samples.astype(np.float64) ** 2))), len(SENTENCE) / seconds
    if not CHARS_PER_S[0] <= rate <= CHARS_PER_S[1]:
        return [Finding("voice", "fail", f"{rate:.0f} characters per second are no speech; {detail}")]
    if not QUIETEST_RMS <= rms <= LOUDEST_RMS:
        return [Finding("voice", "fail", f"a level of {rms:.4f} (RMS) is no speech; {detail}")]
    return [Finding("voice", "ok", f"RMS {rms:.3f}, {detail}")]


# --- the promises ---


def check_determinism(engine: SpeechEngine) -> list[Finding]:
    """The same text alone, again, and among others: the same bits, where the model promises them."""
    return [_determinism(engine, "determinism", SENTENCE)]


def check_determinism_longer(engine: SpeechEngine) -> list[Finding]:
    """More texts, and windows of other sizes: under each of them, company must change nothing."""
    findings = [_determinism(engine, f"determinism, text {i + 1}", text) for i, text in enumerate((*COMPANY, LONGER))]
    for ramp in RAMPS:
        config = engine.config.model_copy(update={"ramp_blocks": ramp})
        with SpeechEngine(engine.model, config) as other:
            findings.append(_determinism(other, f"determinism, ramp {' '.join(map(str, ramp))}", SENTENCE))
    return findings


def _determinism(engine: SpeechEngine, name: str, text: str) -> Finding:
    alone = engine.generate(text).samples
    again = engine.generate(text).samples
    together = _first_of_batch(engine, text)
    others = {"spoken again": again, "in a batch of 4": together}
    different = [how for how, samples in others.items() if not np.array_equal(alone, samples)]
    if not different:
        return Finding(name, "ok", "alone, again and in a batch of 4: the same bits")
    detail = f"other bits {' and '.join(different)}"
    if engine.model.batch_invariant:
        return Finding(name, "fail", detail)
    return Finding(name, "warn", f"{detail}; engine.batch_invariant is off on this device")


def _first_of_batch(engine: SpeechEngine, text: str) -> np.ndarray:
    """The text, spoken while others are."""
    streams = [engine.submit(SpeechRequest(each, seed=i)) for i, each in enumerate((text, *COMPANY))]
    spoken = [np.concatenate([chunk.pcm for chunk in stream]) for stream in streams]
    return spoken[0]


def check_http(engine: SpeechEngine) -> list[Finding]:
    """A server on a free port of this machine speaks the same samples as the engine."""
    from legato.serving.encoders import PCM_RATE_HZ, to_int16

    expected = engine.generate(SENTENCE)
    began_s = time.perf_counter()
    with loopback_server(engine) as url:
        body = {"model": engine.model.name, "input": SENTENCE, "response_format": "pcm"}
        request = urllib.request.Request(
            f"{url}/v1/audio/speech", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        # Not through a proxy that the environment may name.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=HTTP_LIMIT_S) as answer:
            received = np.frombuffer(answer.read(), "<i2")
    detail = f"{len(received)} samples over HTTP in {time.perf_counter() - began_s:.2f} s"
    if expected.sample_rate_hz != PCM_RATE_HZ or not engine.model.batch_invariant:
        return [Finding("http", "ok" if len(received) else "fail", detail)]
    same = np.array_equal(received, to_int16(expected.samples))
    return [Finding("http", "ok" if same else "fail", f"{detail}, {'the' if same else 'NOT the'} engine's own")]


@contextmanager
def loopback_server(engine: SpeechEngine) -> Iterator[str]:
    """A server around the engine, on the loopback only."""
    import uvicorn

    from legato.serving.app import create_app

    app = create_app(engine, ServerConfig())
    app.state.ready = True
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


# --- memory ---


def check_memory(engine: SpeechEngine) -> list[Finding]:
    """What this process holds, and whether the KV cache was given back."""
    pages = engine.status()["kv_pages"]
    pool_mb = pages * engine.config.kv_page_size * engine.model.lm.kv_shape.bytes_per_position / 2**20
    lost = _pages_lost(engine)
    detail = f"{pages} pages, {pool_mb:.0f} MB; {lost or 'none'} of them lost by speaking a sentence"
    findings = [Finding("kv cache", "fail" if lost else "ok", detail)]
    resident_mb, free_mb = _memory_mb("/proc/self/status", "VmRSS"), _memory_mb("/proc/meminfo", "MemAvailable")
    if resident_mb is not None and free_mb is not None:
        detail = f"this process holds {resident_mb:.0f} MB; {free_mb:.0f} MB are free on the machine"
        findings.append(Finding("memory", "warn" if free_mb < LOW_MEMORY_MB else "ok", detail))
    return findings


def _pages_lost(engine: SpeechEngine) -> int:
    """Pages that a sentence does not give back soon after its end."""
    before = engine.status()["kv_pages_used"]
    engine.generate(SENTENCE)
    deadline_s = time.perf_counter() + SETTLE_S
    while (lost := engine.status()["kv_pages_used"] - before) > 0 and time.perf_counter() < deadline_s:
        time.sleep(0.01)
    return max(0, lost)


def _memory_mb(file: str, field: str) -> float | None:
    """A figure of Linux's /proc; None elsewhere."""
    try:
        lines = Path(file).read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(found[0]) / 1024 if found else None
