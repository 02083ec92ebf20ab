"""Qwen2.5-Omni 3B's thinker at its released size, random bfloat16 weights, on this CPU: benchmarks/qwen_real_thinker.py

Milliseconds per token of a text reply, alone and with more conversations in the batch, against what reading the weights
once must cost: their bytes over the memory bandwidth of the same run, measured between the steps. Rows for the talker
are made and relayed in every step, as in a spoken reply.

    python benchmarks/qwen_real_thinker.py [--threads 2] [--json FILE]        7.5 GB of memory, some minutes
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from glm_real_size import BUFFER_BYTES, Bandwidth, Steps

from legato.bench.machine import machine_facts
from legato.families.qwen2_5_omni.handover import Handover
from legato.families.qwen2_5_omni.parts import AudioConfig, ThinkerConfig, ThinkerIds, VisionConfig
from legato.families.qwen2_5_omni.thinker import Thinker
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.nn.decoder import DecoderConfig
from legato.nn.weights import Uninitialised
from legato.protocols import Prompt, SampledTokens
from legato.types import Sampling, UtteranceId

RELEASED = ThinkerConfig(
    decoder=DecoderConfig(2048, 36, 16, 2, 128, 11008, 1e6, 1e-6, qkv_bias=True, rope_sections=(16, 24, 24)),
    vocabulary=151936,
    tied=False,
    context=32768,
    audio=AudioConfig(128, 1280, 32, 20, 5120, 200, 2048),
    vision=VisionConfig(1280, 32, 16, 3420, 14, 2, 2, 112, (7, 15, 23, 31), 2048),
    ids=ThinkerIds(151646, 151655, 151656, 151647, 151648, 151652, 151653, (151645,)),
    positions_per_second=25,
    seconds_per_chunk=2,
)
PROMPT_TOKENS = 120


def random_thinker(config: ThinkerConfig) -> Thinker:
    """A net of that size, every matrix a random row and its negative: as costly to read as any other."""
    torch.set_default_dtype(torch.bfloat16)
    with Uninitialised():
        net = Thinker(config)
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


def weight_bytes(net: Thinker) -> int:
    """Bytes that one step reads: every matrix once, of the embedding next to nothing."""
    return 2 * (sum(parameter.numel() for parameter in net.parameters()) - net.embedding.weight.numel())


def prompt(index: int, tokens: int) -> Prompt:
    """A conversation of text, whose rows go to a handover."""
    ids = tuple((31 * i + 7 * index) % 100_000 for i in range(PROMPT_TOKENS))
    return Prompt(
        UtteranceId(index, 0),
        ids,
        SampledTokens(frozenset(), tokens),
        Sampling(temperature=0),
        seed=index,
        max_positions=PROMPT_TOKENS + tokens,
        places=[(i, i, i) for i in range(PROMPT_TOKENS)],
        relay=Handover(PROMPT_TOKENS),
    )


def decode(net: Thinker, sequences: int, steps: int, bandwidth: Bandwidth) -> Steps:
    """Prompts of that many conversations, then steps with a token of each, timed."""
    limits = SchedulerLimits(512, 512, sequences)
    stage = LMStage(net, pages=16 * sequences + 2, page_size=16, limits=limits, backend="sdpa")
    for index in range(sequences):
        stage.add(prompt(index, steps + 2))
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


def measure(net: Thinker, batches: list[int], steps: int, bandwidth: Bandwidth) -> dict[str, Any]:
    """All batch sizes, and how they compare with the floor."""
    bandwidth.read()
    with torch.inference_mode():
        found = [decode(net, sequences, steps, bandwidth) for sequences in batches]
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
                "step_over_floor": median(each.step_s) / floor_s,
            }
            for each in found
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=None, help="[torch's own choice]")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--steps", type=int, default=8, help="steps timed for each batch size")
    parser.add_argument("--layers", type=int, default=RELEASED.decoder.layers, help="fewer, for a quick look")
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor seconds of one thread, not those of the clock"
    )
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    if options.cpu_time or options.threads:
        torch.set_num_threads(1 if options.cpu_time else options.threads)
    net = random_thinker(replace(RELEASED, decoder=replace(RELEASED.decoder, layers=options.layers)))
    bandwidth = Bandwidth(BUFFER_BYTES, time.thread_time if options.cpu_time else time.perf_counter)
    figures = measure(net, options.batches, options.steps, bandwidth)
    figures = {
        "machine": machine_facts(),
        "cpu_time": options.cpu_time,
        "threads": torch.get_num_threads(),
        "layers": options.layers,
    } | figures
    print(f"{figures['weights_gb']:.2f} GB at {figures['bandwidth_gb_per_s']:.1f} GB/s: {figures['floor_ms']:.0f} ms")
    for each in figures["batches"]:
        print(
            f"{each['sequences']} conversations: step {each['step_ms']:.0f} ms ({each['step_over_floor']:.2f} x), "
            f"{each['step_ms_per_token']:.0f} ms per token"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
