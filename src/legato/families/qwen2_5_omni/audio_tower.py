"""The encoder of sound: log-mel blocks of two seconds → 25 rows a second (Qwen2-Audio's encoder, cut into blocks).

Blocks know nothing of each other: positions start at 0 in every one of them. So a block is encoded as soon as it is
heard, and a clip comes out the same whether its blocks come together or one by one.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.layers import Linear
from legato.nn.weights import Rules, Uninitialised, fuse_projections

from .parts import AudioConfig
from .weights import Tensors, load_part

MAX_TIMESCALE = 10000.0
NORM_EPS = 1e-5
PREFIX = "thinker.audio_tower."
UNUSED = ("audio_bos_eos_token.",)
"""In the released files, but no part of the net."""

NAMES: Rules = (
    (r"^layers\.(\d+)\.self_attn_layer_norm\.", r"layers.\1.attention_norm."),
    (r"^layers\.(\d+)\.final_layer_norm\.", r"layers.\1.mlp_norm."),
    (r"^layers\.(\d+)\.self_attn\.out_proj\.", r"layers.\1.out."),
    (r"^layers\.(\d+)\.self_attn\.qkv\.", r"layers.\1.qkv."),
    (r"^layers\.(\d+)\.fc1\.", r"layers.\1.inner."),
    (r"^layers\.(\d+)\.fc2\.", r"layers.\1.outer."),
    (r"^ln_post\.", "norm."),
    (r"^proj\.", "outputs."),
)


class AudioLayer(nn.Module):
    """Pre-norm attention of all positions to all, and a GELU MLP."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(config.width, NORM_EPS)
        self.mlp_norm = nn.LayerNorm(config.width, NORM_EPS)
        self.qkv = Linear(config.width, 3 * config.width)
        self.out = Linear(config.width, config.width)
        self.inner = Linear(config.width, config.inner)
        self.outer = Linear(config.inner, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, n, width] → the same shape."""
        blocks, rows, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(blocks, rows, 3, self.heads, -1)
        mixed = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.out(mixed.transpose(1, 2).reshape(blocks, rows, width))
        return x + self.outer(F.gelu(self.inner(self.mlp_norm(x))))


class AudioTower(nn.Module):
    """Two convolutions, of which the second halves the frames, layers, and the average of every two positions."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.config = config
        self.conv1 = nn.Conv1d(config.mel_bins, config.width, 3, padding=1)
        self.conv2 = nn.Conv1d(config.width, config.width, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(AudioLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, NORM_EPS)
        self.outputs = Linear(config.width, config.out_width)
        self.positions = sinusoids(-(-config.block_frames // 2), config.width)

    def forward(self, mel: Tensor) -> Tensor:
        """Blocks of equal length [B, frames, mel_bins] → rows [B, config.tokens(frames), out_width]."""
        mel = mel.to(self.conv1.weight.dtype).transpose(1, 2)
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        x = x + self.positions[: x.shape[1]].to(x)
        for layer in self.layers:
            x = layer(x)
        pairs = x[:, : x.shape[1] // 2 * 2].unflatten(1, (-1, 2)).mean(2)
        rows: Tensor = self.outputs(self.norm(pairs))
        return rows


def sinusoids(length: int, width: int) -> Tensor:
    """Position table [length, width]: sines, then cosines, of times that grow geometrically (Vaswani et al. 2017)."""
    half = width // 2
    rates = torch.exp(-(math.log(MAX_TIMESCALE) / (half - 1)) * torch.arange(half).float())
    angles = torch.arange(length)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


def load_audio_tower(tensors: Tensors, config: AudioConfig, dtype: torch.dtype) -> AudioTower:
    """Raises CheckpointError for what does not fit."""
    raw = tensors.read(PREFIX, dtype, skip=UNUSED)
    fuse_projections(raw, {"qkv": ("q_proj", "k_proj", "v_proj")}, str(tensors.folder))
    with Uninitialised():
        net = AudioTower(config)
    load_part(net, raw, NAMES, tensors.folder)
    return net
