"""Runs transformers' Qwen2.5-Omni for qwen_side_by_side.py, in a process and an environment of its own.

    python qwen_reference_driver.py CHECKPOINT CASE.json

Reads seeds from stdin and answers each with a line of JSON: seconds in all, seconds of sound, and the most memory the
process has held. Its first sound is its last: `generate` returns one waveform. One padding id in front of the prompt
keeps it on its right path (versions from 5.18 on leave the talker's inputs unfinished when nothing is padded).
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2_5OmniForConditionalGeneration, logging


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def speak(model: Any, case: dict[str, Any], seed: int) -> dict[str, float]:
    ids = torch.tensor([[case["pad"], *case["ids"]]])
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    torch.manual_seed(seed)
    start = time.perf_counter()
    text, wave = model.generate(
        input_ids=ids,
        attention_mask=mask,
        speaker="Chelsie",
        thinker_max_new_tokens=case["tokens"],
        thinker_min_new_tokens=case["tokens"],
        talker_max_new_tokens=case["codes"],
        talker_eos_token_id=[case["no_code"]],
    )
    total_s = time.perf_counter() - start
    return {"total_s": total_s, "audio_s": wave.numel() / 24000, "peak_mb": peak_mb(), "ids": text.shape[1]}


@torch.inference_mode()
def main() -> None:
    logging.set_verbosity_error()
    checkpoint, case_file = (Path(argument) for argument in sys.argv[1:3])
    answers, sys.stdout = sys.stdout, sys.stderr
    case = json.loads(case_file.read_text(encoding="utf-8"))
    torch.set_num_threads(case["threads"])
    model = Qwen2_5OmniForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    print(json.dumps({"loaded_mb": peak_mb()}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(speak(model, case, int(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
