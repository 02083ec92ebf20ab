"""One corpus of chords with mels and made-up codes, shared by the trainers' tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from legato.families.piccolo.config import PiccoloConfig, read_config
from legato.training.corpus import Corpus
from legato.training.features import write_codes, write_features

from .speech import SIZES, write_corpus


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chords")
    write_corpus(path)
    write_features(path)
    write_codes(path, lambda mel: mel[::2].argmax(1)[: len(mel) // 2] % 64)
    return path


@pytest.fixture(scope="session")
def corpus(folder: Path) -> Corpus:
    return Corpus([folder])


@pytest.fixture(scope="session")
def config() -> PiccoloConfig:
    return read_config(SIZES)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
