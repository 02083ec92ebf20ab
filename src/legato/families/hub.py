"""Checkpoints by their id on the Hugging Face Hub, through `huggingface_hub`: its cache, its token, its offline mode.

HF_HOME, HF_HUB_CACHE, HF_TOKEN and HF_HUB_OFFLINE are read by that library alone, and mean what they always do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from legato.errors import CheckpointError, ConfigError

_ID = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95})(?:@(?P<revision>[\w./-]{1,128}))?"
)
_PARTS = ("huggingface_hub.errors", "huggingface_hub.constants")


def is_hub_id(model: str) -> bool:
    """Whether that could be `owner/name` or `owner/name@revision`."""
    return _ID.fullmatch(model) is not None and ".." not in model


def fetch(model: str, files: Sequence[str]) -> Path:
    """The folder of a checkpoint in the hub's cache, downloaded first if need be; only files of these patterns.

    Raises CheckpointError saying what to do when it is not to be had, ConfigError when `huggingface_hub` is missing.
    """
    match = _ID.fullmatch(model)
    if match is None:
        raise ValueError(f"{model!r} is not owner/name or owner/name@revision")
    hub, errors, constants = _library()
    try:
        return Path(hub.snapshot_download(match["name"], revision=match["revision"], allow_patterns=list(files)))
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{match['name']} is gated: accept its terms on https://huggingface.co/{match['name']}, then set HF_TOKEN "
            "to a token of that account (or run `hf auth login`)"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(f"{match['name']} has no revision {match['revision']!r} on the hub") from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"there is no folder {model}, and no model {match['name']} on the hub, or only for those whom it was "
            "shared with: check the name, or set HF_TOKEN to a token that may read it"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise CheckpointError(_not_cached(constants, match["name"], match["revision"])) from error
    except (*errors.HfHubHTTPError.__bases__, ValueError) as error:  # all that its HTTP library raises, and OSError
        raise CheckpointError(f"{model} could not be fetched from the hub: {_first_line(error)}") from error


def _library() -> tuple[Any, Any, Any]:
    """huggingface_hub, its errors and its constants. Raises ConfigError."""
    try:
        hub, errors, constants = map(import_module, ("huggingface_hub", *_PARTS))
        return hub, errors, constants
    except ImportError:
        raise ConfigError(
            "loading a model by its id needs huggingface_hub: pip install huggingface_hub, or give the folder "
            "of a checkpoint that is on this machine"
        ) from None


def _not_cached(constants: Any, name: str, revision: str | None) -> str:
    """What is wrong when a model is neither in the cache nor to be reached."""
    wanted = f"{name}@{revision}" if revision else name
    command = f"hf download {name}" + (f" --revision {revision}" if revision else "")
    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"
    return (
        f"there is no folder {wanted}, and the model of that id is not in the cache {constants.HF_HUB_CACHE} while "
        f"{why}. With a connection, run: {command}"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
