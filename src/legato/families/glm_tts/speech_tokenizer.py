"""Reference audio → codec tokens: Whisper's encoder up to a codebook (GLM-4-Voice's tokenizer, arXiv:2412.02612).

Log-mel → two convolutions (stride 2) → pre-norm layers that see their own block and the past → pooling → the nearest
codebook row of each position. Module names are the checkpoint's, less `model.encoder.`.

T mel frames, P = T / 2 positions, N = P / pool tokens, D width.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.errors import CheckpointError
from legato.nn.layers import freeze
from legato.nn.mel import MelSpec, whisper_log_mel
from legato.nn.weights import load_strict, read_tensors

from .files import need_file, read_json_table, size_of, telling_what_to_run

CONFIG_FILE, FEATURES_FILE = "config.json", "preprocessor_config.json"
KERNEL, CONV_STRIDE = 3, 2
MAX_SECONDS = 30
"""What one pass takes; the release cuts longer audio into pieces of it, we refuse it."""

PREFIX = "model.encoder."
TRAINING_ONLY = ("ema_count", "ema_weight")


@dataclass(frozen=True)
class SpeechTokenizerConfig:
    """Sizes and places, from config.json and preprocessor_config.json. None switches a thing off."""

    width: int
    layers: int
    heads: int
    inner: int
    codes: int
    positions: int
    pool: int | None
    pool_average: bool
    pool_after: int
    block_positions: int | None
    causal_attention: bool
    causal_convolution: bool
    mel: MelSpec

    @property
    def samples_per_token(self) -> int:
        return self.mel.hop_samples * CONV_STRIDE * (self.pool or 1)


class SpeechTokenizer(nn.Module):
    """The encoder and its codebook."""

    def __init__(self, config: SpeechTokenizerConfig) -> None:
        super().__init__()
        self.config = config
        pad = 0 if config.causal_convolution else KERNEL // 2
        self.conv1 = nn.Conv1d(config.mel.bins, config.width, KERNEL, padding=pad)
        self.conv2 = nn.Conv1d(config.width, config.width, KERNEL, stride=CONV_STRIDE, padding=pad)
        self.embed_positions = nn.Embedding(config.positions, config.width)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layers))
        self.codebook = nn.Embedding(config.codes, config.width)

    @torch.inference_mode()
    def encode(self, wave: Tensor) -> tuple[int, ...]:
        """Codec ids of a wave [n] at the config's rate: one for each started `samples_per_token`."""
        stride = self.config.samples_per_token
        count = -(-wave.shape[0] // stride)
        mel = whisper_log_mel(F.pad(wave, (0, count * stride - wave.shape[0])), self.config.mel)
        positions = -(-wave.shape[0] // (stride // (self.config.pool or 1)))
        return tuple(int(id) for id in self(mel, positions).tolist()[:count])

    def forward(self, mel: Tensor, known: int) -> Tensor:
        """Codebook rows [N] (int64) of log-mel [bins, T], of whose P positions the first `known` are not padding."""
        x = F.gelu(self.conv1(self._padded(mel[None])))
        x = F.gelu(self.conv2(self._padded(x)))[0].t()
        x = x + self.embed_positions.weight[: len(x)]
        mask = self._mask(len(x), known, self.config.block_positions)
        for index, layer in enumerate(self.layers, 1):
            x = layer(x, mask)
            if index == self.config.pool_after and (pool := self.config.pool) is not None:
                x = self._pooled(x, pool)
                block = self.config.block_positions
                mask = self._mask(len(x), -(-known // pool), None if block is None else block // pool)
        return nearest(x, self.codebook.weight)

    def _padded(self, x: Tensor) -> Tensor:
        return F.pad(x, (KERNEL - 1, 0)) if self.config.causal_convolution else x

    def _pooled(self, x: Tensor, pool: int) -> Tensor:
        rows = F.pad(x, (0, 0, 0, -len(x) % pool)).view(-1, pool, x.shape[1])
        return rows.mean(1) if self.config.pool_average else rows.amax(1)

    def _mask(self, length: int, known: int, block: int | None) -> Tensor:
        """What each position may see, bool [P, P]: the past and its own block; all that is known; or the past."""
        at = torch.arange(length, device=self.codebook.weight.device)
        if self.config.causal_attention:
            return at[None] <= at[:, None]
        mask = (at < known).expand(length, length)
        return mask if block is None else mask & (at[None] // block <= at[:, None] // block)


class _Attention(nn.Module):
    def __init__(self, config: SpeechTokenizerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q_proj = nn.Linear(config.width, config.width)
        self.k_proj = nn.Linear(config.width, config.width, bias=False)
        self.v_proj = nn.Linear(config.width, config.width)
        self.out_proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (self._by_head(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(mixed.transpose(1, 2).reshape(x.shape))

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(1, len(x), self.heads, -1).transpose(1, 2)


class _Layer(nn.Module):
    def __init__(self, config: SpeechTokenizerConfig) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.width)
        self.fc1 = nn.Linear(config.width, config.inner)
        self.fc2 = nn.Linear(config.inner, config.width)
        self.final_layer_norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x), mask)
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))


def nearest(x: Tensor, codebook: Tensor) -> Tensor:
    """Row of codebook [codes, D] nearest to each row of x [N, D], the first of equals: |c|² + |x|² - 2xc."""
    squares = codebook.square().sum(1) + x.square().sum(1, keepdim=True)
    return torch.addmm(squares, x, codebook.t(), alpha=-2.0).argmin(1)


# --- reading ---


def read_config(folder: Path) -> SpeechTokenizerConfig:
    """The sizes of the tokenizer in a checkpoint folder. Raises CheckpointError naming the file and the key."""
    encoder, features = read_json_table(folder / CONFIG_FILE), read_json_table(folder / FEATURES_FILE)
    try:
        config = _parse(encoder, features)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder}: {CONFIG_FILE} or {FEATURES_FILE} lacks or misstates {error}") from error
    if config.pool is not None and config.pool_after > config.layers:
        raise CheckpointError(
            f"{folder / CONFIG_FILE}: pooling_position {config.pool_after} is after quantize_position {config.layers}"
        )
    return config


def _parse(encoder: dict[str, Any], features: dict[str, Any]) -> SpeechTokenizerConfig:
    if encoder.get("activation_function", "gelu") != "gelu":
        raise ValueError(f"activation_function {encoder['activation_function']!r} (only 'gelu' is known)")
    pooling = encoder.get("pooling_type", "max")
    if pooling not in ("avg", "max"):
        raise ValueError(f"pooling_type {pooling!r} ('avg' or 'max')")
    mel = MelSpec(
        sample_hz=int(features.get("sampling_rate", 16_000)),
        fft_samples=int(features.get("n_fft", 400)),
        hop_samples=int(features.get("hop_length", 160)),
        bins=size_of(encoder, "num_mel_bins"),
        high_hz=8000.0,
    )
    if int(features.get("feature_size", mel.bins)) != mel.bins:
        raise ValueError(f"feature_size {features['feature_size']} (num_mel_bins is {mel.bins})")
    pool, block = encoder.get("pooling_kernel_size"), encoder.get("quantize_causal_block_size")
    causal = bool(encoder.get("encoder_causal_attention") or encoder.get("quantize_causal_encoder"))
    return SpeechTokenizerConfig(
        width=size_of(encoder, "d_model"),
        layers=size_of(encoder, "quantize_position"),
        heads=size_of(encoder, "encoder_attention_heads"),
        inner=size_of(encoder, "encoder_ffn_dim"),
        codes=size_of(encoder, "quantize_vocab_size"),
        positions=size_of(encoder, "max_source_positions"),
        pool=None if pool is None else int(pool),
        pool_average=pooling == "avg",
        pool_after=int(encoder.get("pooling_position") or 0),
        block_positions=None if block is None else int(block),
        causal_attention=causal,
        causal_convolution=bool(encoder.get("encoder_causal_convolution")),
        mel=mel,
    )


@telling_what_to_run()
def read_speech_tokenizer(folder: Path, device: str = "cpu") -> SpeechTokenizer:
    """The speech tokenizer in a folder of config.json, preprocessor_config.json and model*.safetensors.

    The decoder, layers behind the codebook and what only training needs are passed over. Raises CheckpointError.
    """
    config = read_config(folder)
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder} has no model*.safetensors: the speech tokenizer's weights are expected there")
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors |= {n.removeprefix(PREFIX): t for n, t in read_tensors(need_file(file)).items() if n.startswith(PREFIX)}
    net = SpeechTokenizer(config)
    load_strict(net, {n: t for n, t in tensors.items() if _needed(n, config.layers)}, folder)
    freeze(net.to(device))
    return net


def _needed(name: str, layers: int) -> bool:
    layer = re.match(r"layers\.(\d+)\.", name)
    if layer is not None:
        return int(layer[1]) < layers
    return not name.startswith(("layer_norm.", "embed_positions2.", *TRAINING_ONLY))
