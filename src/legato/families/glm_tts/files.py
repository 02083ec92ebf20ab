"""The files of a GLM-TTS checkpoint: there, whole and of the right kind, or an error that says what to run.

What the files mean is not here (config.py, weights.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from legato.errors import CheckpointError

DOWNLOAD = "hf download zai-org/GLM-TTS --local-dir ckpt"
"""What fetches a whole checkpoint."""

_POINTER = b"version https://git-lfs.github.com/"
"""How the text begins that Git keeps in place of a large file."""


def need_file(path: Path) -> Path:
    """The path itself. Raises CheckpointError, with the place and what to run, when there is nothing or a pointer."""
    if not path.parent.is_dir():
        raise CheckpointError(
            f"the folder {path.parent.name}/ of the checkpoint is missing: expected at {path.parent}, "
            f"with {path.name} in it. To fetch the checkpoint: {DOWNLOAD}"
        )
    if not path.is_file():
        raise CheckpointError(f"{path.name} is missing: expected at {path}. To fetch the checkpoint: {DOWNLOAD}")
    if is_pointer(path):
        raise CheckpointError(
            f"{path} is a Git LFS pointer, not the file: run `git lfs pull` in the clone it lies in, or {DOWNLOAD}"
        )
    return path


def is_pointer(path: Path) -> bool:
    """Whether a file is what a clone without Git LFS has in place of it."""
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


@contextmanager
def telling_what_to_run() -> Iterator[None]:
    """Adds to a CheckpointError how the checkpoint is fetched again, unless it says so."""
    try:
        yield
    except CheckpointError as error:
        if DOWNLOAD in str(error):
            raise
        raise CheckpointError(f"{error}. To fetch the checkpoint again: {DOWNLOAD}") from error


def read_json_table(path: Path) -> dict[str, Any]:
    """The one JSON object in a file. Raises CheckpointError naming the file."""
    try:
        raw = json.loads(need_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. To fetch the checkpoint again: {DOWNLOAD}") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} should hold one JSON object. To fetch the checkpoint again: {DOWNLOAD}")
    return raw


def size_of(raw: Mapping[str, Any], key: str) -> int:
    """A size in a config: a whole number from 1. Raises KeyError when it is not there, ValueError for another value."""
    value = raw[key]
    if type(value) is not int or value < 1:
        raise ValueError(f"{key} = {value!r}: it must be a whole number from 1")
    return value
