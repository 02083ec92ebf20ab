"""Losses between waves, and between what discriminators say of them."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from legato.nn.mel import MelSpec, mel_filters

from .discriminators import Judgement

RESOLUTIONS = ((512, 128, 40), (1024, 256, 80), (2048, 512, 100), (256, 64, 20))
"""Window samples, hop samples and mel bins of the reconstruction loss."""


def mel_distance(made: Tensor, real: Tensor, sample_hz: int) -> Tensor:
    """Mean L1 distance of log-mels of waves [B, n] over several resolutions."""
    distances = []
    for fft, hop, bins in RESOLUTIONS:
        filters = mel_filters(MelSpec(sample_hz, fft, hop, bins)).to(made.device)
        a, b = (_log_mel(waves, fft, hop, filters) for waves in (made, real))
        distances.append((a - b).abs().mean())
    return torch.stack(distances).mean()


def _log_mel(waves: Tensor, fft: int, hop: int, filters: Tensor) -> Tensor:
    window = torch.hann_window(fft, device=waves.device)
    spectrum = torch.view_as_real(torch.stft(waves, fft, hop, window=window, return_complex=True))
    return torch.log((filters @ torch.sqrt(spectrum.square().sum(-1) + 1e-9)).clamp_min(1e-5))


def judges_loss(real: Seq[Judgement], made: Seq[Judgement]) -> Tensor:
    """What the discriminators minimise: real scores 1, made ones 0 (LSGAN, Mao et al. 2017, arXiv:1611.04076)."""
    both = zip(real, made, strict=True)
    terms = [(1 - r.float()).square().mean() + m.float().square().mean() for (r, _), (m, _) in both]
    return torch.stack(terms).mean()


def fooling_loss(made: Seq[Judgement]) -> Tensor:
    """What the vocoder minimises: that its waves score 1."""
    return torch.stack([(1 - scores.float()).square().mean() for scores, _ in made]).mean()


def feature_distance(real: Seq[Judgement], made: Seq[Judgement]) -> Tensor:
    """L1 distance of the discriminators' features, each relative to the real one's size."""
    terms = []
    for (_, real_features), (_, made_features) in zip(real, made, strict=True):
        for r, m in zip(real_features, made_features, strict=True):
            size = r.detach().float().abs().mean().clamp_min(1e-3)
            terms.append((m.float() - r.detach().float()).abs().mean() / size)
    return torch.stack(terms).mean()
