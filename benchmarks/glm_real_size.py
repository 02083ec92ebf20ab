"""GLM-TTS's language model at its released size, random bfloat16 weights, on this CPU: benchmarks/glm_real_size.py

Milliseconds per token, alone and with 4 and 8 sequences in the batch, against what reading the weights once must cost:
their bytes over the memory bandwidth of the same run, measured between the steps. Every step of the engine's LM stage
is timed twice, the net by itself (`net`) and with sampling and bookkeeping (`step`).

    python benchmarks/glm_real_size.py [--threads 2] [--json FILE]        5 GB of memory, about two minutes

`--cpu-time` counts the processor seconds of one thread, for a machine that others use too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from legato.bench.machine import machine_facts
from legato.families.glm_tts.config import LMFacts
from legato.families.glm_tts.lm import GlmLM, PromptIds, speech_prompt
from legato.families.glm_tts.tokenizer import SpecialIds
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.nn.decoder import DecoderConfig
from legato.nn.weights import Uninitialised
from legato.types import UtteranceId

RELEASED = LMFacts(DecoderConfig(2048, 28, 16, 4, 128, 6144, 10000.0, 1e-5, qkv_bias=False), 98304, tied=True)
SPECIAL = SpecialIds(61498, 94265, 59260, 59253, 59246)
PROMPT_TEXT_IDS, TEXT_IDS, PROMPT_SPEECH_IDS = 20, 30, 137
BUFFER_BYTES = 2**30
"""Read to measure the bandwidth: more than any cache holds."""


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


def random_lm(facts: LMFacts, dtype: torch.dtype) -> GlmLM:
    """A net of that size, every matrix a random row and its negative: as costly to read as any other."""
    torch.set_default_dtype(dtype)
    with Uninitialised():
        net = GlmLM(facts)
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


def weight_bytes(net: GlmLM) -> int:
    """Bytes that one step reads: every matrix once. Of an embedding that is not the head itself it reads a row."""
    own_embedding = 0 if net.embedding.weight is net.head.weight else net.embedding.weight.numel()
    numbers = sum(parameter.numel() for parameter in {id(p): p for p in net.parameters()}.values())
    return (numbers - own_embedding) * net.head.weight.element_size()


def decode(net: GlmLM, sequences: int, steps: int, special: SpecialIds, bandwidth: Bandwidth) -> Steps:
    """Prompts of that many sequences, then decode steps of all of them, timed."""
    limits = SchedulerLimits(512, 512, sequences)
    stage = LMStage(net, pages=64 * sequences + 2, page_size=16, limits=limits, backend="sdpa")
    for index in range(sequences):
        ids = PromptIds(
            [i % special.begin_of_audio for i in range(PROMPT_TEXT_IDS)],
            [(7 * i + index) % special.begin_of_audio for i in range(TEXT_IDS)],
            [i % (special.last_speech - special.first_speech) for i in range(PROMPT_SPEECH_IDS)],
        )
        stage.add(speech_prompt(UtteranceId(index, 0), ids, special, index))
    measured = Steps(sequences, [], [])
    while len(measured.step_s) < steps:
        batch = stage.plan(stage.ready())
        assert batch is not None
        start = bandwidth.clock()
        result = stage.run(batch)
        ran = bandwidth.clock()
        stage.commit(batch, result)
        end = bandwidth.clock()
        if len(batch) == sequences and all(scheduled.length == 1 for scheduled in batch):
            measured.net_s.append(ran - start)
            measured.step_s.append(end - start)
            bandwidth.read()
    return measured


def measure(net: GlmLM, special: SpecialIds, batches: list[int], steps: int, bandwidth: Bandwidth) -> dict[str, Any]:
    """All batch sizes, and how they compare with the floor."""
    bandwidth.read()
    with torch.inference_mode():
        found = [decode(net, sequences, steps, special, bandwidth) for sequences in batches]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=None, help="[torch's own choice]")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--steps", type=int, default=12, help="decode steps timed for each batch size")
    parser.add_argument("--layers", type=int, default=RELEASED.decoder.layers, help="fewer, for a quick look")
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor seconds of one thread, not those of the clock"
    )
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    if options.cpu_time and options.threads != 1:
        parser.error("--cpu-time counts one thread: add --threads 1")
    if options.threads:
        torch.set_num_threads(options.threads)
    decoder = DecoderConfig(**{**vars(RELEASED.decoder), "layers": options.layers})
    net = random_lm(LMFacts(decoder, RELEASED.vocabulary, RELEASED.tied), torch.bfloat16)
    bandwidth = Bandwidth(BUFFER_BYTES, time.thread_time if options.cpu_time else time.perf_counter)
    figures = measure(net, SPECIAL, options.batches, options.steps, bandwidth)
    about = {"threads": torch.get_num_threads(), "layers": options.layers, "cpu_time": options.cpu_time}
    figures = {"machine": machine_facts(), **about} | figures
    print(f"{figures['weights_gb']:.2f} GB at {figures['bandwidth_gb_per_s']:.1f} GB/s: {figures['floor_ms']:.0f} ms")
    for each in figures["batches"]:
        print(
            f"{each['sequences']} sequences: net {each['net_ms']:.0f} ms ({each['net_over_floor']:.2f} x the floor), "
            f"step {each['step_ms']:.0f} ms ({each['step_over_floor']:.2f} x), "
            f"{each['step_ms_per_token']:.0f} ms per token"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
