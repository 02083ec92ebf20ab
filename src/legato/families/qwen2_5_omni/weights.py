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

from legato.errors import CheckpointError
from legato.nn.weights import Rules, load_strict, renamed

from .config import DOWNLOAD, need_file

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"

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


def load_part(net: nn.Module, tensors: Mapping[str, Tensor], rules: Rules, source: Path) -> None:
    """Put renamed tensors into a net as they are, dtype included. Raises CheckpointError for what does not fit."""
    load_strict(net, renamed(tensors, rules), source, assign=True)
