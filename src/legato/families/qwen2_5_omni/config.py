"""Facts of a Qwen2.5-Omni checkpoint: config.json as frozen settings of its parts.

Sizes come from the file, never from anyone's defaults. Both spellings are read: the release's (rope_theta and
rope_scaling; dim, depth, heads) and the one that newer libraries write (rope_parameters; hidden_size and so on).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.errors import CheckpointError
from legato.nn.bigvgan import BigVGANConfig
from legato.nn.decoder import DecoderConfig

from .parts import (
    AudioConfig,
    EcapaConfig,
    FlowConfig,
    TalkerConfig,
    TalkerIds,
    ThinkerConfig,
    ThinkerIds,
    VisionConfig,
)

DOWNLOAD = "hf download Qwen/Qwen2.5-Omni-3B --local-dir DIR"
"""What fetches a whole checkpoint."""

BLOCK_FRAMES, LOOK_AHEAD_LAYERS, LOOK_BACK_LAYERS = 24, (10,), (0, 20)
"""Of the flow, which the release leaves out of its file."""

FLOW_ROPE_THETA = 10000.0


@dataclass(frozen=True)
class OmniConfig:
    """The whole model. A checkpoint without a voice (`enable_audio_output` false) has a thinker only."""

    thinker: ThinkerConfig
    talker: TalkerConfig | None
    flow: FlowConfig | None
    vocoder: BigVGANConfig | None


class _Section:
    """A mapping in the file that knows its own path, so that what it lacks can be named."""

    def __init__(self, raw: Any, path: str) -> None:
        if not isinstance(raw, dict):
            raise KeyError(path)
        self.raw, self.path = raw, path

    def section(self, key: str) -> _Section:
        return _Section(self.raw.get(key), f"{self.path}.{key}" if self.path else key)

    def get(self, *spellings: str) -> Any:
        """The value under the first spelling that is there. Raises KeyError naming all of them."""
        for key in spellings:
            if self.raw.get(key) is not None:
                return self.raw[key]
        raise KeyError(f"{self.path}.{' or '.join(spellings)}")

    def whole(self, *spellings: str) -> int:
        """A whole number of at least 0."""
        value = self.get(*spellings)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"{self.path}.{spellings[0]} = {value!r} must be a whole number")
        return value

    def wholes(self, *spellings: str) -> tuple[int, ...]:
        value = self.get(*spellings)
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, int) for v in value):
            raise ValueError(f"{self.path}.{spellings[0]} = {value!r} must be a list of whole numbers")
        return tuple(value)


def need_file(path: Path) -> Path:
    """The path itself. Raises CheckpointError when nothing is there: which file, where, and what to run."""
    if not path.is_file():
        raise CheckpointError(f"{path.name} is missing: expected at {path}. To fetch the checkpoint: {DOWNLOAD}")
    return path


def read_config(folder: Path) -> OmniConfig:
    """Parse config.json of a checkpoint folder. Raises CheckpointError naming the file and the key."""
    path = need_file(folder / "config.json")
    try:
        root = _Section(json.loads(path.read_text(encoding="utf-8")), "")
        return _omni(root)
    except KeyError as error:
        raise CheckpointError(f"{path} lacks {error.args[0]}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _omni(root: _Section) -> OmniConfig:
    thinker = _thinker(root.section("thinker_config"))
    if not root.raw.get("enable_audio_output", True):
        return OmniConfig(thinker, None, None, None)
    sound = root.section("token2wav_config")
    talker = _talker(root.section("talker_config"))
    if talker.embedding_width != thinker.decoder.width:
        raise ValueError(
            f"talker_config.embedding_size = {talker.embedding_width}, but the thinker's rows are "
            f"{thinker.decoder.width} wide"
        )
    return OmniConfig(thinker, talker, _flow(sound.section("dit_config")), _vocoder(sound.section("bigvgan_config")))


def _thinker(raw: _Section) -> ThinkerConfig:
    text = raw.section("text_config")
    for tower in ("audio_config", "vision_config"):
        out = raw.section(tower).whole("output_dim" if tower == "audio_config" else "out_hidden_size")
        if out != text.whole("hidden_size"):
            raise ValueError(f"{tower} gives rows of {out}, but text_config.hidden_size is {text.whole('hidden_size')}")
    return ThinkerConfig(
        decoder=_decoder(text),
        vocabulary=text.whole("vocab_size"),
        tied=bool(raw.raw.get("tie_word_embeddings") or text.raw.get("tie_word_embeddings")),
        context=text.whole("max_position_embeddings"),
        audio=_audio(raw.section("audio_config")),
        vision=_vision(raw.section("vision_config")),
        ids=_thinker_ids(raw, text),
        positions_per_second=raw.whole("position_id_per_seconds"),
        seconds_per_chunk=raw.whole("seconds_per_chunk"),
    )


def _thinker_ids(raw: _Section, text: _Section) -> ThinkerIds:
    ends = raw.raw.get("eos_token_id", text.raw.get("eos_token_id"))
    return ThinkerIds(
        audio=raw.whole("audio_token_index", "audio_token_id"),
        image=raw.whole("image_token_index", "image_token_id"),
        video=raw.whole("video_token_index", "video_token_id"),
        audio_start=raw.whole("audio_start_token_id"),
        audio_end=raw.whole("audio_end_token_id"),
        vision_start=raw.whole("vision_start_token_id"),
        vision_end=raw.whole("vision_end_token_id"),
        ends=() if ends is None else (ends,) if isinstance(ends, int) else tuple(ends),
    )


def _decoder(raw: _Section) -> DecoderConfig:
    rope = raw.raw.get("rope_parameters") or raw.raw.get("rope_scaling")
    rope = _Section(rope, f"{raw.path}.rope_parameters or rope_scaling")
    kind = rope.raw.get("rope_type") or rope.raw.get("type") or "default"
    if kind not in ("default", "mrope"):
        raise ValueError(f"{raw.path}: rope type {kind!r} is not supported; this model family has 'default'")
    if raw.raw.get("hidden_act", "silu") != "silu":
        raise ValueError(f"{raw.path}.hidden_act = {raw.raw['hidden_act']!r} is not supported; only 'silu' is")
    if raw.raw.get("use_sliding_window"):
        raise ValueError(f"{raw.path}.use_sliding_window is not supported")
    width, heads = raw.whole("hidden_size"), raw.whole("num_attention_heads")
    head_dim, sections = int(raw.raw.get("head_dim") or width // heads), rope.wholes("mrope_section")
    if len(sections) != 3 or 2 * sum(sections) != head_dim:
        raise ValueError(
            f"{rope.path}.mrope_section = {list(sections)} must be three numbers that sum to {head_dim} / 2"
        )
    theta = raw.raw.get("rope_theta") or rope.get("rope_theta")
    return DecoderConfig(
        width=width,
        layers=raw.whole("num_hidden_layers"),
        heads=heads,
        kv_heads=raw.whole("num_key_value_heads"),
        head_dim=head_dim,
        inner=raw.whole("intermediate_size"),
        rope_theta=float(theta),
        norm_eps=float(raw.get("rms_norm_eps")),
        qkv_bias=True,
        rope_sections=sections,
    )


def _audio(raw: _Section) -> AudioConfig:
    return AudioConfig(
        mel_bins=raw.whole("num_mel_bins"),
        width=raw.whole("d_model"),
        layers=raw.whole("encoder_layers"),
        heads=raw.whole("encoder_attention_heads"),
        inner=raw.whole("encoder_ffn_dim"),
        block_frames=2 * raw.whole("n_window"),
        out_width=raw.whole("output_dim"),
    )


def _vision(raw: _Section) -> VisionConfig:
    return VisionConfig(
        width=raw.whole("hidden_size"),
        layers=raw.whole("depth"),
        heads=raw.whole("num_heads"),
        inner=raw.whole("intermediate_size"),
        patch_pixels=raw.whole("patch_size", "spatial_patch_size"),
        patch_frames=raw.whole("temporal_patch_size"),
        merge=raw.whole("spatial_merge_size"),
        window_pixels=raw.whole("window_size"),
        full_layers=raw.wholes("fullatt_block_indexes"),
        out_width=raw.whole("out_hidden_size"),
    )


def _talker(raw: _Section) -> TalkerConfig:
    ids = TalkerIds(
        text_end=raw.whole("tts_text_end_token_id"),
        text_pad=raw.whole("tts_text_pad_token_id"),
        codec_start=raw.whole("tts_codec_start_token_id"),
        codec_end=raw.whole("tts_codec_end_token_id"),
        codec_pad=raw.whole("tts_codec_pad_token_id"),
        codec_mask=raw.whole("tts_codec_mask_token_id"),
    )
    return TalkerConfig(
        decoder=_decoder(raw),
        vocabulary=raw.whole("vocab_size"),
        embedding_width=raw.whole("embedding_size"),
        context=raw.whole("max_position_embeddings"),
        ids=ids,
    )


def _flow(raw: _Section) -> FlowConfig:
    width, heads = raw.whole("hidden_size", "dim"), raw.whole("num_attention_heads", "heads")
    ecapa = EcapaConfig(
        channels=raw.wholes("enc_channels"),
        kernels=raw.wholes("enc_kernel_sizes"),
        dilations=raw.wholes("enc_dilations"),
        attention_channels=raw.whole("enc_attention_channels"),
        res2net_scale=raw.whole("enc_res2net_scale"),
        se_channels=raw.whole("enc_se_channels"),
        out_width=raw.whole("enc_dim"),
    )
    return FlowConfig(
        width=width,
        layers=raw.whole("num_hidden_layers", "depth"),
        heads=heads,
        head_dim=int(raw.raw.get("head_dim") or width // heads),
        inner=width * raw.whole("ff_mult"),
        codes=raw.whole("num_embeds"),
        code_width=raw.whole("emb_dim"),
        frames_per_code=raw.whole("repeats"),
        mel_bins=raw.whole("mel_dim"),
        speaker_width=raw.whole("enc_emb_dim"),
        block_frames=raw.raw.get("block_size") or BLOCK_FRAMES,
        look_ahead_layers=_layers(raw, "look_ahead_layers", LOOK_AHEAD_LAYERS),
        look_back_layers=_layers(raw, "look_backward_layers", LOOK_BACK_LAYERS),
        ecapa=ecapa,
        rope_theta=FLOW_ROPE_THETA,
    )


def _layers(raw: _Section, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return default if raw.raw.get(key) is None else raw.wholes(key)


def _vocoder(raw: _Section) -> BigVGANConfig:
    dilations = raw.get("resblock_dilation_sizes")
    return BigVGANConfig(
        mel_bins=raw.whole("mel_dim"),
        channels=raw.whole("upsample_initial_channel"),
        rates=raw.wholes("upsample_rates"),
        kernels=raw.wholes("upsample_kernel_sizes"),
        block_kernels=raw.wholes("resblock_kernel_sizes"),
        block_dilations=tuple(tuple(int(d) for d in row) for row in dilations),
    )
