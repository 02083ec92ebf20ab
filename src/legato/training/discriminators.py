"""Small discriminators for the vocoder: the wave folded by periods (HiFi-GAN, Kong et al. 2020, arXiv:2010.05646) and
log-magnitude spectra at several resolutions (UnivNet, Jang et al. 2021, arXiv:2106.07889). Training only."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

SLOPE = 0.1
Judgement = tuple[Tensor, list[Tensor]]
"""A discriminator's scores, and its features layer by layer."""


class _Judge(nn.Module):
    """Convolutions in a row; each one's output is a feature, the last one's the score."""

    def __init__(self, layers: Seq[nn.Conv2d]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(weight_norm(layer) for layer in layers)

    def judge(self, x: Tensor) -> Judgement:
        features = []
        *hidden, last = self.layers
        for layer in hidden:
            x = F.leaky_relu(layer(x), SLOPE)
            features.append(x)
        return last(x), features


class PeriodJudge(_Judge):
    """Sees the wave as a picture `period` samples wide."""

    def __init__(self, period: int, channels: Seq[int]) -> None:
        widths = (1, *channels)
        pairs = zip(widths, widths[1:], strict=False)
        strided = [nn.Conv2d(a, b, (5, 1), (3, 1), padding=(2, 0)) for a, b in pairs]
        last = widths[-1]
        super().__init__(
            [*strided, nn.Conv2d(last, last, (5, 1), padding=(2, 0)), nn.Conv2d(last, 1, (3, 1), padding=(1, 0))]
        )
        self.period = period

    def forward(self, waves: Tensor) -> Judgement:
        whole = waves.shape[-1] // self.period * self.period
        return self.judge(waves[:, :whole].reshape(len(waves), 1, -1, self.period))


class SpectrumJudge(_Judge):
    """Sees the log-magnitude spectrogram, striding over frequency."""

    window: Tensor

    def __init__(self, fft_samples: int, width: int) -> None:
        super().__init__(
            [
                nn.Conv2d(1, width, (7, 5), (2, 1), padding=(3, 2)),
                nn.Conv2d(width, width, (5, 3), (2, 1), padding=(2, 1)),
                nn.Conv2d(width, 2 * width, (5, 3), (2, 2), padding=(2, 1)),
                nn.Conv2d(2 * width, 2 * width, (5, 3), (2, 1), padding=(2, 1)),
                nn.Conv2d(2 * width, 2 * width, 3, padding=1),
                nn.Conv2d(2 * width, 1, 3, padding=1),
            ]
        )
        self.fft_samples = fft_samples
        self.register_buffer("window", torch.hann_window(fft_samples), persistent=False)

    def forward(self, waves: Tensor) -> Judgement:
        spectrum = torch.stft(
            waves.float(), self.fft_samples, self.fft_samples // 4, window=self.window, return_complex=True
        )
        power = torch.view_as_real(spectrum).square().sum(-1)
        return self.judge(torch.log(torch.sqrt(power + 1e-8) + 1e-2)[:, None])


class Judges(nn.Module):
    """All of them."""

    def __init__(self, periods: Seq[int], ffts: Seq[int], channels: Seq[int], spectrum_width: int) -> None:
        super().__init__()
        self.judges = nn.ModuleList(
            [
                *(PeriodJudge(period, channels) for period in periods),
                *(SpectrumJudge(fft, spectrum_width) for fft in ffts),
            ]
        )

    def forward(self, waves: Tensor) -> list[Judgement]:
        """Of waves [B, n]."""
        return [judge(waves) for judge in self.judges]
