"""Facts of the parts that make sound, from the tables of config.json: the flow with its encoder, and the vocoder."""

from __future__ import annotations

from legato.nn.bigvgan import BigVGANConfig

from .parts import EcapaConfig, FlowConfig
from .sections import Section

BLOCK_FRAMES, LOOK_AHEAD_LAYERS, LOOK_BACK_LAYERS = 24, (10,), (0, 20)
"""Of the flow, which the release leaves out of its file."""

FLOW_ROPE_THETA = 10000.0


def flow_config(raw: Section) -> FlowConfig:
    """The flow's settings. Raises KeyError and ValueError as Section does."""
    width, layers = raw.size("hidden_size", "dim"), raw.size("num_hidden_layers", "depth")
    heads = raw.size("num_attention_heads", "heads")
    head_dim = raw.size("head_dim") if raw.has("head_dim") else width // heads
    if heads * head_dim != width or head_dim % 2:
        raise raw.refuse(
            raw.found("num_attention_heads", "heads"),
            f"so many that heads of head_dim = {head_dim}, an even number, are the flow's width, {width}",
        )
    repeats = raw.size("repeats")
    block_frames = raw.size("block_size") if raw.has("block_size") else BLOCK_FRAMES
    if block_frames % repeats:
        raise raw.refuse("repeats", f"a divisor of block_size = {block_frames}: blocks hold whole codes")
    return FlowConfig(
        width=width,
        layers=layers,
        heads=heads,
        head_dim=head_dim,
        inner=width * raw.size("ff_mult"),
        codes=raw.size("num_embeds"),
        code_width=raw.size("emb_dim"),
        frames_per_code=repeats,
        mel_bins=raw.size("mel_dim"),
        speaker_width=raw.size("enc_emb_dim"),
        block_frames=block_frames,
        look_ahead_layers=_layers(raw, "look_ahead_layers", LOOK_AHEAD_LAYERS, layers),
        look_back_layers=_layers(raw, "look_backward_layers", LOOK_BACK_LAYERS, layers),
        ecapa=_ecapa(raw),
        rope_theta=FLOW_ROPE_THETA,
    )


def _layers(raw: Section, key: str, default: tuple[int, ...], layers: int) -> tuple[int, ...]:
    return raw.wholes(key, least=0, most=layers - 1) if raw.has(key) else default


def _ecapa(raw: Section) -> EcapaConfig:
    channels, kernels, dilations = (raw.wholes(key) for key in ("enc_channels", "enc_kernel_sizes", "enc_dilations"))
    if len(channels) < 3:
        raise raw.refuse("enc_channels", "a list of three or more")
    for key, numbers in (("enc_kernel_sizes", kernels), ("enc_dilations", dilations)):
        if len(numbers) != len(channels):
            raise raw.refuse(key, f"{len(channels)} numbers, as many as enc_channels has")
    if any(kernel % 2 == 0 for kernel in kernels):
        raise raw.refuse("enc_kernel_sizes", "odd numbers")
    scale = raw.size("enc_res2net_scale")
    if any(count % scale for count in channels[1:-1]):
        raise raw.refuse("enc_res2net_scale", f"a divisor of enc_channels = {list(channels)}")
    return EcapaConfig(
        channels=channels,
        kernels=kernels,
        dilations=dilations,
        attention_channels=raw.size("enc_attention_channels"),
        res2net_scale=scale,
        se_channels=raw.size("enc_se_channels"),
        out_width=raw.size("enc_dim"),
    )


def vocoder_config(raw: Section) -> BigVGANConfig:
    """The vocoder's settings. Raises KeyError and ValueError as Section does."""
    rates, kernels = raw.wholes("upsample_rates"), raw.wholes("upsample_kernel_sizes")
    if len(kernels) != len(rates) or any(k < r or (k - r) % 2 for k, r in zip(kernels, rates, strict=False)):
        raise raw.refuse(
            "upsample_kernel_sizes",
            f"one for each of upsample_rates = {list(rates)}, as large or larger by an even number",
        )
    block_kernels, channels = raw.wholes("resblock_kernel_sizes"), raw.size("upsample_initial_channel")
    if not block_kernels or any(kernel % 2 == 0 for kernel in block_kernels):
        raise raw.refuse("resblock_kernel_sizes", "odd numbers")
    if not rates or channels >> len(rates) < 1:
        raise raw.refuse("upsample_rates", f"1 to {channels.bit_length() - 1} rates: each halves {channels} channels")
    return BigVGANConfig(
        mel_bins=raw.size("mel_dim"),
        channels=channels,
        rates=rates,
        kernels=kernels,
        block_kernels=block_kernels,
        block_dilations=raw.lists("resblock_dilation_sizes", len(block_kernels)),
    )
