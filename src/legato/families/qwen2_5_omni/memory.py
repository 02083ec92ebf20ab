"""How much memory a checkpoint will take, said before it is read."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch

from legato.errors import CheckpointError

from .weights import Tensors

log = logging.getLogger("legato")

MEMINFO = Path("/proc/meminfo")
GIB = 2**30

WORTH_SAYING_BYTES = GIB
"""From here on loading takes a while and much of a machine, so it is said to everyone."""


def estimate(tensors: Tensors, dtypes: dict[str, torch.dtype]) -> int:
    """Bytes of the tensors under each prefix in its dtype. Caches and what a step needs come on top."""
    return sum(tensors.elements(prefix) * dtype.itemsize for prefix, dtype in dtypes.items())


def available(device: torch.device) -> int | None:
    """Bytes that can be had on a device now; None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if MEMINFO.is_file():
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def check_room(tensors: Tensors, dtypes: dict[str, torch.dtype], device: torch.device) -> None:
    """Say what the weights will take. Raises CheckpointError with the figures when that cannot fit."""
    needs = {prefix: estimate(tensors, {prefix: dtype}) for prefix, dtype in dtypes.items()}
    need, room = sum(needs.values()), available(device)
    parts = ", ".join(f"{prefix.rstrip('.')} {size / GIB:.2f}" for prefix, size in needs.items())
    level = logging.WARNING if need >= WORTH_SAYING_BYTES else logging.INFO
    log.log(level, "the weights of %s will take %.2f GiB on %s: %s", tensors.folder, need / GIB, device, parts)
    if room is not None and need > room:
        raise CheckpointError(
            f"the weights of {tensors.folder} take {need / GIB:.1f} GiB ({parts}), but {device} has "
            f"{room / GIB:.1f} GiB free: load the 3B model, bfloat16 (lm_dtype), or without a voice (speech = false)"
        )
