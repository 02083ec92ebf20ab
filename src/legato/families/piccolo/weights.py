"""Piccolo's safetensors files → nets. The first voice's files keep the names they were trained with; this is the table
between. Files of format 2 have the nets' own names."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from legato.errors import CheckpointError
from legato.nn.weights import DECODER_GROUPS, Rules, fuse_projections, load_strict, read_tensors, renamed

LM_NAMES: Rules = (
    (r"^embed_tokens\.", "embedding."),
    (r"^lm_head\.", "head."),
    (r"^norm\.", "decoder.norm."),
    (r"^layers\.(\d+)\.input_layernorm\.", r"decoder.layers.\1.attention_norm."),
    (r"^layers\.(\d+)\.post_attention_layernorm\.", r"decoder.layers.\1.mlp_norm."),
    (r"^layers\.(\d+)\.self_attn\.o_proj\.", r"decoder.layers.\1.out."),
    (r"^layers\.(\d+)\.self_attn\.qkv\.", r"decoder.layers.\1.qkv."),
    (r"^layers\.(\d+)\.down_proj\.", r"decoder.layers.\1.mlp.down."),
    (r"^layers\.(\d+)\.gate_up\.", r"decoder.layers.\1.mlp.gate_up."),
)
FLOW_NAMES: Rules = (
    (r"^enc\.emb\.", "encoder.embedding."),
    (r"^enc\.dw\.", "encoder.depthwise."),
    (r"^enc\.n\.", "encoder.norms."),
    (r"^enc\.p1\.", "encoder.inner."),
    (r"^enc\.p2\.", "encoder.outer."),
    (r"^enc\.up\.", "encoder.upsample."),
    (r"^enc\.mu\.", "encoder.guess."),
    (r"^t1\.", "dit.time_in."),
    (r"^t2\.", "dit.time_out."),
    (r"^blocks\.(\d+)\.ada\.", r"dit.layers.\1.modulation."),
    (r"^blocks\.(\d+)\.qkv\.", r"dit.layers.\1.qkv."),
    (r"^blocks\.(\d+)\.o\.", r"dit.layers.\1.out."),
    (r"^blocks\.(\d+)\.f1\.", r"dit.layers.\1.inner."),
    (r"^blocks\.(\d+)\.f2\.", r"dit.layers.\1.outer."),
    (r"^ada\.", "dit.final_modulation."),
    (r"^out\.", "dit.outputs."),
)
VOCODER_NAMES: Rules = (
    (r"^pre\.", "inputs."),
    (r"^n0\.", "input_norm."),
    (r"^(blocks|tail)\.(\d+)\.dw\.", r"\1.\2.depthwise."),
    (r"^(blocks|tail)\.(\d+)\.n\.", r"\1.\2.norm."),
    (r"^(blocks|tail)\.(\d+)\.p1\.", r"\1.\2.inner."),
    (r"^(blocks|tail)\.(\d+)\.p2\.", r"\1.\2.outer."),
    (r"^(blocks|tail)\.(\d+)\.g$", r"\1.\2.scale"),
    (r"^up\.", "upsample."),
    (r"^n1\.", "output_norm."),
)


def load_lm(net: nn.Module, path: Path, own_names: bool = False) -> None:
    """Fill a PiccoloLM; query, key and value (and gate and up) projections become one matrix each."""
    raw = read_tensors(path)
    if own_names:
        load_strict(net, raw, path)
        return
    fuse_projections(raw, DECODER_GROUPS, str(path))
    load_strict(net, renamed(raw, LM_NAMES), path)


def load_flow(net: nn.Module, path: Path, own_names: bool = False) -> None:
    """Fill a PiccoloFlow; its input projection is split into the noisy mel's part and the rest."""
    raw = read_tensors(path)
    if own_names:
        load_strict(net, raw, path)
        return
    tensors = renamed(raw, FLOW_NAMES)
    try:
        weight, bias = tensors.pop("inp.weight"), tensors.pop("inp.bias")
        mel_bins = tensors["dit.outputs.bias"].shape[0]
    except KeyError as error:
        raise CheckpointError(f"{path} lacks {error}") from None
    tensors["dit.state_inputs.weight"], tensors["dit.condition.weight"] = weight[:, :mel_bins], weight[:, mel_bins:]
    load_strict(net, tensors | {"dit.condition.bias": bias}, path)


def load_vocoder(net: nn.Module, path: Path) -> None:
    """Fill a Vocos."""
    load_strict(net, renamed(read_tensors(path), VOCODER_NAMES), path)
