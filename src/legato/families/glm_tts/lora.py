"""A LoRA adapter (Hu et al. 2021, arXiv:2106.09685) in PEFT's files, merged into the language model's weights.

Merged weights cost nothing when speaking. Modules saved whole (embedding, head) replace the checkpoint's.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torch import Tensor

from legato.errors import CheckpointError
from legato.nn.weights import read_tensors

from .files import need_file

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
PREFIX, DOWN, UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


def merge_adapter(raw: dict[str, Tensor], folder: Path) -> None:
    """Add the adapter in `folder` to the released tensors `raw`, in place.

    Raises CheckpointError when it does not fit.
    """
    scale = _scale(folder / CONFIG_FILE)
    path = folder / WEIGHTS_FILE
    adapter = {name.removeprefix(PREFIX): tensor for name, tensor in read_tensors(need_file(path)).items()}
    for name, tensor in adapter.items():
        if name.endswith(UP):
            continue
        try:
            if name.endswith(DOWN):
                target = f"{name.removesuffix(DOWN)}.weight"
                raw[target] = raw[target] + scale * (adapter[name.removesuffix(DOWN) + UP] @ tensor)
            else:
                raw[name.replace(".modules_to_save", "")] = tensor
        except KeyError as error:
            raise CheckpointError(f"{path}: {name} has no counterpart {error}") from None
        except RuntimeError as error:
            raise CheckpointError(f"{path}: {name} does not fit the language model ({error})") from error


def _scale(path: Path) -> float:
    """What the product of the two matrices is multiplied by."""
    try:
        config: dict[str, Any] = json.loads(need_file(path).read_text(encoding="utf-8"))
        if config.get("use_dora") or config.get("rank_pattern") or config.get("alpha_pattern"):
            raise CheckpointError(f"{path}: only plain LoRA with one rank is supported")
        rank = int(config["r"])
        return float(config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} lacks or misspells {error}") from error
