"""Keys and shapes of a Qwen2.5-Omni checkpoint of any size, in the released layout."""

from __future__ import annotations

from collections.abc import Iterator

from .settings import BLOCK_DILATIONS, BLOCK_KERNELS, FF_MULT, KERNELS, MEL_BINS, Sizes

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def linear(name: str, outputs: int, inputs: int, *, bias: bool = True) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def conv(name: str, outputs: int, inputs: int, kernel: int, *, bias: bool = True) -> Shapes:
    yield f"{name}.weight", (outputs, inputs, kernel)
    if bias:
        yield f"{name}.bias", (outputs,)


def decoder(width: int, layers: int, heads: tuple[int, int, int], inner: int) -> Shapes:
    query_heads, kv_heads, head_dim = heads
    for layer in range(layers):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (width,)
        yield f"{at}.post_attention_layernorm.weight", (width,)
        yield from linear(f"{at}.self_attn.q_proj", query_heads * head_dim, width)
        yield from linear(f"{at}.self_attn.k_proj", kv_heads * head_dim, width)
        yield from linear(f"{at}.self_attn.v_proj", kv_heads * head_dim, width)
        yield from linear(f"{at}.self_attn.o_proj", width, query_heads * head_dim, bias=False)
        for part in ("gate", "up"):
            yield from linear(f"{at}.mlp.{part}_proj", inner, width, bias=False)
        yield from linear(f"{at}.mlp.down_proj", width, inner, bias=False)
    yield "model.norm.weight", (width,)


def audio_tower(s: Sizes) -> Shapes:
    width = s.audio_width
    yield from conv("conv1", width, 128, 3)
    yield from conv("conv2", width, width, 3)
    yield "audio_bos_eos_token.weight", (2, s.width)
    for layer in range(s.audio_layers):
        at = f"layers.{layer}"
        for part in ("q", "v", "out"):
            yield from linear(f"{at}.self_attn.{part}_proj", width, width)
        yield from linear(f"{at}.self_attn.k_proj", width, width, bias=False)
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            yield f"{at}.{norm}.weight", (width,)
            yield f"{at}.{norm}.bias", (width,)
        yield from linear(f"{at}.fc1", s.audio_inner, width)
        yield from linear(f"{at}.fc2", width, s.audio_inner)
    yield "ln_post.weight", (width,)
    yield "ln_post.bias", (width,)
    yield from linear("proj", s.width, width)


def vision_tower(s: Sizes) -> Shapes:
    width = s.vision_width
    yield "patch_embed.proj.weight", (width, 3, 2, 14, 14)
    for layer in range(s.vision_layers):
        at = f"blocks.{layer}"
        yield f"{at}.norm1.weight", (width,)
        yield f"{at}.norm2.weight", (width,)
        for part in ("q", "k", "v", "proj"):
            yield from linear(f"{at}.attn.{part}", width, width)
        yield from linear(f"{at}.mlp.gate_proj", s.vision_inner, width)
        yield from linear(f"{at}.mlp.up_proj", s.vision_inner, width)
        yield from linear(f"{at}.mlp.down_proj", width, s.vision_inner)
    yield "merger.ln_q.weight", (width,)
    yield from linear("merger.mlp.0", 4 * width, 4 * width)
    yield from linear("merger.mlp.2", s.width, 4 * width)


def speaker_encoder(s: Sizes) -> Shapes:
    width = s.ecapa_width
    yield from conv("blocks.0.conv", width, MEL_BINS, 5)
    for block in (1, 2, 3):
        at = f"blocks.{block}"
        yield from conv(f"{at}.tdnn1.conv", width, width, 1)
        yield from conv(f"{at}.res2net_block.blocks.0.conv", width // 2, width // 2, 3)
        yield from conv(f"{at}.tdnn2.conv", width, width, 1)
        yield from conv(f"{at}.se_block.conv1", s.ecapa_attention, width, 1)
        yield from conv(f"{at}.se_block.conv2", width, s.ecapa_attention, 1)
    yield from conv("mfa.conv", 3 * width, 3 * width, 1)
    yield from conv("asp.tdnn.conv", s.ecapa_attention, 9 * width, 1)
    yield from conv("asp.conv", 3 * width, s.ecapa_attention, 1)
    yield from conv("fc", s.reference_width, 6 * width, 1)


def flow(s: Sizes) -> Shapes:
    width = s.flow_width
    yield from linear("time_embed.time_mlp.0", width, 256)
    yield from linear("time_embed.time_mlp.2", width, width)
    yield "text_embed.codec_embed.weight", (s.codes + 1, s.code_width)
    yield from linear("input_embed.proj", width, MEL_BINS + s.reference_width + s.code_width + s.speaker_width)
    yield from ((f"input_embed.spk_encoder.{name}", shape) for name, shape in speaker_encoder(s))
    for layer in range(s.flow_layers):
        at = f"transformer_blocks.{layer}"
        yield from linear(f"{at}.attn_norm.linear", 6 * width, width)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            yield from linear(f"{at}.attn.{part}", width, width)
        yield from linear(f"{at}.ff.ff.0", FF_MULT * width, width)
        yield from linear(f"{at}.ff.ff.3", width, FF_MULT * width)
    yield from linear("norm_out.linear", 2 * width, width)
    yield from linear("proj_out", MEL_BINS, width)


def vocoder(s: Sizes) -> Shapes:
    channels = s.vocoder_channels
    yield from conv("conv_pre", channels, MEL_BINS, 7)
    for stage, kernel in enumerate(KERNELS):
        yield f"ups.{stage}.0.weight", (channels, channels // 2, kernel)
        yield f"ups.{stage}.0.bias", (channels // 2,)
        channels //= 2
        for index, size in enumerate(BLOCK_KERNELS):
            at = f"resblocks.{stage * len(BLOCK_KERNELS) + index}"
            for part in range(len(BLOCK_DILATIONS)):
                yield from conv(f"{at}.convs1.{part}", channels, channels, size)
                yield from conv(f"{at}.convs2.{part}", channels, channels, size)
            for part in range(2 * len(BLOCK_DILATIONS)):
                yield f"{at}.activations.{part}.act.alpha", (channels,)
                yield f"{at}.activations.{part}.act.beta", (channels,)
    yield "activation_post.act.alpha", (channels,)
    yield "activation_post.act.beta", (channels,)
    yield from conv("conv_post", 1, channels, 7, bias=False)


def shapes(s: Sizes) -> Shapes:
    """Every tensor of the checkpoint."""
    heads, talker_heads = (s.heads, s.kv_heads, s.head_dim), (s.talker_heads, s.talker_kv_heads, s.head_dim)
    yield "thinker.model.embed_tokens.weight", (s.vocabulary, s.width)
    yield from ((f"thinker.{name}", shape) for name, shape in decoder(s.width, s.layers, heads, s.inner))
    yield "thinker.lm_head.weight", (s.vocabulary, s.width)
    yield from ((f"thinker.audio_tower.{name}", shape) for name, shape in audio_tower(s))
    yield from ((f"thinker.visual.{name}", shape) for name, shape in vision_tower(s))
    yield from linear("talker.thinker_to_talker_proj", s.talker_width, s.width)
    yield "talker.model.embed_tokens.weight", (s.codec_vocabulary, s.width)
    yield from (
        (f"talker.{name}", shape)
        for name, shape in decoder(s.talker_width, s.talker_layers, talker_heads, s.talker_inner)
    )
    yield "talker.codec_head.weight", (s.codec_vocabulary, s.talker_width)
    yield from ((f"token2wav.code2wav_dit_model.{name}", shape) for name, shape in flow(s))
    yield from ((f"token2wav.code2wav_bigvgan_model.{name}", shape) for name, shape in vocoder(s))
