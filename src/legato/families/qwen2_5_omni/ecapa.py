"""ECAPA-TDNN (Desplanques et al. 2020, arXiv:2005.07143): a reference mel → one vector for the flow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.weights import Rules

from .parts import EcapaConfig

LEAST_VARIANCE = 1e-12

ECAPA_NAMES: Rules = (
    (r"^(blocks\.\d+)\.res2net_block\.blocks\.", r"\1.scales."),
    (r"^(blocks\.\d+)\.se_block\.conv(\d)\.", r"\1.squeeze\2."),
    (r"^asp\.tdnn\.", "pool_inner."),
    (r"^asp\.conv\.", "pool_outer."),
)
"""Released names → ours."""


class TimeDelay(nn.Module):
    """Convolution over time, edges mirrored, then ReLU: [1, C, T] → [1, C', T]."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(
            inputs, outputs, kernel, dilation=dilation, padding=kernel // 2 * dilation, padding_mode="reflect"
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


class SqueezedRes2Net(nn.Module):
    """Convolutions over parts of the channels, each fed with the part before it, then a gate for every channel."""

    def __init__(self, channels: int, kernel: int, dilation: int, config: EcapaConfig) -> None:
        super().__init__()
        part = channels // config.res2net_scale
        self.tdnn1, self.tdnn2 = TimeDelay(channels, channels), TimeDelay(channels, channels)
        self.scales = nn.ModuleList(TimeDelay(part, part, kernel, dilation) for _ in range(config.res2net_scale - 1))
        self.squeeze1 = nn.Conv1d(channels, config.se_channels, 1)
        self.squeeze2 = nn.Conv1d(config.se_channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, *others = self.tdnn1(x).chunk(len(self.scales) + 1, 1)
        parts, before = [first], torch.zeros_like(first)
        for scale, part in zip(self.scales, others, strict=True):
            before = scale(part + before)
            parts.append(before)
        y = self.tdnn2(torch.cat(parts, 1))
        gate = self.squeeze2(F.relu(self.squeeze1(y.mean(2, keepdim=True)))).sigmoid()
        return x + y * gate


class Ecapa(nn.Module):
    """The encoder."""

    def __init__(self, config: EcapaConfig, mel_bins: int) -> None:
        super().__init__()
        first, *middle, last = zip(config.channels, config.kernels, config.dilations, strict=True)
        blocks: list[nn.Module] = [TimeDelay(mel_bins, *first)]
        blocks += [SqueezedRes2Net(channels, kernel, dilation, config) for channels, kernel, dilation in middle]
        self.blocks = nn.ModuleList(blocks)
        channels, kernel, dilation = last
        self.mfa = TimeDelay(channels, channels, kernel, dilation)
        self.pool_inner = TimeDelay(3 * channels, config.attention_channels)
        self.pool_outer = nn.Conv1d(config.attention_channels, channels, 1)
        self.fc = nn.Conv1d(2 * channels, config.out_width, 1)
        self.least_frames = 1 + max(k // 2 * d for k, d in zip(config.kernels, config.dilations, strict=True))
        """A shorter mel cannot be mirrored at its edges."""

    def forward(self, mel: Tensor) -> Tensor:
        """Vector [out_width] of a log-mel [T, bins]."""
        x = mel.t()[None]
        collected = []
        for block in self.blocks:
            x = block(x)
            collected.append(x)
        x = self.mfa(torch.cat(collected[1:], 1))
        mean, deviation = moments(x, torch.full_like(x[:, :1], 1 / x.shape[2]))
        spread = torch.cat([x, mean.expand_as(x), deviation.expand_as(x)], 1)
        weights = self.pool_outer(self.pool_inner(spread).tanh()).softmax(2)
        pooled: Tensor = self.fc(torch.cat(moments(x, weights), 1))
        return pooled[0, :, 0]


def moments(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean and standard deviation over time, [1, C, 1] each; the weights sum to 1."""
    mean = (weights * x).sum(2, keepdim=True)
    variance = (weights * (x - mean).square()).sum(2, keepdim=True)
    return mean, variance.clamp(LEAST_VARIANCE).sqrt()
