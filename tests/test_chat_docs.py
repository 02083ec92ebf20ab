"""What docs/chat.md and the example of a client show is run, with the small model in the place of a large one."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving.conversing import heard, small_engine
from serving.fakes import serving
from test_cli_chat import FakeLoudspeaker, FakeMicrophone, as_float, sound
from typer.testing import CliRunner

import legato
from legato.cli import app
from legato.serving.encoders import wav_header
from legato.serving.schemas import ChatBody

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "chat.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


COMMANDS = [line for line in blocks("bash")[0].splitlines() if line.startswith("legato chat")]
CALLS = blocks("bash")[1:]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the page speaks of, and the small model whatever is loaded."""
    (tmp_path / "question.wav").write_bytes(wav_header(1000, 250) + bytes(250))
    (tmp_path / "cat.png").write_bytes(bytes(90))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(legato, "load", lambda *_: small_engine())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with small_engine() as engine, serving(engine) as server:
        yield server.url


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeMicrophone(as_float(sound(200))) if "--mic" in command else FakeLoudspeaker()
    device.OutputStream = FakeLoudspeaker.OutputStream.__get__(FakeLoudspeaker())
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    result = CliRunner().invoke(app, shlex.split(command)[1:], input="hello\n\n\n")
    assert result.exit_code == 0 and len(result.stdout) > 1, result.stderr


@pytest.mark.parametrize("call", CALLS, ids=["text", "streamed", "media"])
def test_calls(call: str, url: str) -> None:
    command = call.replace("curl -s", "curl --noproxy '*' -s").replace("localhost:8000", url.removeprefix("http://"))
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True).stdout
    if '"stream": true' in call:
        got = heard(answer)
        assert got.text and got.pieces and got.chunks[-1]["usage"]["total_tokens"]
    else:
        assert json.loads(answer)["choices"][0]["message"]["content"], answer


def test_python(capsys: pytest.CaptureFixture[str]) -> None:
    [block] = blocks("python")
    exec(compile(block, "chat.md", "exec"), {"__name__": "__main__"})
    assert len(capsys.readouterr().out.splitlines()) > 5


def test_example(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(os.environ, "LEGATO_URL", f"{url}/v1")
    runpy.run_path(str(ROOT / "examples" / "chat_client.py"), run_name="__main__")
    assert len(capsys.readouterr().out) > 2
    with wave.open("reply.wav") as file:
        assert file.getframerate() == 24000 and file.getnframes() > 2400


def test_fields_are_those_of_the_schema() -> None:
    table = PAGE[PAGE.index("| field |") : PAGE.index("| anything else")]
    named = {
        name.split(".")[0]
        for line in table.splitlines()[2:]
        for name in re.findall(r"`([a-z_.]+)`", line.split("|")[1])
    }
    assert named == ChatBody.model_fields.keys() - {"model", "messages"}
