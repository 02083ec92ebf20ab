"""What streaming costs in accuracy: benchmarks/qwen_look_ahead.py [--model DIR] [--blocks 8] [--out results.json]

A window of Qwen2.5-Omni's flow sees its look-ahead and nothing beyond it, so its mel differs from the one that a single
window over the whole reply gives (the offline result). For several ramps (blocks kept, blocks ahead): the root mean
square of that difference per block, as a share of the mel's standard deviation, and the blocks computed per block kept.

Without --model the net is a random one with the real pattern of blocks (22 layers, look-back at 0 and 20, look-ahead at
10): its figures show how the error falls, not how large it is with trained weights, whose attention is stronger.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from legato.families.qwen2_5_omni import Choices, load
from legato.families.qwen2_5_omni.flow import QwenFlow
from legato.families.qwen2_5_omni.parts import EcapaConfig, FlowConfig
from legato.families.qwen2_5_omni.voices import QwenVoice
from legato.protocols import LoadOptions
from legato.synth.flow import FlowStage
from legato.types import Ramp, Rates, SpeechTokens, UtteranceId, Voice

RAMPS = ((1, 1), (2, 1), (1, 2), (1, 3))
"""Blocks kept and blocks ahead."""

UTTERANCES, SEED = 1, 5
RATES = Rates(50, 100, 24000)
RANDOM = FlowConfig(
    width=48, layers=22, heads=4, head_dim=12, inner=96, codes=103, code_width=24, frames_per_code=2, mel_bins=80,
    speaker_width=12, block_frames=24, look_ahead_layers=(10,), look_back_layers=(0, 20), rope_theta=10000.0,
    ecapa=EcapaConfig((16, 16, 16, 16, 48), (5, 3, 3, 3, 1), (1, 2, 3, 4, 1), 8, 2, 8, 16),
)  # fmt: skip
LOUDER = 2.0
"""How much more than fan-in says a random net's attention weighs."""


def random_flow() -> tuple[QwenFlow, Voice]:
    """A net that answers to what it attends to, and somebody who speaks."""
    flow, generator = QwenFlow(RANDOM), torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in flow.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 100
            parameter.copy_(noise / math.sqrt(fan_in))
            if name.endswith("out.weight"):
                parameter.mul_(LOUDER)
            if name.endswith("qkv.weight"):
                parameter[2 * RANDOM.width :].mul_(LOUDER)
    flow.prepare(batch_invariant=False)
    mel = torch.randn(61, RANDOM.mel_bins, generator=generator)
    return flow, Voice("nobody", facts=QwenVoice(torch.randn(RANDOM.speaker_width, generator=generator), mel, 0))


def mels(flow: QwenFlow, voice: Voice, codes: Tensor, ramp: Ramp) -> Tensor:
    """Mels [U, F, B] of codes [U, n], all utterances side by side."""
    stage = FlowStage(flow, RATES, ramp, max_windows=len(codes))
    out: dict[UtteranceId, list[Tensor]] = {}
    for number, ids in enumerate(codes.tolist()):
        id = UtteranceId(number, 0)
        out[id] = []
        stage.start(id, SEED + number, voice)
        stage.add(SpeechTokens(id, 0, tuple(ids), final=True))
    while (batch := stage.plan(stage.ready())) is not None:
        stage.run(batch)
        for block in stage.commit(batch, None):
            out[block.utterance].append(block.mel)
    return torch.stack([torch.cat(blocks) for blocks in out.values()])


def errors(
    flow: QwenFlow, voice: Voice, blocks: int, ramps: tuple[tuple[int, int], ...], say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """By ramp: mean and largest error of a block, and the blocks computed for every block kept."""
    size, count = flow.config.block_frames, flow.facts.block_tokens * blocks
    last = min(flow.config.codes, 8191) if flow.config.codes > 1000 else 95
    codes = torch.randint(0, last + 1, (UTTERANCES, count), generator=torch.Generator().manual_seed(SEED))
    whole = mels(flow, voice, codes, Ramp((blocks,), (0,)))
    found = {}
    for keep, ahead in ramps:
        difference = mels(flow, voice, codes, Ramp((keep,), (ahead,))) - whole
        shares = difference.unflatten(1, (blocks, size)).square().mean((2, 3)).sqrt() / whole.std()
        entry = {"mean": float(shares.mean()), "max": float(shares.max()), "work": (keep + ahead) / keep}
        found[f"keep {keep} ahead {ahead}"] = entry
        say(f"keep {keep}, ahead {ahead}: mean {entry['mean']:.1e}, max {entry['max']:.1e}, work {entry['work']:.2f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--voice")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    flow, voice = random_flow() if args.model is None else _released(args.model, args.voice)
    result: dict[str, Any] = {
        "net": "random, 22 layers" if args.model is None else str(args.model.name),
        "blocks": args.blocks,
        "utterances": UTTERANCES,
        "evaluations": flow.facts.ode_steps,
        "error_of_a_block": errors(flow, voice, args.blocks, RAMPS, print),
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _released(folder: Path, voice: str | None) -> tuple[QwenFlow, Voice]:
    model = load(folder, LoadOptions(batch_invariant=False), Choices())
    assert isinstance(model.flow, QwenFlow)
    return model.flow, model.voices[voice or model.default_voice]


if __name__ == "__main__":
    main()
