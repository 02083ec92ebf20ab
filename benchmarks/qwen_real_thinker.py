"""Qwen2.5-Omni 3B's thinker at its released size, random bfloat16 weights, on this CPU: benchmarks/qwen_real_thinker.py

Milliseconds per token of a text reply, alone and with more conversations in the batch, against what reading the weights
once must cost. Rows for the talker are made and relayed in every step, as in a spoken reply.

    python benchmarks/qwen_real_thinker.py [--threads 2] [--json FILE]        7.5 GB of memory, some minutes
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

from legato.families.qwen2_5_omni.handover import Handover
from legato.families.qwen2_5_omni.parts import AudioConfig, ThinkerConfig, ThinkerIds, VisionConfig
from legato.families.qwen2_5_omni.thinker import Thinker
from legato.nn.decoder import DecoderConfig
from legato.protocols import Prompt, SampledTokens
from legato.types import Sampling, UtteranceId

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lm_speed import command, random_net

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
    return random_net(lambda: Thinker(config), torch.bfloat16)


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


def prompts(sequences: int, steps: int) -> list[Prompt]:
    return [prompt(index, steps + 2) for index in range(sequences)]


if __name__ == "__main__":
    command(
        str(__doc__),
        RELEASED.decoder.layers,
        (1, 4),
        lambda layers: random_thinker(replace(RELEASED, decoder=replace(RELEASED.decoder, layers=layers))),
        prompts,
    )
