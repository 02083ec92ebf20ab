"""Tiny stand-ins for the frontend's files, in the release's formats, the same on every machine.

Weights come from numpy's RandomState, whose streams never change. The golden data were made with these.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

Center = torch.Tensor | None

SPEECH_CONFIG: dict[str, Any] = {
    "d_model": 48,
    "encoder_layers": 5,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "num_mel_bins": 128,
    "max_source_positions": 1500,
    "activation_function": "gelu",
    "pooling_kernel_size": 2,
    "pooling_type": "avg",
    "pooling_position": 3,
    "quantize_position": 3,
    "quantize_vocab_size": 2048,
    "quantize_causal_block_size": 20,
    "quantize_ema_decay": 0.99,
    "encoder_causal_convolution": True,
    "encoder_causal_attention": False,
    "quantize_causal_encoder": False,
}
FEATURES_CONFIG = {"feature_size": 128, "hop_length": 160, "n_fft": 400, "sampling_rate": 16000, "chunk_length": 30}

RANK_CORPUS = (
    "the quick brown fox jumps over a lazy dog, and then some more text; 你好，世界。今天天气很好，我们去公园。"
)
PHONEMES = "B P M F D T N L G K H J Q X ZH CH SH R Z C S A1 A2 AN1 AN4 ANG2 EN1 E5 I4 IAN2 IAN4 IE2 UEI1 V1 VE4"


# --- speech tokenizer ---


def speech_tensors(config: dict[str, Any], center: Center = None, seed: int = 7) -> dict[str, torch.Tensor]:
    """Random weights with the released names, among them layers behind the codebook and a last norm.

    The codebook is scattered around `center` [width]: put among the hidden states of real input, many codes are used.
    """
    random = np.random.RandomState(seed)
    width, inner, codes = config["d_model"], config["encoder_ffn_dim"], config["quantize_vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "conv1.weight": (width, config["num_mel_bins"], 3),
        "conv1.bias": (width,),
        "conv2.weight": (width, width, 3),
        "conv2.bias": (width,),
        "embed_positions.weight": (config["max_source_positions"], width),
        "codebook.weight": (codes, width),
        "embed_positions2.weight": (-(-config["max_source_positions"] // config["pooling_kernel_size"]), width),
        "ema_count": (codes,),
        "ema_weight": (codes, width),
        "layer_norm.weight": (width,),
        "layer_norm.bias": (width,),
    }
    for layer in range(config["encoder_layers"]):
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in _layer_shapes(width, inner).items()}
    tensors = {}
    for name, shape in shapes.items():
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 and "embed" not in name else 12
        values = random.standard_normal(shape) * 2.0 * fan_in**-0.5
        if name.endswith("norm.weight"):
            values = 1 + 0.3 * values
        tensors[f"model.encoder.{name}"] = torch.from_numpy(values.astype(np.float32))
    codebook = random.standard_normal((codes, width)) * 3.0
    if center is not None:
        codebook += center.numpy()
    tensors["model.encoder.codebook.weight"] = torch.from_numpy(codebook.astype(np.float32))
    return tensors


def _layer_shapes(width: int, inner: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "fc1.weight": (inner, width),
        "fc1.bias": (inner,),
        "fc2.weight": (width, inner),
        "fc2.bias": (width,),
    }
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        shapes[f"self_attn.{name}.weight"] = (width, width)
        if name != "k_proj":
            shapes[f"self_attn.{name}.bias"] = (width,)
    for name in ("self_attn_layer_norm", "final_layer_norm"):
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)
    return shapes


def write_speech_tokenizer(folder: Path, center: Center = None, **changes: Any) -> Path:
    """A speech tokenizer folder; its weights in two files, as large checkpoints have them."""
    config = SPEECH_CONFIG | changes
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(FEATURES_CONFIG))
    tensors = speech_tensors(config, center)
    names = sorted(tensors)
    for part, chosen in enumerate((names[::2], names[1::2]), 1):
        save_file({n: tensors[n] for n in chosen}, folder / f"model-0000{part}-of-00002.safetensors")
    return folder


# --- text tokenizer ---


def write_text_tokenizer(folder: Path, speech_tokens: int = 512, phonemes: str = PHONEMES) -> Path:
    """A rank file (all bytes, then the corpus's words and their prefixes) and its added tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = [bytes((byte,)) for byte in range(256)]
    for word in RANK_CORPUS.replace("，", " ，").split(" "):
        for text in (*word, word, f" {word}"):
            piece = text.encode()
            ranks += [piece[:stop] for stop in range(2, len(piece) + 1) if piece[:stop] not in ranks]
    lines = [f"{base64.b64encode(piece).decode()} {rank}" for rank, piece in enumerate(ranks)]
    (folder / "tokenizer.model").write_text("\n".join(lines) + "\n")
    added = ["<|endoftext|>", "[MASK]", "<|system|>", "<|user|>", "<|begin_of_audio|>", "<|end_of_audio|>"]
    added += [f"<|{name}|>" for name in phonemes.split()]
    added += [f"<|audio_{index}|>" for index in range(speech_tokens)]
    entries = {
        str(len(ranks) + index): {"content": text, "lstrip": False, "rstrip": False, "special": True}
        for index, text in enumerate(added)
    }
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": entries}))
    return folder


# --- speaker net: an ONNX file of three operations, put together byte by byte (protobuf's wire format) ---


def write_speaker_net(path: Path, width: int = 192, bins: int = 80) -> Path:
    """[1, T, 80] → tanh → mean over T → [1, 1, 80] @ [80, 192]: enough to tell features apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weight = np.random.RandomState(3).standard_normal((bins, width)).astype(np.float32)
    nodes = [
        _node("Tanh", ["feats"], ["bounded"]),
        _node("ReduceMean", ["bounded"], ["mean"], _bytes(5, _ints_attribute("axes", [1]))),
        _node("MatMul", ["mean", "weight"], ["embedding"]),
    ]
    tensor = _ints(1, [bins, width]) + _int(2, 1) + _bytes(8, b"weight") + _bytes(9, weight.tobytes())
    graph = b"".join(_bytes(1, node) for node in nodes) + _bytes(2, b"tiny") + _bytes(5, tensor)
    graph += _bytes(11, _value("feats", [1, "T", bins])) + _bytes(12, _value("embedding", [1, 1, width]))
    path.write_bytes(_int(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, b"") + _int(2, 13)))
    return path


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes((value & 127 | 128,))
        value >>= 7
    return out + bytes((value,))


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _ints(field: int, values: list[int]) -> bytes:
    return b"".join(_int(field, value) for value in values)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _node(kind: str, inputs: list[str], outputs: list[str], more: bytes = b"") -> bytes:
    named = b"".join(_bytes(1, i.encode()) for i in inputs) + b"".join(_bytes(2, o.encode()) for o in outputs)
    return named + _bytes(3, kind.lower().encode()) + _bytes(4, kind.encode()) + more


def _ints_attribute(name: str, values: list[int]) -> bytes:
    return _bytes(1, name.encode()) + _ints(8, values) + _int(20, 7)


def _value(name: str, sizes: list[int | str]) -> bytes:
    dims = b"".join(_bytes(1, _bytes(2, size.encode()) if isinstance(size, str) else _int(1, size)) for size in sizes)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, _int(1, 1) + _bytes(2, dims)))


# --- sound ---


def speechlike(sample_hz: int, seconds: float, channels: int = 1, seed: int = 1) -> np.ndarray:
    """Float32 [channels, n]: vowel-like syllables with pauses over a quiet noise; the channels differ."""
    random = np.random.RandomState(seed)
    t = np.arange(round(sample_hz * seconds)) / sample_hz
    pitch_hz = 120 + 30 * np.sin(2 * np.pi * 0.7 * t)
    phase = 2 * np.pi * np.cumsum(pitch_hz) / sample_hz
    voice = sum(np.sin(k * phase) / k * (1 + np.sin(2 * np.pi * 1.3 * t + k)) for k in range(1, 20))
    syllables = np.clip(np.sin(2 * np.pi * 2.2 * t) + 0.3, 0, 1)
    rows = [
        0.15 * (1 - 0.3 * row) * syllables * voice + 0.003 * random.standard_normal(len(t)) for row in range(channels)
    ]
    return np.stack(rows).astype(np.float32).clip(-0.99, 0.99)
