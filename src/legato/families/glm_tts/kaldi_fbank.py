"""Kaldi's filter-bank features (Povey et al. 2011, compute-fbank-feats), in the one setting that CAM++ is fed with.

25 ms frames every 10 ms that fit wholly into the wave; per frame: the mean removed, pre-emphasis 0.97 with the first
sample repeated, Povey's window (Hann's to the power 0.85), power spectrum, 80 triangles on 1127 ln(1 + f / 700) from
20 Hz to half the rate, natural log floored at the float32 epsilon.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

SAMPLE_HZ = 16_000
FRAME_SAMPLES, HOP_SAMPLES, FFT_SAMPLES = 400, 160, 512
BINS, LOW_HZ = 80, 20.0
PRE_EMPHASIS, WINDOW_POWER = 0.97, 0.85


def fbank(wave: Tensor) -> Tensor:
    """Features float32 [F, 80] of a wave [n ≥ 400] at 16 kHz; F = 1 + (n - 400) // 160."""
    frames = wave.unfold(0, FRAME_SAMPLES, HOP_SAMPLES)
    frames = frames - frames.mean(1, keepdim=True)
    before = torch.cat((frames[:, :1], frames[:, :-1]), 1)
    window = torch.hann_window(FRAME_SAMPLES, periodic=False, device=wave.device).pow(WINDOW_POWER)
    frames = F.pad((frames - PRE_EMPHASIS * before) * window, (0, FFT_SAMPLES - FRAME_SAMPLES))
    power = torch.fft.rfft(frames).abs().square()
    energies = power[:, :-1] @ _triangles().to(wave.device).t()
    return energies.clamp(min=torch.finfo(torch.float32).eps).log()


def centred_fbank(wave: Tensor) -> Tensor:
    """`fbank` less its mean over time, the input of CAM++."""
    features = fbank(wave)
    return features - features.mean(0, keepdim=True)


@lru_cache(1)
def _triangles() -> Tensor:
    """Float32 [80, 256]: the half-rate bin has no weight in Kaldi."""
    low, high = _to_mel(torch.tensor(LOW_HZ)), _to_mel(torch.tensor(SAMPLE_HZ / 2))
    edges = low + (high - low) / (BINS + 1) * torch.arange(BINS + 2, dtype=torch.float64)
    mels = _to_mel(torch.arange(FFT_SAMPLES // 2) * (SAMPLE_HZ / FFT_SAMPLES))
    rise = (mels - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - mels) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rise, fall).clamp(min=0).float()


def _to_mel(hz: Tensor) -> Tensor:
    return 1127.0 * torch.log1p(hz.double() / 700.0)
