"""Safetensors → modules: strict, typed errors, no pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from legato.errors import CheckpointError


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file as float32 on the CPU (integers stay as they are).

    Raises CheckpointError naming the file when it is missing or damaged.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file ({error})") from error
    return {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}


def load_strict(module: nn.Module, tensors: Mapping[str, Tensor], source: Path, *, assign: bool = False) -> None:
    """Load exactly these tensors; what is missing, left over, misshapen or not finite raises CheckpointError.

    With `assign` the module takes the tensors themselves, with their dtype, instead of copies in its own.
    """
    own = module.state_dict()
    problems = [f"missing {name}" for name in own.keys() - tensors.keys()]
    problems += [f"unexpected {name}" for name in tensors.keys() - own.keys()]
    for name in own.keys() & tensors.keys():
        if own[name].shape != tensors[name].shape:
            problems.append(f"{name} is {list(tensors[name].shape)}, expected {list(own[name].shape)}")
        elif not bool(torch.isfinite(tensors[name]).all()):
            problems.append(f"{name} holds values that are not finite")
    if problems:
        shown = "; ".join(sorted(problems)[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise CheckpointError(f"{source} does not fit this model: {shown}")
    module.load_state_dict(dict(tensors), assign=assign)
