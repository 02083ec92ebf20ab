"""Change of sample rate by a windowed sinc (Smith, "Digital Audio Resampling Home Page").

The filter is the one that torchaudio's defaults have made common: six zero crossings a side under a squared cosine, cut
at 0.99 of half the lower rate. Models' features were computed behind it, so ours are too.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

ZERO_CROSSINGS = 6
ROLL_OFF = 0.99
CACHED_KERNELS = 8


def resample(waves: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """Waves float32 [..., n] at one rate → [..., ceil(n × to / from)] at another."""
    if from_hz == to_hz:
        return waves
    common = math.gcd(from_hz, to_hz)
    step, phases = from_hz // common, to_hz // common
    kernels, reach = _kernels(step, phases)
    rows = waves.reshape(-1, 1, waves.shape[-1])
    out = F.conv1d(F.pad(rows, (reach, reach + step)), kernels.to(waves.device), stride=step)
    length = -(-waves.shape[-1] * phases // step)
    return out.transpose(1, 2).reshape(len(rows), -1)[:, :length].reshape(*waves.shape[:-1], length)


@lru_cache(CACHED_KERNELS)
def _kernels(step: int, phases: int) -> tuple[Tensor, int]:
    """A kernel for each output phase, float32 [phases, 1, taps], and how many input samples it reaches back."""
    cutoff = min(step, phases) * ROLL_OFF
    reach = math.ceil(ZERO_CROSSINGS * step / cutoff)
    taps = torch.arange(-reach, reach + step, dtype=torch.float64) / step
    phase = torch.arange(0, -phases, -1)[:, None] / phases  # float32, as the features' origin has it
    t = ((phase + taps) * cutoff).clamp(-ZERO_CROSSINGS, ZERO_CROSSINGS)
    window = torch.cos(t * math.pi / ZERO_CROSSINGS / 2) ** 2
    kernels = torch.sinc(t) * window * (cutoff / step)
    return kernels[:, None].float(), reach
