"""`legato convert glm-tts`: what it writes speaks the same samples through the command line, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import soundfile
from typer.testing import CliRunner, Result

from legato.cli import app

from .tiny_frontend import speechlike
from .whole import build_whole

pytest.importorskip("wetext")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released tree with a stored voice and the release's phoneme tables beside it."""
    folder = tmp_path_factory.mktemp("released")
    tree = build_whole(folder)
    (folder / "configs").mkdir()
    (folder / "configs" / "G2P_able_1word.json").write_text('["a"]', encoding="utf-8")
    soundfile.write(folder / "ada.wav", speechlike(24000, 3.2)[0], 24000)
    added = run("voices", "add", "ada", str(folder / "ada.wav"), "--text", "good morning", "--model", str(tree))
    assert added.exit_code == 0, added.output
    return tree


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def spoken(model: Path, output: Path) -> bytes:
    result = run("say", "the day", "--model", str(model), "-o", str(output))
    assert result.exit_code == 0, result.output
    return output.read_bytes()


def test_converted_folder_speaks_the_same(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "converted"
    result = run("convert", "glm-tts", str(tree.parent), str(out))
    assert result.exit_code == 0, result.output
    assert f"wrote {out}" in result.output
    assert not [path for path in out.rglob("*") if path.suffix in (".pt", ".bin", ".pkl")]
    assert (out / "configs" / "G2P_able_1word.json").is_file()
    assert spoken(out, tmp_path / "converted.wav") == spoken(tree, tmp_path / "released.wav")
    again = run("convert", "glm-tts", str(tree), str(out))
    assert again.exit_code == 1 and f"{out} is there already; choose another folder" in again.output
    assert run("convert", "glm-tts", str(out), str(tmp_path / "twice")).exit_code == 0


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("ckpt/flow/flow.pt", "flow.pt is missing: expected at"),
        ("ckpt/vq32k-phoneme-tokenizer/tokenizer.model", "tokenizer.model"),
        ("ckpt/speech_tokenizer/model.safetensors", "speech_tokenizer"),
        ("frontend/campplus.onnx", "https://github.com/zai-org/GLM-TTS/raw/"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_left(tree: Path, missing: str, says: str, tmp_path: Path) -> None:
    shutil.copytree(tree.parent, tmp_path / "copy")
    path = tmp_path / "copy" / missing
    for part in path.parent.glob("*.safetensors") if path.suffix == ".safetensors" else [path]:
        part.unlink()
    result = run("convert", "glm-tts", str(tmp_path / "copy"), str(tmp_path / "out"))
    assert result.exit_code == 1
    assert says in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_current_folder_is_no_place_to_convert_to(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("convert", "glm-tts", str(tree), ".")
    assert result.exit_code == 1 and "is the folder you are in; name a new one" in result.output


def test_help_and_wrong_places() -> None:
    shown = run("convert", "glm-tts", "--help")
    assert shown.exit_code == 0 and "legato convert glm-tts ckpt glm-tts" in shown.output
    assert "glm-tts" in run("convert", "--help").output
    wrong = run("convert", "glm-tts", "/nowhere/at/all", "out")
    assert wrong.exit_code == 1 and "unknown model '/nowhere/at/all'" in wrong.output
