"""The commands and the Python of docs/glm_tts.md, run in a folder like the one the page describes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import soundfile
from typer.testing import CliRunner

from legato.cli import app

from .test_frontend_cli import entry
from .tiny_frontend import speechlike
from .whole import build_whole

pytest.importorskip("wetext")
PAGE = (Path(__file__).parents[3] / "docs" / "glm_tts.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint, CAM++, recordings and the release's list."""
    build_whole(tmp_path)
    (tmp_path / "examples").mkdir()
    for name, seed in (("anna.wav", 1), ("glad.wav", 2), ("examples/anna.wav", 1)):
        soundfile.write(tmp_path / name, speechlike(24000, 3.2, seed=seed)[0], 24000)
    line = entry("1", prompt_speech="anna.wav", syn_text="你好")
    (tmp_path / "examples" / "example_zh.jsonl").write_text(line, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_what_the_page_shows_runs(here: Path) -> None:
    pytest.importorskip("jieba")
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("legato ")]
    assert len(lines) == 6
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, f"{line}\n{result.output}"
    for name in ("today.wav", "strings.wav", "outputs/pretraindemo/example_zh/1.wav"):
        assert (here / name).stat().st_size > 1000
    assert (here / "glm-tts" / "flow" / "flow.safetensors").is_file()
    sources = blocks("python")
    assert len(sources) == 3
    for source in sources:
        exec(compile(source, "glm_tts.md", "exec"), {"__name__": "__main__"})
    for name in ("glad_park.wav", "today_32k.wav"):
        assert (here / name).stat().st_size > 1000


def test_the_page_says_what_its_flags_are_called() -> None:
    """Every option on the page exists."""
    shown = ""
    for command in ("say", "voices add", "glmtts", "convert glm-tts", "serve"):
        shown += CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"}).output
    named = set(re.findall(r"(?<![\w-])(--[a-z][\w-]+)", PAGE)) - {"--local-dir", "--create-dirs"}
    assert len(named) > 8
    assert [flag for flag in sorted(named) if flag not in shown] == []
