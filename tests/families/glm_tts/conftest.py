"""Fixtures for the nets: a tiny random checkpoint, and what the reference made of it (data/README.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from legato.families.glm_tts.tokenizer import SpecialIds

from . import tiny


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released-layout tree; not to be changed by a test."""
    return tiny.build(tmp_path_factory.mktemp("glm") / "ckpt")


@pytest.fixture(scope="session")
def golden() -> dict[str, Tensor]:
    return load_file(Path(__file__).parent / "data" / "nets.safetensors")


@pytest.fixture(scope="session")
def special() -> SpecialIds:
    last = tiny.FIRST_SPEECH + tiny.CODES - 1
    return SpecialIds(tiny.FIRST_SPEECH, last, tiny.BEGIN_OF_AUDIO, tiny.END_OF_AUDIO, tiny.PADDING)
