from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from legato import doctor
from legato.cli import app
from legato.config import EngineConfig
from legato.doctor import Finding, check_voice, check_weights, healthy, look
from legato.engine import SpeechEngine
from legato.errors import EngineError
from legato.protocols import SpeechModel
from legato.report import StreamReport
from legato.spoken import Audio


@pytest.fixture(scope="module")
def engine(piccolo: SpeechModel) -> Iterator[SpeechEngine]:
    with SpeechEngine(piccolo) as engine:
        yield engine


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SENTENCE", "Good morning to you.")
    monkeypatch.setattr(doctor, "COMPANY", ("One.", "Dinner is ready.", "Hello there."))


class Speaking:
    """An engine whose voice is what the test says."""

    def __init__(self, samples: np.ndarray, invariant: bool = True) -> None:
        self.samples, self.spoken = samples, 0
        self.model = SimpleNamespace(batch_invariant=invariant)

    def generate(self, text: str) -> Audio:
        self.spoken += 1
        report = StreamReport(24000)
        report.add(0.1, len(self.samples))
        return Audio(self.samples, 24000, report)

    def submit(self, request: Any) -> Any:
        return iter([SimpleNamespace(pcm=self.samples + 1e-3)])


def marks(findings: list[Finding]) -> list[str]:
    return [finding.mark for finding in findings]


# --- a sound installation ---


@pytest.mark.usefixtures("short")
def test_all_is_well_here() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    report = json.loads(result.stdout)
    assert result.exit_code == 0 and report["healthy"]
    found = {finding["name"]: finding for finding in report["findings"]}
    wanted = "packages, device, weights, model, attention, voice, determinism, http, kv cache"
    assert set(wanted.split(", ")) <= found.keys()
    assert {found[name]["mark"] for name in wanted.split(", ")} == {"ok"}
    assert "the engine's own" in found["http"]["detail"] and "tiled" in found["attention"]["detail"]


def test_longer_determinism_tries_texts_and_ramps(monkeypatch: pytest.MonkeyPatch, piccolo: SpeechModel) -> None:
    tried: list[tuple[tuple[int, ...] | None, str]] = []

    def note(engine: SpeechEngine, name: str, text: str) -> Finding:
        tried.append((engine.config.ramp_blocks, text))
        return Finding(name, "ok", "")

    monkeypatch.setattr(doctor, "_determinism", note)
    with SpeechEngine(piccolo) as engine:
        doctor.check_determinism_longer(engine)
    assert [text for ramp, text in tried if ramp is None] == [*doctor.COMPANY, doctor.LONGER]
    assert [ramp for ramp, _ in tried if ramp is not None] == [*doctor.RAMPS]


# --- what is wrong is found ---


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (np.zeros(0), "no samples"),
        (np.full(24000 * 4, np.nan), "not finite"),
        (np.zeros(24000 * 4), "level"),
        (np.ones(24000 * 4), "level"),
        (np.full(2400, 0.1), "characters per second"),
        (np.full(24000 * 60, 0.1), "characters per second"),
    ],
)
def test_a_voice_that_is_no_voice_is_found(samples: np.ndarray, words: str) -> None:
    (finding,) = check_voice(Speaking(samples.astype(np.float32)))  # type: ignore[arg-type]
    assert finding.mark == "fail" and words in finding.detail


def test_other_bits_are_a_failure_only_where_they_are_promised() -> None:
    samples = np.full(24000, 0.1, np.float32)
    (promised,) = doctor.check_determinism(Speaking(samples))  # type: ignore[arg-type]
    assert promised.mark == "fail" and promised.detail == "other bits in a batch of 4"
    (unpromised,) = doctor.check_determinism(Speaking(samples, invariant=False))  # type: ignore[arg-type]
    assert unpromised.mark == "warn" and "batch_invariant" in unpromised.detail


def test_damaged_weights_are_found(tmp_path: Path) -> None:
    assert marks(check_weights(str(tmp_path))) == ["fail"]
    save_file({"a": torch.ones(3), "ids": torch.ones(3, dtype=torch.int64)}, tmp_path / "good.safetensors")
    assert marks(check_weights(str(tmp_path))) == ["ok"]
    save_file({"b": torch.tensor([1.0, float("inf")])}, tmp_path / "odd.safetensors")
    (finding,) = check_weights(str(tmp_path))
    assert finding.mark == "fail" and "odd.safetensors: b" in finding.detail
    (tmp_path / "odd.safetensors").write_bytes(b"not a safetensors file")
    (finding,) = look("weights", lambda: check_weights(str(tmp_path)))
    assert finding.mark == "fail" and "odd.safetensors" in finding.detail


def test_lost_pages_are_found(monkeypatch: pytest.MonkeyPatch, engine: SpeechEngine) -> None:
    held = iter(range(10**9))
    monkeypatch.setattr(doctor, "SETTLE_S", 0.05)
    monkeypatch.setattr(engine, "generate", lambda text: None)
    monkeypatch.setattr(engine, "status", lambda: {"kv_pages_used": next(held), "kv_pages": 100})
    assert doctor.check_memory(engine)[0].mark == "fail"


def test_other_samples_over_http_are_found(monkeypatch: pytest.MonkeyPatch, engine: SpeechEngine) -> None:
    monkeypatch.setattr(doctor, "SENTENCE", "Hello.")
    spoken = engine.generate("Hello.")
    monkeypatch.setattr(engine, "generate", lambda text: Audio(spoken.samples * 0.5, 24000, spoken.stats))
    (finding,) = doctor.check_http(engine)
    assert finding.mark == "fail" and "NOT the engine's own" in finding.detail


def test_a_kernel_that_was_not_to_be_had_is_a_warning(piccolo: SpeechModel) -> None:
    with SpeechEngine(piccolo, EngineConfig(attn_kernel="sdpa")) as engine:
        (finding,) = doctor.check_kernel(engine)
    assert finding.mark == "warn" and "batch_invariant" in finding.detail


def test_missing_parts_are_named_with_what_adds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"play": ("sounddevice_of_nobody",), "bench": ("json",)})
    monkeypatch.setattr(doctor, "PACKAGES", ("torch", "package-of-nobody"))
    packages, play, bench = doctor.check_packages()
    assert packages.mark == "fail" and "package-of-nobody MISSING" in packages.detail
    assert play.mark == "warn" and "pip install 'legato-speech[play]'" in play.detail
    assert bench.mark == "ok"


@pytest.mark.parametrize("error", [EngineError("it broke"), ConnectionRefusedError("it broke")])
def test_a_check_that_fails_is_a_finding(error: Exception) -> None:
    def check() -> list[Finding]:
        raise error

    findings = look("http", check)
    assert findings == [Finding("http", "fail", "it broke")]
    assert not healthy(findings) and healthy([Finding("a", "ok", ""), Finding("b", "warn", "")])


def test_a_model_that_does_not_load_ends_with_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--model", str(tmp_path)])
    assert result.exit_code == 1
    assert "✗ fail" in result.stdout and "config.json" in result.stdout and "determinism" not in result.stdout


def test_the_server_is_on_this_machine_only_and_ends(engine: SpeechEngine) -> None:
    with doctor.loopback_server(engine) as url:
        host, port = url.removeprefix("http://").split(":")
        assert host == "127.0.0.1"
        socket.create_connection((host, int(port)), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
