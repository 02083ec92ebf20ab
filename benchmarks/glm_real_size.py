"""GLM-TTS's language model at its released size, random bfloat16 weights, on this CPU: benchmarks/glm_real_size.py

Milliseconds per token, alone and with 4 and 8 sequences in the batch, against what reading the weights once must cost.

    python benchmarks/glm_real_size.py [--threads 2] [--json FILE]        5 GB of memory, about two minutes
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

from legato.families.glm_tts.config import LMFacts
from legato.families.glm_tts.lm import GlmLM, PromptIds, speech_prompt
from legato.families.glm_tts.tokenizer import SpecialIds
from legato.nn.decoder import DecoderConfig
from legato.protocols import Prompt
from legato.types import UtteranceId

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lm_speed import command, random_net

RELEASED = LMFacts(DecoderConfig(2048, 28, 16, 4, 128, 6144, 10000.0, 1e-5, qkv_bias=False), 98304, tied=True)
SPECIAL = SpecialIds(61498, 94265, 59260, 59253, 59246)
PROMPT_TEXT_IDS, TEXT_IDS, PROMPT_SPEECH_IDS = 20, 30, 137


def random_lm(facts: LMFacts) -> GlmLM:
    return random_net(lambda: GlmLM(facts), torch.bfloat16)


def prompts(special: SpecialIds, sequences: int) -> list[Prompt]:
    """Prompts as long as those of a voice of 5.5 s."""
    known = [
        PromptIds(
            [i % special.begin_of_audio for i in range(PROMPT_TEXT_IDS)],
            [(7 * i + index) % special.begin_of_audio for i in range(TEXT_IDS)],
            [i % (special.last_speech - special.first_speech) for i in range(PROMPT_SPEECH_IDS)],
        )
        for index in range(sequences)
    ]
    return [speech_prompt(UtteranceId(index, 0), ids, special, index) for index, ids in enumerate(known)]


if __name__ == "__main__":
    command(
        str(__doc__),
        RELEASED.decoder.layers,
        (1, 4, 8),
        lambda layers: random_lm(replace(RELEASED, decoder=replace(RELEASED.decoder, layers=layers))),
        lambda sequences, _: prompts(SPECIAL, sequences),
    )
