"""Tiny random GLM-TTS checkpoints in the released layout, the same numbers on every machine.

Weights come from a hash of (seed, tensor name, index), not from a library's generator, so that golden data made once
from the reference stays valid. `build(folder)` writes `llm/`, `flow/`, `hift/` and `vocos2d/` of a `ckpt/` tree.
"""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

FIRST_SPEECH, CODES = 400, 64
END_GAIN = 1.5
"""Of the end's row in the embedding (and head), so that some utterances end by themselves."""

PADDING, END_OF_AUDIO, BEGIN_OF_AUDIO = 256, 257, 258

_MIX_1, _MIX_2, _STEP = (np.uint64(n) for n in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15))


def numbers(name: str, shape: tuple[int, ...], std: float = 1.0, mean: float = 0.0, seed: int = 0) -> Tensor:
    """float32 of that shape, uniform with this mean and standard deviation (splitmix64 of the index)."""
    key = np.uint64(zlib.crc32(f"{seed}:{name}".encode()) << 20)
    with np.errstate(over="ignore"):
        bits = (np.arange(math.prod(shape), dtype=np.uint64) + key) * _STEP
        bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
        bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
        bits ^= bits >> np.uint64(31)
    uniform = (bits >> np.uint64(11)).astype(np.float64) / 2**53
    values = (mean + std * math.sqrt(12) * (uniform - 0.5)).astype(np.float32)
    return torch.from_numpy(values.reshape(shape))


@dataclass(frozen=True)
class Sizes:
    """Sizes of a tiny checkpoint. Whatever is not here is as in the release."""

    lm_width: int = 64
    lm_layers: int = 2
    lm_heads: int = 4
    lm_kv_heads: int = 2
    lm_inner: int = 96
    vocabulary: int = 512
    dit_width: int = 64
    dit_layers: int = 3
    dit_head_dim: int = 16
    token_width: int = 32
    flow_codes: int = 100
    hift_width: int = 64
    f0_width: int = 24
    mel_bins: int = 80
    speaker: int = 192


def build(folder: Path, sizes: Sizes | None = None, seed: int = 0) -> Path:
    """Write the nets of a checkpoint into `folder` and give it back."""
    sizes = sizes or Sizes()
    for name in ("llm", "flow", "hift", "vocos2d"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    save_file(lm_tensors(sizes, seed), folder / "llm" / "model.safetensors", metadata={"format": "pt"})
    (folder / "llm" / "config.json").write_text(json.dumps(lm_config(sizes)), encoding="utf-8")
    torch.save({"model": flow_tensors(sizes, seed)}, folder / "flow" / "flow.pt")
    (folder / "flow" / "config.yaml").write_text(FLOW_YAML, encoding="utf-8")
    torch.save(hift_tensors(sizes, seed), folder / "hift" / "hift.pt")
    torch.jit.save(vocos_script(sizes, seed), str(folder / "vocos2d" / "generator_jit.ckpt"))
    return folder


# --- language model ---


def lm_config(sizes: Sizes) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": sizes.lm_width,
        "num_hidden_layers": sizes.lm_layers,
        "num_attention_heads": sizes.lm_heads,
        "num_key_value_heads": sizes.lm_kv_heads,
        "intermediate_size": sizes.lm_inner,
        "vocab_size": sizes.vocabulary,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def lm_tensors(sizes: Sizes, seed: int = 0) -> dict[str, Tensor]:
    head = sizes.lm_width // sizes.lm_heads
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (sizes.vocabulary, sizes.lm_width)}
    for i in range(sizes.lm_layers):
        layer = f"model.layers.{i}."
        shapes |= {
            f"{layer}input_layernorm.weight": (sizes.lm_width,),
            f"{layer}post_attention_layernorm.weight": (sizes.lm_width,),
            f"{layer}self_attn.q_proj.weight": (sizes.lm_heads * head, sizes.lm_width),
            f"{layer}self_attn.k_proj.weight": (sizes.lm_kv_heads * head, sizes.lm_width),
            f"{layer}self_attn.v_proj.weight": (sizes.lm_kv_heads * head, sizes.lm_width),
            f"{layer}self_attn.o_proj.weight": (sizes.lm_width, sizes.lm_heads * head),
            f"{layer}mlp.gate_proj.weight": (sizes.lm_inner, sizes.lm_width),
            f"{layer}mlp.up_proj.weight": (sizes.lm_inner, sizes.lm_width),
            f"{layer}mlp.down_proj.weight": (sizes.lm_width, sizes.lm_inner),
        }
    shapes["model.norm.weight"] = (sizes.lm_width,)
    tensors = {name: _weight(f"lm.{name}", shape, seed, gain=2.0) for name, shape in shapes.items()}
    tensors["model.embed_tokens.weight"][END_OF_AUDIO] *= END_GAIN
    return tensors


def _weight(name: str, shape: tuple[int, ...], seed: int, gain: float = 1.0) -> Tensor:
    """A matrix or kernel scaled by its fan-in, a norm's weight near 1, a bias near 0."""
    if len(shape) == 1:
        near = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        return numbers(name, shape, std=0.1, mean=near, seed=seed)
    fan_in = math.prod(shape[1:]) if "embed" not in name else 4 * shape[1]
    return numbers(name, shape, std=gain / math.sqrt(fan_in), seed=seed)


# --- flow ---

FLOW_YAML = """# sizes that the tensors do not show
flow: !new:flow.flow.Flow
  spkr_emb_adaLN: True
  speech_token_cfg: False
  remove_spkr_concat_condition: True
  mel_dim: 80
  mel_framerate: 50
  input_frame_rate: 25
"""


def flow_tensors(sizes: Sizes, seed: int = 0) -> dict[str, Tensor]:
    width, token, mel = sizes.dit_width, sizes.token_width, sizes.mel_bins
    condition = width + sizes.speaker
    shapes: dict[str, tuple[int, ...]] = {
        **_linear("time_embed.time_mlp.0", width, 256),
        **_linear("time_embed.time_mlp.2", width, width),
        "text_emb_layer.text_embed.weight": (sizes.flow_codes + 1, token),
        **_linear("emb_concator.proj", width, 2 * mel + token),
        **_linear("norm_out.linear", 2 * width, condition),
        **_linear("proj_out", mel, width),
    }
    for i in range(4):
        block = f"text_emb_layer.text_blocks.{i}."
        shapes |= {f"{block}dwconv.weight": (token, 1, 7), f"{block}dwconv.bias": (token,)}
        shapes |= {f"{block}norm.weight": (token,), f"{block}norm.bias": (token,)}
        shapes |= _linear(f"{block}pwconv1", 2 * token, token) | _linear(f"{block}pwconv2", token, 2 * token)
        shapes |= {f"{block}grn.{kind}": (1, 1, 2 * token) for kind in ("gamma", "beta")}
    for i in (0, 2):
        conv = f"emb_concator.conv_pos_embed.conv1d.{i}"
        shapes |= {f"{conv}.weight": (width, width // 16, 31), f"{conv}.bias": (width,)}
    for i in range(sizes.dit_layers):
        block = f"transformer_blocks.{i}."
        shapes |= _linear(f"{block}attn_norm.linear", 6 * width, condition)
        for name in ("to_q", "to_k", "to_v", "to_out.0"):
            shapes |= _linear(f"{block}attn.{name}", width, width)
        shapes |= _linear(f"{block}ff.ff.0.0", 2 * width, width) | _linear(f"{block}ff.ff.2", width, 2 * width)
    tensors = {f"estimator.{n}": _weight(f"flow.{n}", shape, seed) for n, shape in shapes.items()}
    for name in tensors:
        if "grn" in name:
            tensors[name] = numbers(name, tuple(tensors[name].shape), std=0.3, seed=seed)
    half = sizes.dit_head_dim // 2
    tensors["estimator.rotary_embed.inv_freq"] = 10000.0 ** -(torch.arange(half) / half)
    return tensors


def _linear(name: str, out: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, inputs), f"{name}.bias": (out,)}


# --- vocoders ---

UPSAMPLE_KERNELS, SOURCE_DOWNS, HARMONICS, STFT_BINS = (16, 11, 7), (30, 6, 1), 9, 18


def hift_tensors(sizes: Sizes, seed: int = 0) -> dict[str, Tensor]:
    """Weight-normed layers as the release stores them: `original0` is the length, `original1` the direction."""
    width = sizes.hift_width
    plain: dict[str, tuple[int, ...]] = {}
    normed: dict[str, tuple[int, ...]] = {"conv_pre": (width, sizes.mel_bins, 7)}
    for i, (kernel, down) in enumerate(zip(UPSAMPLE_KERNELS, SOURCE_DOWNS, strict=True)):
        inputs, outputs = width >> i, width >> (i + 1)
        normed[f"ups.{i}"] = (inputs, outputs, kernel)
        plain |= {f"source_downs.{i}.weight": (outputs, STFT_BINS, down), f"source_downs.{i}.bias": (outputs,)}
        blocks = [(f"source_resblocks.{i}", (7, 7, 11)[i])]
        blocks += [(f"resblocks.{3 * i + j}", size) for j, size in enumerate((3, 7, 11))]
        for block, size in blocks:
            for j in range(3):
                normed |= {f"{block}.convs{n}.{j}": (outputs, outputs, size) for n in (1, 2)}
                plain |= {f"{block}.activations{n}.{j}.alpha": (outputs,) for n in (1, 2)}
    normed["conv_post"] = (STFT_BINS, width >> 3, 7)
    for i in range(5):
        inputs = sizes.f0_width if i else sizes.mel_bins
        normed[f"f0_predictor.condnet.{2 * i}"] = (sizes.f0_width, inputs, 3)
    plain |= {"m_source.l_linear.weight": (1, HARMONICS), "m_source.l_linear.bias": (1,)}
    plain |= {"f0_predictor.classifier.weight": (1, sizes.f0_width), "f0_predictor.classifier.bias": (1,)}
    tensors = {name: _weight(f"hift.{name}", shape, seed) for name, shape in plain.items()}
    tensors |= {n: numbers(n, tuple(t.shape), 0.2, 1.0, seed) for n, t in tensors.items() if n.endswith("alpha")}
    tensors["m_source.l_linear.weight"] = numbers("l_linear", (1, HARMONICS), 0.5, 0.0, seed)
    tensors["f0_predictor.classifier.weight"] = numbers("classifier", (1, sizes.f0_width), 20.0, 0.0, seed)
    tensors["f0_predictor.classifier.bias"] = torch.tensor([30.0])
    for name, shape in normed.items():
        tensors |= _normed(name, shape, seed)
    return tensors


def _normed(name: str, shape: tuple[int, ...], seed: int) -> dict[str, Tensor]:
    direction = numbers(f"hift.{name}.direction", shape, seed=seed)
    length = numbers(f"hift.{name}.length", (shape[0], 1, 1), 0.1, 1.0 if "convs" not in name else 0.5, seed)
    outputs = shape[1] if name.startswith("ups") else shape[0]
    return {
        f"{name}.parametrizations.weight.original0": length,
        f"{name}.parametrizations.weight.original1": direction,
        f"{name}.bias": numbers(f"hift.{name}.bias", (outputs,), 0.05, seed=seed),
    }


class TinyVocos(nn.Module):
    """Stands in for Vocos2D: [B, T, bins] → [B, 640 T], seeing 4 frames back and 2 ahead."""

    def __init__(self, bins: int, hop: int, seed: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d((4, 2), 0.0)
        self.conv, self.head = nn.Conv1d(bins, 8, 7), nn.Linear(8, hop)
        for name, tensor in self.state_dict().items():
            tensor.copy_(_weight(f"vocos.{name}", tuple(tensor.shape), seed))

    def forward(self, mel: Tensor) -> Tensor:
        hidden = torch.tanh(self.conv(self.pad(mel.transpose(1, 2)))).transpose(1, 2)
        return torch.tanh(self.head(hidden)).flatten(1)


def vocos_script(sizes: Sizes, seed: int = 0) -> torch.jit.ScriptModule:
    return torch.jit.script(TinyVocos(sizes.mel_bins, 640, seed).eval())
