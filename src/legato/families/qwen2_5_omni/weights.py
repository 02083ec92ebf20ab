"""The files of a Qwen2.5-Omni checkpoint → tensors by name, read shard by shard when a part asks for them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from legato.errors import CheckpointError
from legato.nn.decoder import fuse
from legato.nn.weights import load_strict

from .config import DOWNLOAD, need_file

Rules = tuple[tuple[str, str], ...]
"""Patterns of names and what takes their place; the first that matches counts."""

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"

DECODER_NAMES: Rules = (
    (r"^model\.norm\.", "decoder.norm."),
    (r"^model\.layers\.(\d+)\.input_layernorm\.", r"decoder.layers.\1.attention_norm."),
    (r"^model\.layers\.(\d+)\.post_attention_layernorm\.", r"decoder.layers.\1.mlp_norm."),
    (r"^model\.layers\.(\d+)\.self_attn\.o_proj\.", r"decoder.layers.\1.out."),
    (r"^model\.layers\.(\d+)\.self_attn\.qkv\.", r"decoder.layers.\1.qkv."),
    (r"^model\.layers\.(\d+)\.mlp\.down_proj\.", r"decoder.layers.\1.mlp.down."),
    (r"^model\.layers\.(\d+)\.mlp\.gate_up\.", r"decoder.layers.\1.mlp.gate_up."),
)
"""Of the thinker's and the talker's transformer, behind their prefix and after fusing."""

COMPUTED = re.compile(r"(^|\.)(inv_freq|freqs_cis|positional_embedding|filter)$")
"""Tables that some files hold although they follow from the sizes."""


class Tensors:
    """Tensors of a checkpoint folder by their released names.

    `parts` are the prefixes that will be asked for ("thinker."); files that hold nothing of them may be missing.
    Raises CheckpointError naming the file that is missing or damaged.
    """

    def __init__(self, folder: Path, parts: Seq[str]) -> None:
        self.folder = folder
        self._files = {name: file for name, file in self._map().items() if name.startswith(tuple(parts))}
        for part in parts:
            if not any(name.startswith(part) for name in self._files):
                raise CheckpointError(f"{folder} holds no tensors of {part.rstrip('.')}. To fetch all: {DOWNLOAD}")
        for file in sorted(set(self._files.values())):
            need_file(folder / file)

    def _map(self) -> dict[str, str]:
        """File by tensor."""
        index = self.folder / INDEX
        if not index.is_file():
            need_file(self.folder / SINGLE)
            with self._open(SINGLE) as file:
                return dict.fromkeys(file.keys(), SINGLE)
        try:
            found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {str(name): Path(str(file)).name for name, file in found.items()}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{index} is not an index of safetensors files ({error})") from error

    def _open(self, file: str) -> Any:
        try:
            return safe_open(self.folder / file, framework="pt")
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.folder / file} is damaged or not a safetensors file ({error}). To fetch it again: {DOWNLOAD}"
            ) from error

    def names(self, prefix: str) -> list[str]:
        """Names under a prefix, without it."""
        return [name.removeprefix(prefix) for name in self._files if name.startswith(prefix)]

    def elements(self, prefix: str) -> int:
        """How many numbers the tensors under a prefix hold, from the files' headers alone."""
        count = 0
        for file, names in self._by_file(prefix).items():
            with self._open(file) as opened:
                for name in names:
                    count += torch.Size(self._found(opened.get_slice, name, file).get_shape()).numel()
        return count

    def read(self, prefix: str, dtype: torch.dtype = torch.float32, skip: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """Tensors under a prefix by their names without it, on the CPU; numbers with a fraction come as `dtype`.

        Names that go on with one of `skip`, and tables that follow from the sizes, are left out. Raises CheckpointError
        naming a tensor a file lacks.
        """
        out: dict[str, Tensor] = {}
        for file, names in self._by_file(prefix).items():
            with self._open(file) as opened:
                for name in names:
                    short = name.removeprefix(prefix)
                    if not COMPUTED.search(name) and not short.startswith(skip):
                        out[short] = self._read(opened, name, file, dtype)
        return out

    def _by_file(self, prefix: str) -> dict[str, list[str]]:
        by_file: dict[str, list[str]] = {}
        for name, file in self._files.items():
            if name.startswith(prefix):
                by_file.setdefault(file, []).append(name)
        return by_file

    def _read(self, opened: Any, name: str, file: str, dtype: torch.dtype) -> Tensor:
        tensor: Tensor = self._found(opened.get_tensor, name, file)
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    def _found(self, get: Callable[[str], Any], name: str, file: str) -> Any:
        try:
            return get(name)
        except SafetensorError as error:
            raise CheckpointError(f"{self.folder / file} lacks {name}, which {INDEX} says it holds") from error


class Uninitialised(TorchFunctionMode):
    """Nets built under it are not filled with random numbers that the checkpoint would replace."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return func(*args, **(kwargs or {}))


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


DECODER_GROUPS = {"qkv": ("q_proj", "k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}


def load_part(net: nn.Module, tensors: Mapping[str, Tensor], rules: Rules, source: Path) -> None:
    """Put renamed tensors into a net as they are, dtype included. Raises CheckpointError for what does not fit."""
    load_strict(net, renamed(tensors, rules), source, assign=True)
