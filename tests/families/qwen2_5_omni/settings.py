"""config.json of a Qwen2.5-Omni checkpoint of any size, as released or as newer libraries write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ids:
    """Special ids in a vocabulary of 256 bytes, some pairs of them and these."""

    start: int = 300
    end: int = 301
    pad: int = 302
    audio: int = 303
    audio_start: int = 304
    audio_end: int = 305
    image: int = 306
    video: int = 307
    vision_start: int = 308
    vision_end: int = 309
    text_pad: int = 310
    text_start: int = 311
    text_end: int = 312
    chelsie: int = 313
    ethan: int = 314
    vision_pad: int = 315
    codec_pad: int = 98
    codec_start: int = 99
    codec_end: int = 100
    codec_mask: int = 102


IDS = Ids()


@dataclass(frozen=True)
class Sizes:
    """Sizes of all parts; the defaults make about one million numbers."""

    vocabulary: int = 320
    width: int = 64
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    inner: int = 96
    sections: tuple[int, int, int] = (2, 3, 3)
    audio_width: int = 32
    audio_layers: int = 2
    audio_heads: int = 4
    audio_inner: int = 64
    vision_width: int = 32
    vision_layers: int = 2
    vision_heads: int = 2
    vision_inner: int = 48
    vision_full: tuple[int, ...] = (1,)
    codec_vocabulary: int = 104
    codes: int = 103
    """The largest code with an embedding in the flow."""
    talker_width: int = 48
    talker_layers: int = 3
    talker_heads: int = 4
    talker_kv_heads: int = 2
    talker_inner: int = 96
    flow_width: int = 64
    flow_layers: int = 6
    flow_heads: int = 4
    look_ahead: tuple[int, ...] = (3,)
    look_back: tuple[int, ...] = (0, 5)
    code_width: int = 24
    speaker_width: int = 12
    reference_width: int = 16
    ecapa_width: int = 16
    ecapa_attention: int = 8
    vocoder_channels: int = 64


TINY = Sizes()
MIDDLE = Sizes(
    width=512, layers=8, heads=8, kv_heads=2, head_dim=64, inner=1536, sections=(8, 12, 12), audio_width=256,
    audio_layers=4, audio_heads=4, audio_inner=1024, vision_width=256, vision_layers=4, vision_heads=4,
    vision_inner=768, vision_full=(3,), talker_width=384, talker_layers=6, talker_heads=8, talker_inner=1536,
    flow_width=384, flow_layers=12, look_ahead=(6,), look_back=(0, 10), code_width=256, speaker_width=192,
    reference_width=128, ecapa_width=64, ecapa_attention=64, vocoder_channels=768, flow_heads=6
)  # fmt: skip
"""About a hundred million numbers."""

MEL_BINS = 80
RATES, KERNELS = (5, 3, 2, 2, 2, 2), (11, 7, 4, 4, 4, 4)
BLOCK_KERNELS, BLOCK_DILATIONS = (3, 7, 11), (1, 3, 5)
FF_MULT = 2


def rope(sizes: Sizes, newer: bool) -> dict[str, Any]:
    sections = {"mrope_section": list(sizes.sections), "rope_type": "default"}
    if newer:
        return {"rope_parameters": {**sections, "rope_theta": 1000000.0}}
    return {"rope_theta": 1000000.0, "rope_scaling": {**sections, "type": "default"}}


def thinker_config(sizes: Sizes, newer: bool) -> dict[str, Any]:
    return {
        "model_type": "qwen2_5_omni_thinker",
        "audio_config": {
            "num_mel_bins": 128, "encoder_layers": sizes.audio_layers, "encoder_attention_heads": sizes.audio_heads,
            "encoder_ffn_dim": sizes.audio_inner, "d_model": sizes.audio_width, "max_source_positions": 1500,
            "n_window": 100, "output_dim": sizes.width,
        },
        "vision_config": {
            "depth": sizes.vision_layers, "hidden_size": sizes.vision_width, "intermediate_size": sizes.vision_inner,
            "num_heads": sizes.vision_heads, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "window_size": 112, "out_hidden_size": sizes.width,
            "fullatt_block_indexes": list(sizes.vision_full),
        },
        "text_config": {
            "vocab_size": sizes.vocabulary, "hidden_size": sizes.width, "intermediate_size": sizes.inner,
            "num_hidden_layers": sizes.layers, "num_attention_heads": sizes.heads, "head_dim": sizes.head_dim,
            "num_key_value_heads": sizes.kv_heads, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False, **rope(sizes, newer),
        },
        "audio_token_index": IDS.audio, "image_token_index": IDS.image, "video_token_index": IDS.video,
        "audio_start_token_id": IDS.audio_start, "audio_end_token_id": IDS.audio_end, "user_token_id": 20,
        "vision_start_token_id": IDS.vision_start, "vision_end_token_id": IDS.vision_end,
        "bos_token_id": IDS.start, "eos_token_id": IDS.end, "pad_token_id": IDS.pad,
        "position_id_per_seconds": 25, "seconds_per_chunk": 2,
    }  # fmt: skip


def talker_config(sizes: Sizes, newer: bool) -> dict[str, Any]:
    return {
        "model_type": "qwen2_5_omni_talker",
        "vocab_size": sizes.codec_vocabulary, "embedding_size": sizes.width, "hidden_size": sizes.talker_width,
        "intermediate_size": sizes.talker_inner, "num_hidden_layers": sizes.talker_layers,
        "num_attention_heads": sizes.talker_heads, "num_key_value_heads": sizes.talker_kv_heads,
        "head_dim": sizes.head_dim, "rms_norm_eps": 1e-6, "max_position_embeddings": 32768,
        "audio_token_index": IDS.audio, "image_token_index": IDS.image, "video_token_index": IDS.video,
        "audio_start_token_id": IDS.audio_start, "audio_end_token_id": IDS.audio_end,
        "vision_start_token_id": IDS.vision_start, "vision_end_token_id": IDS.vision_end,
        "tts_text_start_token_id": IDS.text_start, "tts_text_end_token_id": IDS.text_end,
        "tts_text_pad_token_id": IDS.text_pad, "tts_codec_start_token_id": IDS.codec_start,
        "tts_codec_end_token_id": IDS.codec_end, "tts_codec_pad_token_id": IDS.codec_pad,
        "tts_codec_mask_token_id": IDS.codec_mask, "spatial_merge_size": 2,
        "position_id_per_seconds": 25, "seconds_per_chunk": 2, **rope(sizes, newer),
    }  # fmt: skip


def sound_config(sizes: Sizes) -> dict[str, Any]:
    """Both spellings of the flow's sizes at once, for readers of either kind."""
    flow = {
        "model_type": "qwen2_5_omni_dit", "dim": sizes.flow_width, "depth": sizes.flow_layers,
        "heads": sizes.flow_heads, "hidden_size": sizes.flow_width, "num_hidden_layers": sizes.flow_layers,
        "num_attention_heads": sizes.flow_heads, "head_dim": sizes.flow_width // sizes.flow_heads,
        "ff_mult": FF_MULT, "emb_dim": sizes.code_width, "block_size": 24,
        "look_ahead_layers": list(sizes.look_ahead), "look_backward_layers": list(sizes.look_back), "repeats": 2,
        "num_embeds": sizes.codes, "mel_dim": MEL_BINS, "dropout": 0.1, "enc_emb_dim": sizes.speaker_width,
        "enc_dim": sizes.reference_width, "enc_channels": [sizes.ecapa_width] * 4 + [3 * sizes.ecapa_width],
        "enc_kernel_sizes": [5, 3, 3, 3, 1], "enc_dilations": [1, 2, 3, 4, 1],
        "enc_attention_channels": sizes.ecapa_attention, "enc_res2net_scale": 2,
        "enc_se_channels": sizes.ecapa_attention,
    }  # fmt: skip
    vocoder = {
        "model_type": "qwen2_5_omni_bigvgan", "mel_dim": MEL_BINS, "upsample_initial_channel": sizes.vocoder_channels,
        "resblock_kernel_sizes": list(BLOCK_KERNELS), "resblock_dilation_sizes": [list(BLOCK_DILATIONS)] * 3,
        "upsample_rates": list(RATES), "upsample_kernel_sizes": list(KERNELS),
    }  # fmt: skip
    return {"model_type": "qwen2_5_omni_token2wav", "dit_config": flow, "bigvgan_config": vocoder}


def config(sizes: Sizes, *, newer: bool = False, audio: bool = True) -> dict[str, Any]:
    """config.json: as released, or with `newer` as libraries write it now."""
    return {
        "architectures": ["Qwen2_5OmniModel"],
        "model_type": "qwen2_5_omni",
        "enable_audio_output": audio,
        "thinker_config": thinker_config(sizes, newer),
        "talker_config": talker_config(sizes, newer),
        "token2wav_config": sound_config(sizes),
    }
