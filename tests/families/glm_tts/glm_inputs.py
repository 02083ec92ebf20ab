"""Inputs that the golden values belong to: made by `tiny.numbers`, so only results are stored."""

from __future__ import annotations

from torch import Tensor

from .tiny import CODES, numbers

LM_CASES = (
    ([3, 14, 15, 92, 65, 35], [89, 79, 32, 38], [4, 62, 33, 0, 63, 21, 9]),
    ([], [7, 200, 31], []),
    ([5, 6, 7] * 9, [10, 20, 30, 40, 50, 60], [1, 2, 3] * 15),
)
"""Prompt text ids, text ids, prompt codec ids."""

FLOW_CASES = ((10, 19, 19), (12, 30, 24), (8, 25, 15), (6, 9, 13))
"""Prompt tokens, tokens, prompt mel frames: 29 tokens lose a frame to rounding; prompts a frame short, exact, long."""

STREAM_CASE = (40, 150, 79)
HIFT_FRAMES = 24


def codes(name: str, count: int) -> list[int]:
    return [int(n) for n in numbers(f"codes.{name}", (count,), std=1.0).add(1.75).mul(CODES / 3.5).clamp(0, CODES - 1)]


def noise(name: str, frames: int, bins: int = 80) -> Tensor:
    return numbers(f"noise.{name}", (frames, bins))


def voice_mel(frames: int, bins: int = 80) -> Tensor:
    return numbers("mel", (frames, bins), std=2.0, mean=-4.0)


def speaker(size: int = 192) -> Tensor:
    return numbers("speaker", (size,))


def source_noise(samples: int, harmonics: int = 9) -> Tensor:
    return numbers("source", (samples, harmonics))
