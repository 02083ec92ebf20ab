"""Pitch of a wave by autocorrelation: good enough to teach a codec tones, no substitute for a pitch tracker."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .corpus import SAMPLE_HZ, SAMPLES_PER_FRAME

LOW_HZ, HIGH_HZ = 65.0, 420.0
WINDOW_SAMPLES = 1440
FFT_SAMPLES = 4096
VOICED = 0.45
"""Normalised autocorrelation from which a frame counts as voiced."""

SHORTER = 0.85
"""The shortest period that comes this near to the best one is taken, so that octaves are not missed downwards."""


def log_pitch(wave: Tensor) -> Tensor:
    """ln(Hz) float32 [F] of a wave [n], one per mel frame; 0 where nothing is voiced."""
    edge = (WINDOW_SAMPLES - SAMPLES_PER_FRAME) // 2
    frames = F.pad(wave, (edge, edge)).unfold(0, WINDOW_SAMPLES, SAMPLES_PER_FRAME)
    frames = (frames - frames.mean(1, keepdim=True)) * torch.hann_window(WINDOW_SAMPLES)
    correlation = _autocorrelation(frames) / _autocorrelation(torch.hann_window(WINDOW_SAMPLES)[None])
    correlation = correlation / correlation[:, :1].clamp_min(1e-6)
    shortest, longest = int(SAMPLE_HZ / HIGH_HZ), int(SAMPLE_HZ / LOW_HZ)
    lags = correlation[:, shortest:longest]
    near = lags >= SHORTER * lags.amax(1, keepdim=True)
    period = _first_peak(lags, near) + shortest
    voiced = (lags.amax(1) > VOICED) & (frames.square().mean(1) > 1e-6)
    return torch.where(voiced, torch.log(SAMPLE_HZ / period), torch.zeros(()))


def _autocorrelation(frames: Tensor) -> Tensor:
    power = torch.fft.rfft(frames, FFT_SAMPLES).abs().square()
    correlation: Tensor = torch.fft.irfft(power, FFT_SAMPLES)
    return correlation[:, :WINDOW_SAMPLES]


def _first_peak(lags: Tensor, near: Tensor) -> Tensor:
    """Index of the first lag that is near the best one and higher than both of its neighbours."""
    padded = F.pad(lags, (1, 1), value=-1.0)
    peak = (lags >= padded[:, :-2]) & (lags >= padded[:, 2:]) & near
    return peak.int().argmax(1).float()
