"""What the documentation shows is run, and what it names exists."""

from __future__ import annotations

import os
import re
import runpy
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

import legato
from legato.config import ServerConfig
from legato.serving.app import create_app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs" / "piccolo.md"], ids=lambda page: page.name)
def test_python_in_the_pages_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page.name, "exec"), {"__name__": "__main__"})
    assert (tmp_path / "museum.wav").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["stream_llm.py", "many_at_once.py"])
def test_examples_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    printed = capsys.readouterr()
    if name == "many_at_once.py":
        assert "the same samples: True" in printed.out
    else:
        assert printed.err.count("+") > 3


@pytest.fixture
def server() -> Iterator[str]:
    with legato.load() as engine:
        app = create_app(engine, ServerConfig())
        app.state.ready = True
        instance = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
        thread = threading.Thread(target=instance.run)
        thread.start()
        while not instance.started:
            threading.Event().wait(0.01)
        port = instance.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1"
        instance.should_exit = True
        thread.join()


def test_the_openai_example_runs(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "LEGATO_URL", server)
    runpy.run_path(str(ROOT / "examples" / "openai_client.py"), run_name="__main__")
    assert (tmp_path / "speech.wav").read_bytes()[:4] == b"RIFF"


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name)
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    named = re.findall(r"`((?:src/legato/|tests/|scripts/|examples/|benchmarks/)[\w./-]+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_architecture_names_real_files() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_]+/?[a-z_]*\.py)`", text)
    assert len(named) > 15
    assert [name for name in named if not ((ROOT / name).exists() or (ROOT / "src" / "legato" / name).exists())] == []


def test_public_names_are_pinned() -> None:
    assert legato.__all__ == [
        "Audio", "AudioChunk", "Config", "ConfigError", "Sampling", "SpeechEngine", "SpeechError", "SpeechRequest",
        "Voice", "__version__", "load",
    ]  # fmt: skip
    assert all(hasattr(legato, name) for name in legato.__all__)
