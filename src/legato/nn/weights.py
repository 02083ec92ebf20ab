"""Safetensors → modules: names, fused projections, strict loading, typed errors, no pickle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from legato.errors import CheckpointError

from .decoder import fuse

Rules = tuple[tuple[str, str], ...]
"""Patterns of names and what takes their place; the first that matches counts."""

DECODER_NAMES: Rules = (
    (r"^model\.norm\.", "decoder.norm."),
    (r"^model\.layers\.(\d+)\.input_layernorm\.", r"decoder.layers.\1.attention_norm."),
    (r"^model\.layers\.(\d+)\.post_attention_layernorm\.", r"decoder.layers.\1.mlp_norm."),
    (r"^model\.layers\.(\d+)\.self_attn\.o_proj\.", r"decoder.layers.\1.out."),
    (r"^model\.layers\.(\d+)\.self_attn\.qkv\.", r"decoder.layers.\1.qkv."),
    (r"^model\.layers\.(\d+)\.mlp\.down_proj\.", r"decoder.layers.\1.mlp.down."),
    (r"^model\.layers\.(\d+)\.mlp\.gate_up\.", r"decoder.layers.\1.mlp.gate_up."),
)
"""Of a Decoder, as Hugging Face's Llama and Qwen2 name it, after fusing DECODER_GROUPS."""

DECODER_GROUPS = {"qkv": ("q_proj", "k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}


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


def renamed(tensors: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    """Names rewritten by the first rule that matches."""
    out = {}
    for name, tensor in tensors.items():
        rule = next((rule for rule in rules if re.match(rule[0], name)), None)
        out[re.sub(*rule, name) if rule else name] = tensor
    return out


def fuse_projections(tensors: dict[str, Tensor], groups: Mapping[str, Seq[str]], source: str) -> None:
    """Projections of the same input become one, in place: {"qkv": ("q_proj", "k_proj", "v_proj")} and the like.

    A projection without a bias beside some with one counts as having zeros. Raises CheckpointError naming what lacks.
    """
    for fused, parts in groups.items():
        pattern = re.compile(rf"^(.*\.){re.escape(parts[0])}\.weight$")
        for stem in [match[1] for name in tensors if (match := pattern.match(name))]:
            weights, biases = (
                [tensors.pop(f"{stem}{part}.{kind}", None) for part in parts] for kind in ("weight", "bias")
            )
            missing = [part for part, weight in zip(parts, weights, strict=True) if weight is None]
            if missing:
                raise CheckpointError(f"{source} lacks {stem}{missing[0]}.weight")
            known = [weight for weight in weights if weight is not None]
            tensors[f"{stem}{fused}.weight"] = fuse(*known)
            if any(bias is not None for bias in biases):
                filled = [w.new_zeros(len(w)) if b is None else b for w, b in zip(known, biases, strict=True)]
                tensors[f"{stem}{fused}.bias"] = torch.cat(filled)


class Uninitialised(TorchFunctionMode):
    """Nets built under it are not filled with random numbers that the checkpoint would replace."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return func(*args, **(kwargs or {}))
