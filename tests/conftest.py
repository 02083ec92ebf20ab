"""What all tests share: few threads, and the embedded voice loaded once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from legato import families
from legato.protocols import LoadOptions, SpeechModel

THREADS = 1
TINY_NETS = ("lm", "nn", "synth")
"""Folders whose nets are so small that one thread is fastest. Their tests may set any number."""

torch.set_num_threads(THREADS)
settings.register_profile("legato", deadline=None)
settings.load_profile("legato")


@pytest.fixture(autouse=True)
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.set_num_threads(1 if request.path.parent.name in TINY_NETS else THREADS)
    yield
    torch.set_num_threads(THREADS)


@pytest.fixture(scope="session")
def piccolo() -> SpeechModel:
    """The embedded voice: real nets of all three stages."""
    return families.load("piccolo", LoadOptions())
