"""Log-mel spectrograms: Slaney's mel scale, the plain transform of vocoders, and Whisper's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

# Slaney's Auditory Toolbox: linear below 1 kHz, 200/3 Hz a mel; above, 27 mels for each factor of 6.4.
_HZ_PER_MEL, _KNEE_HZ = 200.0 / 3, 1000.0
_LOG_STEP = math.log(6.4) / 27


@dataclass(frozen=True)
class MelSpec:
    """How a log-mel is made. The window is Hann's, `fft_samples` long; frames are `hop_samples` apart."""

    sample_hz: int
    fft_samples: int
    hop_samples: int
    bins: int
    low_hz: float = 0.0
    high_hz: float | None = None


def log_mel(wave: Tensor, spec: MelSpec) -> Tensor:
    """Natural log-mel [F, bins] of a wave [n] in [-1, 1]; F = n // hop. Floors: 1e-9 in the root, 1e-5 in the log.

    Frames are centred by reflecting (fft - hop) / 2 samples at both ends, as HiFi-GAN does; `wave` must be longer.
    """
    pad = (spec.fft_samples - spec.hop_samples) // 2
    padded = F.pad(wave[None], (pad, pad), mode="reflect")
    power = _power(padded, spec, center=False)
    return torch.log(_mels(torch.sqrt(power + 1e-9), spec).clamp(min=1e-5))[0].t()


def whisper_log_mel(wave: Tensor, spec: MelSpec) -> Tensor:
    """Whisper's features [bins, F] of a wave [n]: log10 power, at most 8 below the peak, (x + 4) / 4; F = n // hop."""
    power = _power(wave[None], spec, center=True)[..., :-1]
    logs = _mels(power, spec).clamp(min=1e-10).log10()[0]
    return (torch.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0


def _power(waves: Tensor, spec: MelSpec, center: bool) -> Tensor:
    window = torch.hann_window(spec.fft_samples, device=waves.device)
    spectrum = torch.stft(
        waves, spec.fft_samples, spec.hop_samples, window=window, center=center, pad_mode="reflect", return_complex=True
    )
    return torch.view_as_real(spectrum).square().sum(-1)


def _mels(spectrum: Tensor, spec: MelSpec) -> Tensor:
    return torch.matmul(mel_filters(spec).to(spectrum.device), spectrum)


@lru_cache(16)
def mel_filters(spec: MelSpec) -> Tensor:
    """Triangular filters float32 [bins, fft / 2 + 1], of equal area, evenly spaced in Slaney's mels."""
    high_hz = spec.sample_hz / 2 if spec.high_hz is None else spec.high_hz
    mels = torch.linspace(_to_mel(spec.low_hz), _to_mel(high_hz), spec.bins + 2, dtype=torch.float64)
    edges = torch.where(
        mels < _to_mel(_KNEE_HZ),
        mels * _HZ_PER_MEL,
        _KNEE_HZ * torch.exp(_LOG_STEP * (mels - _to_mel(_KNEE_HZ))),
    )
    hz = torch.linspace(0, spec.sample_hz / 2, spec.fft_samples // 2 + 1, dtype=torch.float64)
    low, center, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rise, fall = (hz - low) / (center - low), (high - hz) / (high - center)
    return (torch.minimum(rise, fall).clamp(min=0) * 2 / (high - low)).float()


def _to_mel(hz: float) -> float:
    if hz < _KNEE_HZ:
        return hz / _HZ_PER_MEL
    return _KNEE_HZ / _HZ_PER_MEL + math.log(hz / _KNEE_HZ) / _LOG_STEP
