"""`recipes/piccolo/cpu_minutes.sh`: the whole recipe from texts to a voice that speaks, every loss falling."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import legato

RECIPE = Path(__file__).parents[2] / "recipes" / "piccolo"
LOSSES = {
    "codec": ("mel", "phoneme", "pitch"),
    "lm": ("loss", "code", "advance"),
    "flow": ("velocity", "guess"),
    "vocoder": ("mel",),
}


@pytest.mark.slow
def test_the_miniature_recipe(tmp_path: Path) -> None:
    work = tmp_path / "work"
    subprocess.run(
        [RECIPE / "cpu_minutes.sh", work, "200"], check=True, env=os.environ | {"PYTHON": sys.executable}, timeout=1200
    )
    for stage, names in LOSSES.items():
        reports = [json.loads(line) for line in (work / stage / "losses.jsonl").read_text().splitlines()]
        for name in names:
            assert reports[-1][name] < reports[0][name], f"{stage}: {name} did not fall: {reports}"
    with legato.load(work / "voice") as engine:
        assert engine.generate("Good morning.", seed=1).samples.any()
