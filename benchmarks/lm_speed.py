"""Decode steps of a language model of random weights, against what reading its weights once must cost.

Not a benchmark itself: what glm_real_size.py and qwen_real_thinker.py share. The floor is the bytes of the weights over
the memory bandwidth of the same run, measured between the steps. Every step of the engine's LM stage is timed twice:
the net by itself (`net`), and with sampling and bookkeeping (`step`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from legato.bench.machine import machine_facts
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.nn.weights import Uninitialised
from legato.protocols import Prompt

PAGE_SIZE = 16
BUFFER_BYTES = 2**30
"""Read to measure the bandwidth: more than any cache holds."""

Net = TypeVar("Net", bound=Any)
Prompts = Callable[[int, int], Sequence[Prompt]]
"""So many prompts, each good for so many steps."""


@dataclass(frozen=True)
class Steps:
    """Seconds of every decode step of one batch size."""

    sequences: int
    net_s: list[float]
    step_s: list[float]


class Bandwidth:
    """Reads a buffer as fast as torch can, whenever asked. `clock` gives seconds, for all that is measured."""

    def __init__(self, buffer_bytes: int, clock: Callable[[], float]) -> None:
        self._buffer, self.clock = torch.ones(buffer_bytes // 4), clock
        self.seconds: list[float] = []

    def read(self) -> None:
        start = self.clock()
        self._buffer.sum()
        self.seconds.append(self.clock() - start)

    @property
    def bytes_per_s(self) -> float:
        return self._buffer.nbytes / median(self.seconds)


def random_net(make: Callable[[], Net], dtype: torch.dtype) -> Net:
    """A net whose every matrix is a random row and its negative: as costly to read as any other."""
    torch.set_default_dtype(dtype)
    with Uninitialised():
        net = make()
    torch.set_default_dtype(torch.float32)
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        if parameter.dim() == 2:
            row = torch.randn(parameter.shape[1], generator=generator) * 0.02
            parameter.data.copy_(row.expand_as(parameter))
            parameter.data[::3].neg_()
        else:
            parameter.data.fill_(1)
    net.freeze(0)
    return net


def weight_bytes(net: Any) -> int:
    """Bytes that one step reads: every matrix once. Of an embedding that is not the head itself it reads a row."""
    own_embedding = 0 if net.embedding.weight is net.head.weight else net.embedding.weight.numel()
    numbers = sum(parameter.numel() for parameter in {id(p): p for p in net.parameters()}.values())
    return (numbers - own_embedding) * net.head.weight.element_size()


def decode(net: Any, prompts: Sequence[Prompt], steps: int, bandwidth: Bandwidth) -> Steps:
    """All prompts, then decode steps of all of them, timed."""
    pages = sum(-(-prompt.max_positions // PAGE_SIZE) for prompt in prompts) + 2
    limits = SchedulerLimits(512, 512, len(prompts))
    stage = LMStage(net, pages=pages, page_size=PAGE_SIZE, limits=limits, backend="sdpa")
    for prompt in prompts:
        stage.add(prompt)
    measured = Steps(len(prompts), [], [])
    while len(measured.step_s) < steps:
        batch = stage.plan(stage.ready())
        assert batch is not None
        start = bandwidth.clock()
        result = stage.run(batch)
        ran = bandwidth.clock()
        stage.commit(batch, result)
        end = bandwidth.clock()
        if len(batch) == len(prompts) and all(scheduled.length == 1 for scheduled in batch):
            measured.net_s.append(ran - start)
            measured.step_s.append(end - start)
            bandwidth.read()
    return measured


def measure(net: Any, prompts: Prompts, batches: Sequence[int], steps: int, bandwidth: Bandwidth) -> dict[str, Any]:
    """All batch sizes, and how they compare with the floor."""
    bandwidth.read()
    with torch.inference_mode():
        found = [decode(net, prompts(sequences, steps), steps, bandwidth) for sequences in batches]
    floor_s = weight_bytes(net) / bandwidth.bytes_per_s
    return {
        "weights_gb": weight_bytes(net) / 1e9,
        "bandwidth_gb_per_s": bandwidth.bytes_per_s / 1e9,
        "floor_ms": 1000 * floor_s,
        "batches": [
            {
                "sequences": each.sequences,
                "net_ms": 1000 * median(each.net_s),
                "step_ms": 1000 * median(each.step_s),
                "step_ms_per_token": 1000 * median(each.step_s) / each.sequences,
                "net_over_floor": median(each.net_s) / floor_s,
                "step_over_floor": median(each.step_s) / floor_s,
            }
            for each in found
        ],
    }


def command(about: str, layers: int, batches: Sequence[int], make: Callable[[int], Any], prompts: Prompts) -> None:
    """The command line of such a benchmark: `make` gives the net with so many layers."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=None, help="[torch's own choice]")
    parser.add_argument("--batches", type=int, nargs="+", default=list(batches))
    parser.add_argument("--steps", type=int, default=8, help="decode steps timed for each batch size")
    parser.add_argument("--layers", type=int, default=layers, help="fewer, for a quick look")
    parser.add_argument("--cpu-time", action="store_true", help="processor seconds, not the clock's; one thread")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    if options.cpu_time or options.threads:
        torch.set_num_threads(1 if options.cpu_time else options.threads)
    bandwidth = Bandwidth(BUFFER_BYTES, time.thread_time if options.cpu_time else time.perf_counter)
    figures = measure(make(options.layers), prompts, options.batches, options.steps, bandwidth)
    facts = {"threads": torch.get_num_threads(), "layers": options.layers, "cpu_time": options.cpu_time}
    figures = {"machine": machine_facts(), **facts} | figures
    print(f"{figures['weights_gb']:.2f} GB at {figures['bandwidth_gb_per_s']:.1f} GB/s: {figures['floor_ms']:.0f} ms")
    for each in figures["batches"]:
        print(
            f"{each['sequences']} at once: net {each['net_ms']:.0f} ms ({each['net_over_floor']:.2f} x the floor), "
            f"step {each['step_ms']:.0f} ms ({each['step_over_floor']:.2f} x), "
            f"{each['step_ms_per_token']:.0f} ms per token"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
