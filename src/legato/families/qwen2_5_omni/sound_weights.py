"""Released tensors of the flow and the vocoder → our nets: names, and the order of rows where ours is another."""

from __future__ import annotations

import torch
from torch import Tensor

from legato.errors import CheckpointError
from legato.nn.bigvgan import BigVGAN, BigVGANConfig
from legato.nn.weights import Rules, Uninitialised, fuse_projections

from .ecapa import ECAPA_NAMES
from .flow import ROTARY_HEADS, Integration, QwenFlow
from .parts import FlowConfig
from .weights import Tensors, load_part

FLOW, VOCODER = "token2wav.code2wav_dit_model.", "token2wav.code2wav_bigvgan_model."

FLOW_NAMES: Rules = (
    (r"^text_embed\.codec_embed\.", "embedding."),
    (r"^time_embed\.time_mlp\.0\.", "dit.time_in."),
    (r"^time_embed\.time_mlp\.2\.", "dit.time_out."),
    (r"^transformer_blocks\.(\d+)\.attn_norm\.linear\.", r"dit.layers.\1.modulation."),
    (r"^transformer_blocks\.(\d+)\.attn\.qkv\.", r"dit.layers.\1.qkv."),
    (r"^transformer_blocks\.(\d+)\.attn\.to_out\.0\.", r"dit.layers.\1.out."),
    (r"^transformer_blocks\.(\d+)\.ff\.ff\.0\.", r"dit.layers.\1.inner."),
    (r"^transformer_blocks\.(\d+)\.ff\.ff\.3\.", r"dit.layers.\1.outer."),
    (r"^norm_out\.linear\.", "dit.final_modulation."),
    (r"^proj_out\.", "dit.outputs."),
    *((rf"^input_embed\.spk_encoder\.{old.removeprefix('^')}", f"ecapa.{new}") for old, new in ECAPA_NAMES),
    (r"^input_embed\.spk_encoder\.", "ecapa."),
)

VOCODER_NAMES: Rules = (
    (r"^ups\.(\d+)\.0\.", r"ups.\1."),
    (r"^resblocks\.(\d+)\.activations\.(\d+)\.act\.", r"resblocks.\1.activations.\2."),
    (r"^activation_post\.act\.", "activation_post."),
)


def load_flow(config: FlowConfig, tensors: Tensors, integration: Integration) -> QwenFlow:
    """The flow, in float32. Raises CheckpointError for tensors that are missing or do not fit."""
    read = tensors.read(FLOW)
    source = f"{tensors.folder} (flow)"
    fuse_projections(read, {"qkv": ("to_q", "to_k", "to_v")}, source)
    _order(read, config, source)
    with Uninitialised():
        net = QwenFlow(config, integration)
    load_part(net, read, FLOW_NAMES, tensors.folder)
    return net


def _order(tensors: dict[str, Tensor], config: FlowConfig, source: str) -> None:
    """Bring rows and columns into our order, in place."""
    try:
        projection = tensors.pop("input_embed.proj.weight")
        tensors["dit.state_inputs.weight"] = projection[:, : config.mel_bins].clone()
        tensors["dit.condition.weight"] = projection[:, config.mel_bins :].clone()
        tensors["dit.condition.bias"] = tensors.pop("input_embed.proj.bias")
        for kind in ("weight", "bias"):
            final = tensors[f"norm_out.linear.{kind}"]
            tensors[f"norm_out.linear.{kind}"] = torch.cat(final.chunk(2)[::-1])
            for layer in range(config.layers):
                name = f"transformer_blocks.{layer}.attn.qkv.{kind}"
                tensors[name] = _halves(tensors[name], config)
    except KeyError as error:
        raise CheckpointError(f"{source} lacks {error.args[0]}") from error


def _halves(qkv: Tensor, config: FlowConfig) -> Tensor:
    """Rows of the heads that know of positions: the release turns neighbours (0, 1), (2, 3) …, our rotary turns
    (0, d/2), (1, d/2 + 1) …; scores stay the same when queries and keys are put in another order alike."""
    rows = torch.arange(len(qkv)).view(3, config.heads, config.head_dim)
    turned = rows[:2, :ROTARY_HEADS]
    rows[:2, :ROTARY_HEADS] = torch.cat([turned[..., 0::2], turned[..., 1::2]], -1)
    return qkv[rows.flatten()]


def load_vocoder(config: BigVGANConfig, tensors: Tensors) -> BigVGAN:
    """The vocoder, in float32. Raises CheckpointError for tensors that are missing or do not fit."""
    with Uninitialised():
        net = BigVGAN(config)
    load_part(net, tensors.read(VOCODER), VOCODER_NAMES, tensors.folder)
    return net
