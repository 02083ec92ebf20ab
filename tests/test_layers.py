"""Who may import whom, as a test: a folder or root module imports only what is listed beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "legato"

CORE = "types errors protocols conversation config text lm synth nn schedule replies door speaking"
ENGINE = "types errors protocols conversation config core report streams tempo audio_file worker messages spoken"
BELOW_THE_TOP = f"{CORE} {ENGINE} stored_voices families engine fit serving"
ALLOWED = {
    "types": "",
    "errors": "",
    "config": "errors",
    "audio_file": "errors",
    "report": "types",
    "tempo": "errors types",
    "spoken": "types report",
    "worker": "",
    "streams": "errors report types",
    "text": "types errors",
    "nn": "types errors",
    "protocols": "types nn conversation",
    "conversation": "types protocols",
    "messages": "types errors",
    "schedule": "types",
    "speaking": "types protocols lm",
    "replies": "types errors config conversation lm nn",
    "door": "types errors config protocols conversation text",
    "lm": "types errors protocols conversation nn",
    "synth": "types errors protocols nn",
    "stored_voices": "types errors",
    "families": "types errors audio_file stored_voices protocols conversation nn text",
    "core": CORE,
    "engine": ENGINE,
    "fit": "errors config protocols",
    "serving": "types errors report streams tempo config engine messages",
    "playback": BELOW_THE_TOP,
    "remote": f"{BELOW_THE_TOP} playback",
    "bench": f"{BELOW_THE_TOP} playback remote",
    "doctor": f"{BELOW_THE_TOP} playback remote",
    "training": "types errors protocols nn text families families/piccolo",
    "cli": f"{BELOW_THE_TOP} playback remote bench doctor families/glm_tts",
}
ROOTS = ("__init__", "__main__")
"""The package itself puts everything together; it may import all of it."""

ONLY_IN = {"asyncio": ("serving/", "streams.py"), "pydantic": ("config.py", "serving/schemas.py")}
"""Library → the only places that may import it."""

WITHOUT_TORCH = (
    "text/", "serving/", "schedule.py", "lm/scheduler.py", "lm/pages.py", "lm/sequence.py", "synth/windows.py",
)  # fmt: skip
ENVIRONMENT = {"environ", "getenv", "putenv"}


def own_layer(module: tuple[str, ...]) -> str:
    """Two families are two layers; every other folder is one."""
    return "/".join(module[:2]) if module[0] == "families" and len(module) > 2 else module[0]


def imported_layers(node: ast.AST) -> list[str]:
    """The layers of ours that an import names."""
    if isinstance(node, ast.Import):
        return ["(use from-imports)" for alias in node.names if alias.name.startswith("legato.")]
    if not isinstance(node, ast.ImportFrom):
        return []
    if node.level > 1:
        return ["(relative import leaves its folder)"]
    if node.level or (node.module or "").split(".")[0] != "legato":
        return []
    inner = (node.module or "").split(".")[1:] or [alias.name for alias in node.names]
    return ["/".join(inner[:2])] if inner[0] == "families" and len(inner) > 1 else [inner[0]]


def imported_libraries(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    return [(node.module or "").split(".")[0]] if isinstance(node, ast.ImportFrom) and not node.level else []


def reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ENVIRONMENT for alias in node.names)
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ENVIRONMENT
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    )


def problems(path: str, node: ast.AST) -> Iterator[str]:
    module = Path(path).with_suffix("").parts
    if module[0] not in ROOTS:
        allowed = {own_layer(module), *ALLOWED.get(module[0], "").split()}
        yield from (layer for layer in imported_layers(node) if layer not in allowed)
    for library in imported_libraries(node):
        if library in ONLY_IN and not path.startswith(ONLY_IN[library]):
            yield library
        if library == "torch" and path.startswith(WITHOUT_TORCH):
            yield library
    if path != "config.py" and reads_environment(node):
        yield "os.environ"


def violations(package: Path) -> list[str]:
    """ "file:line -> what it may not import", for every file of a package."""
    wrong = []
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            wrong += [f"{path}:{node.lineno} -> {what}" for what in problems(path, node)]  # type: ignore[attr-defined]
    return wrong


def test_imports_point_downward() -> None:
    wrong = violations(PACKAGE)
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_place() -> None:
    names = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names - {*ROOTS, "__pycache__"} <= ALLOWED.keys()


@pytest.mark.parametrize(
    ("path", "line", "what"),
    [
        ("lm/stage.py", "from legato.synth.flow import FlowStage", "synth"),
        ("nn/layers.py", "from legato import engine", "engine"),
        ("text/units.py", "from ..errors import SpeechError", "(relative import leaves its folder)"),
        ("core.py", "import legato.families", "(use from-imports)"),
        ("engine.py", "from legato.families.piccolo import load", "families/piccolo"),
        ("families/piccolo/lm.py", "from legato.families.glm_tts.lm import GlmLM", "families/glm_tts"),
        ("families/piccolo/lm.py", "from legato.lm.stage import LMStage", "lm"),
        ("serving/app.py", "from legato.families import load", "families"),
        ("playback.py", "from legato.cli import main", "cli"),
        ("engine.py", "import asyncio", "asyncio"),
        ("cli/say.py", "from pydantic import BaseModel", "pydantic"),
        ("lm/scheduler.py", "import torch.nn.functional as F", "torch"),
        ("lm/pages.py", "from torch import Tensor", "torch"),
        ("serving/encoders.py", "import torch", "torch"),
        ("cli/serve.py", "key = os.environ['KEY']", "os.environ"),
        ("engine.py", "from os import getenv", "os.environ"),
    ],
)
def test_planted_violation_is_named(tmp_path: Path, path: str, line: str, what: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"import math\n{line}\n", encoding="utf-8")
    assert violations(tmp_path) == [f"{path}:2 -> {what}"]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("lm/stage.py", "from .pages import PagePool"),
        ("families/piccolo/lm.py", "from legato.nn.decoder import Decoder"),
        ("streams.py", "import asyncio"),
        ("serving/schemas.py", "from pydantic import BaseModel"),
        ("config.py", "key = os.environ.get('KEY')"),
        ("cli/say.py", "import legato"),
        ("__init__.py", "from legato.engine import SpeechEngine"),
    ],
)
def test_allowed_import_passes(tmp_path: Path, path: str, line: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{line}\n", encoding="utf-8")
    assert not violations(tmp_path)
