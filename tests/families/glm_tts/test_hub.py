"""Models by their id on the hub: from a cache laid out by hand, and every way in which the hub can refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import soundfile

from legato import families
from legato.errors import CheckpointError, ConfigError, UnknownModel
from legato.families import hub
from legato.protocols import LoadOptions

from .test_convert import run
from .tiny_frontend import speechlike
from .whole import build_whole

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HF_HOME with zai-org/GLM-TTS in its cache, as `huggingface_hub` lays it out."""
    pytest.importorskip("wetext")
    home = tmp_path_factory.mktemp("home")
    repository = home / "hub" / "models--zai-org--GLM-TTS"
    tree = build_whole(tmp_path_factory.mktemp("released"))
    snapshot = repository / "snapshots" / COMMIT
    snapshot.parent.mkdir(parents=True)
    tree.rename(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return home


@pytest.fixture
def offline(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    return home


@pytest.mark.parametrize("model", ["zai-org/GLM-TTS", "zai-org/GLM-TTS@main", f"zai-org/GLM-TTS@{COMMIT}"])
def test_cached_model_is_found_offline(offline: Path, model: str) -> None:
    assert families.locate(model).name == COMMIT


def test_cached_model_loads_and_says_what_cloning_lacks(offline: Path) -> None:
    model = families.load("zai-org/GLM-TTS", LoadOptions(ode_steps=2))
    assert model.family == "glm_tts"
    said = run("say", "good day", "--model", "zai-org/GLM-TTS")
    assert said.exit_code == 1
    assert "this model has no stored voice: `legato voices add NAME recording.wav" in said.output


def test_voices_are_kept_outside_of_the_cache(offline: Path, tmp_path: Path) -> None:
    recording = str(tmp_path / "ada.wav")
    soundfile.write(recording, speechlike(24000, 3.2)[0], 24000)
    arguments = ["voices", "add", "ada", recording, "--text", "good day", "--model", "zai-org/GLM-TTS"]
    refused = run(*arguments)
    assert refused.exit_code == 1 and "keep voices in a folder of your own with --voices-dir" in refused.output
    assert not list(offline.rglob("voices"))
    lacking = run(*arguments, "--voices-dir", str(tmp_path / "voices"))
    assert lacking.exit_code == 1 and "campplus.onnx is missing" in lacking.output


def test_environment_is_honoured(home: Path, tmp_path: Path) -> None:
    """In a process of its own: HF_HOME and HF_HUB_OFFLINE are read when the library is imported."""
    pytest.importorskip("huggingface_hub")
    script = "from legato.families import hub; print(hub.fetch('zai-org/GLM-TTS', ['llm/*']))"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment = kept | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).name == COMMIT


def test_what_is_not_cached_says_so_offline(offline: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no folder acme/tts, .* HF_HUB_OFFLINE is set.* hf download acme/tts$"):
        families.load("acme/tts", LoadOptions())
    with pytest.raises(CheckpointError, match=r"hf download zai-org/GLM-TTS --revision v9$"):
        families.load("zai-org/GLM-TTS@v9", LoadOptions())
    said = run("say", "good day", "--model", "acme/tts")
    assert said.exit_code == 1 and "not in the cache" in said.output


def failing(error: Callable[[Any], Exception]) -> Callable[[], tuple[Any, Any, Any]]:
    """A hub whose every download fails, and the real library's errors."""
    from huggingface_hub import constants, errors

    def download(*_: object, **__: object) -> str:
        raise error(errors)

    return lambda: (SimpleNamespace(snapshot_download=download), errors, constants)


def http(name: str) -> Callable[[Any], Exception]:
    return lambda errors: getattr(errors, name)("no\nmore", response=_Response())


class _Response:
    """As much of an HTTP answer as the library's errors read."""

    headers: dict[str, str] = {}
    request = None


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (http("GatedRepoError"), r"acme/tts is gated: accept its terms on https://huggingface\.co/acme/tts.* HF_TOKEN"),
        (http("RepositoryNotFoundError"), "no folder acme/tts, and no model acme/tts on the hub"),
        (http("RevisionNotFoundError"), "acme/tts has no revision None"),
        (http("HfHubHTTPError"), "acme/tts could not be fetched from the hub: no$"),
        (lambda errors: errors.LocalEntryNotFoundError("x"), "not in the cache .* hf download acme/tts"),
        (lambda errors: OSError(28, "No space left on device"), "could not be fetched from the hub: .*No space left"),
        (lambda errors: errors.HFValidationError("bad id"), "could not be fetched from the hub: bad id"),
    ],
)
def test_every_failure_says_what_to_do(
    error: Callable[[Any], Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "_library", failing(error))
    with pytest.raises(CheckpointError, match=says):
        families.locate("acme/tts")


def test_only_what_the_family_reads_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def download(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(tmp_path)

    monkeypatch.setattr(hub, "_library", lambda: (SimpleNamespace(snapshot_download=download), _Errors, None))
    assert families.locate("acme/tts@v1") == tmp_path
    assert (asked["name"], asked["revision"]) == ("acme/tts", "v1")
    assert "llm/*.safetensors" in asked["allow_patterns"]
    assert not [pattern for pattern in asked["allow_patterns"] if pattern.endswith(".py") or pattern == "*"]


class _Errors:
    """Names alone: nothing fails."""

    GatedRepoError = RevisionNotFoundError = RepositoryNotFoundError = OSError
    LocalEntryNotFoundError = HfHubHTTPError = OSError


def test_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"needs huggingface_hub: pip install huggingface_hub"):
        families.locate("acme/tts")


@pytest.mark.parametrize("model", ["nobody", "../up/it", "a/b/c", "acme/tts@", "acme/..", "/root/x", "a b/c", ""])
def test_what_is_no_id_is_unknown(model: str) -> None:
    with pytest.raises(UnknownModel):
        families.locate(model or "nothing")
