"""HiFT: log-mel → samples by a neural source filter and an inverse STFT (HiFTNet, Li et al. 2023, arXiv:2309.09493).

Pitch is predicted from the mel; sines of it and its harmonics, and noise, drive a stack of upsampling convolutions that
gives the magnitude and phase of short STFT frames. All layers are local but one: the sines' phase is the sum of all
pitch so far, so a window needs the phase at its start. It is kept in turns (1 = 2π), in float64, without whole turns.
(Facts: zai-org/GLM-TTS, cosyvoice/hifigan_cosy2.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FRAME_HZ = 50
DILATIONS = (1, 3, 5)
SLOPE, LAST_SLOPE = 0.1, 0.01
SINE_LEVEL, VOICED_NOISE, VOICED_HZ = 0.1, 0.003, 10.0
LIMIT, LARGEST_MAGNITUDE = 0.99, 100.0
REACH_FRAMES = 20
"""What can change a frame's samples: 14.25 frames of source, half a frame of phase, 5 frames of pitch net, rounded up.
Measured by a test."""

PITCH_REACH_FRAMES = 5


@dataclass(frozen=True)
class HiftSizes:
    """Sizes, as the tensors show them: an upsampling kernel is twice its rate, and one more where that is odd."""

    mel_bins: int
    width: int
    up_kernels: tuple[int, ...]
    down_kernels: tuple[int, ...]
    source_kernels: tuple[int, ...]
    block_kernels: tuple[int, ...]
    pitch_width: int
    pitch_layers: int
    harmonics: int
    fft_samples: int

    @property
    def rates(self) -> tuple[int, ...]:
        return tuple(kernel // 2 for kernel in self.up_kernels)

    @property
    def stft_hop(self) -> int:
        return self.fft_samples // 4

    @property
    def hop(self) -> int:
        """Samples per mel frame."""
        return math.prod(self.rates) * self.stft_hop

    @property
    def sample_hz(self) -> int:
        return FRAME_HZ * self.hop


def hift_sizes(tensors: Mapping[str, Tensor]) -> HiftSizes:
    """Sizes from the tensors of hift.pt, weight norms folded. Raises KeyError for what is missing."""

    def kernels(pattern: str) -> tuple[int, ...]:
        found: list[int] = []
        while (name := pattern.format(len(found))) in tensors:
            found.append(tensors[name].shape[-1])
        if not found:
            raise KeyError(pattern.format(0))
        return tuple(found)

    blocks, ups = kernels("resblocks.{}.convs1.0.weight"), kernels("ups.{}.weight")
    width, mel_bins, _ = tensors["conv_pre.weight"].shape
    return HiftSizes(
        mel_bins=mel_bins,
        width=width,
        up_kernels=ups,
        down_kernels=kernels("source_downs.{}.weight"),
        source_kernels=kernels("source_resblocks.{}.convs1.0.weight"),
        block_kernels=blocks[: len(blocks) // len(ups)],
        pitch_width=tensors["f0_predictor.condnet.0.weight"].shape[0],
        pitch_layers=sum(name.startswith("f0_predictor.condnet.") and name.endswith(".bias") for name in tensors),
        harmonics=tensors["m_source.l_linear.weight"].shape[1],
        fft_samples=tensors["conv_post.weight"].shape[0] - 2,
    )


class Snake(nn.Module):
    """x + sin²(αx) / α per channel (Ziyin et al. 2020, arXiv:2006.08195)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        alpha = self.alpha[:, None]
        return torch.addcmul(x, 1.0 / (alpha + 1e-9), torch.sin(x * alpha).square())


class ResBlock(nn.Module):
    """Three pairs of convolutions, the first of each spread out: [1, width, T] → the same."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        spread = [nn.Conv1d(width, width, kernel, dilation=d, padding=d * (kernel // 2)) for d in DILATIONS]
        plain = [nn.Conv1d(width, width, kernel, padding=kernel // 2) for _ in DILATIONS]
        self.convs1, self.convs2 = nn.ModuleList(spread), nn.ModuleList(plain)
        self.activations1 = nn.ModuleList(Snake(width) for _ in DILATIONS)
        self.activations2 = nn.ModuleList(Snake(width) for _ in DILATIONS)

    def forward(self, x: Tensor) -> Tensor:
        layers = zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True)
        for bend_1, conv_1, bend_2, conv_2 in layers:
            x = x + conv_2(bend_2(conv_1(bend_1(x))))
        return x


class PitchNet(nn.Module):
    """Mel [1, bins, F] → pitch in Hz [F]."""

    def __init__(self, sizes: HiftSizes) -> None:
        super().__init__()
        widths = [sizes.mel_bins] + [sizes.pitch_width] * sizes.pitch_layers
        layers: list[nn.Module] = []
        for inputs, outputs in zip(widths, widths[1:], strict=False):
            layers += [nn.Conv1d(inputs, outputs, 3, padding=1), nn.ELU()]
        self.condnet, self.classifier = nn.Sequential(*layers), nn.Linear(sizes.pitch_width, 1)

    def forward(self, mel: Tensor) -> Tensor:
        pitch: Tensor = self.classifier(self.condnet(mel)[0].t())[:, 0].abs()
        return pitch


class Source(nn.Module):
    """Sines and noise → one excitation signal."""

    def __init__(self, harmonics: int) -> None:
        super().__init__()
        self.l_linear = nn.Linear(harmonics, 1)

    def forward(self, turns: Tensor, voiced: Tensor, noise: Tensor) -> Tensor:
        """Phases in turns and noise [n, harmonics], voiced [n, 1] (1 or 0) → [n]."""
        sines = SINE_LEVEL * torch.sin((turns - turns.round()) * (2 * math.pi))
        level = voiced * VOICED_NOISE + (1 - voiced) * (SINE_LEVEL / 3)
        excitation: Tensor = self.l_linear(sines * voiced + level * noise)[:, 0].tanh()
        return excitation


class Hift(nn.Module):
    """The whole net. Names of its parts are those of the released file."""

    window: Tensor

    def __init__(self, sizes: HiftSizes) -> None:
        super().__init__()
        self.sizes = sizes
        widths = [sizes.width >> i for i in range(len(sizes.rates) + 1)]
        self.f0_predictor, self.m_source = PitchNet(sizes), Source(sizes.harmonics)
        self.conv_pre = nn.Conv1d(sizes.mel_bins, sizes.width, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(widths[i], widths[i + 1], kernel, rate, padding=(kernel - rate) // 2)
            for i, (kernel, rate) in enumerate(zip(sizes.up_kernels, sizes.rates, strict=True))
        )
        self.source_downs = nn.ModuleList(
            nn.Conv1d(sizes.fft_samples + 2, widths[i + 1], kernel, max(1, kernel // 2), padding=kernel // 4)
            for i, kernel in enumerate(sizes.down_kernels)
        )
        self.source_resblocks = nn.ModuleList(
            ResBlock(widths[i + 1], kernel) for i, kernel in enumerate(sizes.source_kernels)
        )
        self.resblocks = nn.ModuleList(
            ResBlock(width, kernel) for width in widths[1:] for kernel in sizes.block_kernels
        )
        self.conv_post = nn.Conv1d(widths[-1], sizes.fft_samples + 2, 7, padding=3)
        self.register_buffer("window", torch.hann_window(sizes.fft_samples), persistent=False)

    def prepare(self) -> None:
        """Compute pitch in float64 where the device can: phases add it up, so its last bits are heard in the end."""
        if self.window.device.type != "mps":
            self.f0_predictor.double()

    def pitch(self, mel: Tensor) -> Tensor:
        """Pitch in Hz [F] of log-mel [F, bins]."""
        pitch: Tensor = self.f0_predictor(mel.t()[None].to(self.f0_predictor.classifier.weight.dtype))
        return pitch

    def turns_per_sample(self, pitch: Tensor) -> Tensor:
        """Of every harmonic, [F, harmonics], below one turn."""
        numbers = torch.arange(1, self.sizes.harmonics + 1, device=pitch.device)
        return (pitch[:, None] * numbers / self.sizes.sample_hz) % 1

    def excitation(self, pitch: Tensor, turns: Tensor, noise: Tensor) -> Tensor:
        """Source signal [F × hop] from pitch [F], phases at the frames' middles in turns [F, harmonics], and noise."""
        hop = self.sizes.hop
        pitch = pitch.float()
        per_frame = self.turns_per_sample(pitch) * hop
        offset = (torch.arange(hop, device=pitch.device) + 0.5) / hop - 0.5
        before, after = per_frame.clone(), per_frame.roll(-1, 0)
        before[0], after[-1] = 0, 0
        early, late = offset[: hop // 2, None] * before[:, None], offset[hop // 2 :, None] * after[:, None]
        phases = (turns[:, None] + torch.cat([early, late], 1)).flatten(0, 1)
        voiced = (pitch > VOICED_HZ).float().repeat_interleave(hop)[:, None]
        signal: Tensor = self.m_source(phases, voiced, noise)
        return signal

    def forward(self, mel: Tensor, source: Tensor) -> Tensor:
        """Samples [F × hop] in ±0.99 of log-mel [F, bins] and source [F × hop]."""
        fft, hop = self.sizes.fft_samples, self.sizes.stft_hop
        spectrum = torch.view_as_real(torch.stft(source[None], fft, hop, fft, self.window, return_complex=True))
        sources = torch.cat([spectrum[..., 0], spectrum[..., 1]], 1)
        x: Tensor = self.conv_pre(mel.t()[None])
        kinds = len(self.sizes.block_kernels)
        last = len(self.ups) - 1
        for i, (up, down, block) in enumerate(zip(self.ups, self.source_downs, self.source_resblocks, strict=True)):
            x = up(F.leaky_relu(x, SLOPE))
            x = F.pad(x, (1, 0), "reflect") if i == last else x
            x = x + block(down(sources))
            x = torch.stack([self.resblocks[kinds * i + j](x) for j in range(kinds)]).mean(0)
        return self._inverse_stft(self.conv_post(F.leaky_relu(x, LAST_SLOPE)))

    def _inverse_stft(self, x: Tensor) -> Tensor:
        """x [1, fft + 2, T] holds log-magnitudes and what becomes phases by a sine."""
        fft, hop = self.sizes.fft_samples, self.sizes.stft_hop
        magnitude, phase = x[:, : fft // 2 + 1].exp().clamp(max=LARGEST_MAGNITUDE), x[:, fft // 2 + 1 :].sin()
        spectrum = torch.complex(magnitude * phase.cos(), magnitude * phase.sin())
        return torch.istft(spectrum, fft, hop, fft, self.window)[0].clamp(-LIMIT, LIMIT)
