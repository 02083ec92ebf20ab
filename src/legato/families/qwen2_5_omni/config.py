"""Facts of a Qwen2.5-Omni checkpoint: config.json as frozen settings of its parts.

Sizes come from the file, never from anyone's defaults. Both spellings are read: the release's (rope_theta and
rope_scaling; dim, depth, heads) and the one that newer libraries write (rope_parameters; hidden_size and so on).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from legato.errors import CheckpointError
from legato.nn.bigvgan import BigVGANConfig
from legato.nn.decoder import DecoderConfig

from .parts import (
    AudioConfig,
    FlowConfig,
    TalkerConfig,
    TalkerIds,
    ThinkerConfig,
    ThinkerIds,
    VisionConfig,
)
from .sections import Section
from .sound_config import flow_config, vocoder_config

DOWNLOAD = "hf download Qwen/Qwen2.5-Omni-3B --local-dir DIR"
"""What fetches a whole checkpoint."""

MODEL_TYPE = "qwen2_5_omni"


@dataclass(frozen=True)
class OmniConfig:
    """The whole model. A checkpoint without a voice (`enable_audio_output` false) has a thinker only."""

    thinker: ThinkerConfig
    talker: TalkerConfig | None
    flow: FlowConfig | None
    vocoder: BigVGANConfig | None


def need_file(path: Path) -> Path:
    """The path itself. Raises CheckpointError when nothing is there: which file, where, and what to run."""
    if not path.is_file():
        raise CheckpointError(f"{path.name} is missing: expected at {path}. To fetch the checkpoint: {DOWNLOAD}")
    return path


def read_config(folder: Path) -> OmniConfig:
    """Parse config.json of a checkpoint folder. Raises CheckpointError naming the file, the key and its value."""
    path = need_file(folder / "config.json")
    try:
        return _omni(Section(json.loads(path.read_text(encoding="utf-8")), ""))
    except KeyError as error:
        raise CheckpointError(f"{path} lacks {error.args[0] or 'everything'}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _omni(root: Section) -> OmniConfig:
    if root.has("model_type") and root.raw["model_type"] != MODEL_TYPE:
        raise ValueError(f"model_type = {root.raw['model_type']!r} is another model's; this family has {MODEL_TYPE!r}")
    thinker = _thinker(root.section("thinker_config"))
    if not root.flag("enable_audio_output", default=True):
        return OmniConfig(thinker, None, None, None)
    talker = _talker(root.section("talker_config"), thinker)
    sound = root.section("token2wav_config")
    flow, vocoder = flow_config(sound.section("dit_config")), vocoder_config(sound.section("bigvgan_config"))
    if flow.mel_bins != vocoder.mel_bins:
        raise ValueError(
            f"dit_config.mel_dim = {flow.mel_bins} and bigvgan_config.mel_dim = {vocoder.mel_bins} must be the same"
        )
    return OmniConfig(thinker, talker, flow, vocoder)


def _thinker(raw: Section) -> ThinkerConfig:
    text = raw.section("text_config")
    for tower in ("audio_config", "vision_config"):
        out = raw.section(tower).size("output_dim" if tower == "audio_config" else "out_hidden_size")
        if out != text.size("hidden_size"):
            raise ValueError(f"{tower} gives rows of {out}, but text_config.hidden_size is {text.size('hidden_size')}")
    return ThinkerConfig(
        decoder=_decoder(text),
        vocabulary=text.size("vocab_size"),
        tied=raw.flag("tie_word_embeddings", default=False) or text.flag("tie_word_embeddings", default=False),
        context=text.size("max_position_embeddings"),
        audio=_audio(raw.section("audio_config")),
        vision=_vision(raw.section("vision_config")),
        ids=_thinker_ids(raw, text),
        positions_per_second=raw.size("position_id_per_seconds"),
        seconds_per_chunk=raw.size("seconds_per_chunk"),
    )


def _thinker_ids(raw: Section, text: Section) -> ThinkerIds:
    of = text.size("vocab_size")
    return ThinkerIds(
        audio=raw.id("audio_token_index", "audio_token_id", of=of),
        image=raw.id("image_token_index", "image_token_id", of=of),
        video=raw.id("video_token_index", "video_token_id", of=of),
        audio_start=raw.id("audio_start_token_id", of=of),
        audio_end=raw.id("audio_end_token_id", of=of),
        vision_start=raw.id("vision_start_token_id", of=of),
        vision_end=raw.id("vision_end_token_id", of=of),
        ends=_ends(raw if "eos_token_id" in raw.raw else text, of),
    )


def _ends(raw: Section, vocabulary: int) -> tuple[int, ...]:
    """One id or a list of them; none where the file leaves it to the tokenizer."""
    if not raw.has("eos_token_id"):
        return ()
    if isinstance(raw.raw["eos_token_id"], list):
        return raw.wholes("eos_token_id", least=0, most=vocabulary - 1)
    return (raw.id("eos_token_id", of=vocabulary),)


def _decoder(raw: Section) -> DecoderConfig:
    rope = Section(
        raw.raw.get("rope_parameters") or raw.raw.get("rope_scaling"), raw.at("rope_parameters or rope_scaling")
    )
    kind = rope.raw.get("rope_type") or rope.raw.get("type") or "default"
    if kind not in ("default", "mrope"):
        raise ValueError(f"{raw.path}: rope type {kind!r} is not supported; this model family has 'default'")
    if raw.raw.get("hidden_act", "silu") != "silu":
        raise ValueError(f"{raw.path}.hidden_act = {raw.raw['hidden_act']!r} is not supported; only 'silu' is")
    if raw.flag("use_sliding_window", default=False):
        raise ValueError(f"{raw.path}.use_sliding_window is not supported")
    width, heads, kv_heads = (raw.size(key) for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    if heads % kv_heads:
        raise raw.refuse("num_key_value_heads", f"a divisor of num_attention_heads = {heads}")
    head_dim = raw.size("head_dim") if raw.has("head_dim") else width // heads
    sections = rope.wholes("mrope_section", least=0)
    if len(sections) != 3 or 2 * sum(sections) != head_dim:
        raise rope.refuse("mrope_section", f"three numbers that sum to {head_dim} / 2")
    return DecoderConfig(
        width=width,
        layers=raw.size("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        inner=raw.size("intermediate_size"),
        rope_theta=(raw if raw.has("rope_theta") else rope).number("rope_theta"),
        norm_eps=raw.number("rms_norm_eps"),
        qkv_bias=True,
        rope_sections=sections,
    )


def _audio(raw: Section) -> AudioConfig:
    width, heads = raw.size("d_model"), raw.size("encoder_attention_heads")
    if width % heads:
        raise raw.refuse("encoder_attention_heads", f"a divisor of d_model = {width}")
    if width % 2 or width < 4:
        raise raw.refuse("d_model", "an even number of at least 4")
    return AudioConfig(
        mel_bins=raw.size("num_mel_bins"),
        width=width,
        layers=raw.size("encoder_layers"),
        heads=heads,
        inner=raw.size("encoder_ffn_dim"),
        block_frames=2 * raw.size("n_window"),
        out_width=raw.size("output_dim"),
    )


def _vision(raw: Section) -> VisionConfig:
    width, heads, layers = raw.size("hidden_size"), raw.size("num_heads"), raw.size("depth")
    if width % (4 * heads):
        raise raw.refuse("num_heads", f"so many that hidden_size = {width} is a multiple of 4 for every head")
    config = VisionConfig(
        width=width,
        layers=layers,
        heads=heads,
        inner=raw.size("intermediate_size"),
        patch_pixels=raw.size("patch_size", "spatial_patch_size"),
        patch_frames=raw.size("temporal_patch_size"),
        merge=raw.size("spatial_merge_size"),
        window_pixels=raw.size("window_size"),
        full_layers=raw.wholes("fullatt_block_indexes", least=0, most=layers - 1),
        out_width=raw.size("out_hidden_size"),
    )
    if config.window_pixels < config.cell_pixels:
        raise raw.refuse("window_size", f"at least {config.cell_pixels}, the pixels of a row's side")
    return config


def _talker(raw: Section, thinker: ThinkerConfig) -> TalkerConfig:
    text, vocabulary = thinker.vocabulary, raw.size("vocab_size")
    if raw.size("embedding_size") != thinker.decoder.width:
        raise ValueError(
            f"talker_config.embedding_size = {raw.size('embedding_size')}, but the thinker's rows are "
            f"{thinker.decoder.width} wide"
        )
    ids = TalkerIds(
        text_end=raw.id("tts_text_end_token_id", of=text),
        text_pad=raw.id("tts_text_pad_token_id", of=text),
        codec_start=raw.id("tts_codec_start_token_id", of=vocabulary),
        codec_end=raw.id("tts_codec_end_token_id", of=vocabulary),
        codec_pad=raw.id("tts_codec_pad_token_id", of=vocabulary),
        codec_mask=raw.id("tts_codec_mask_token_id", of=vocabulary),
    )
    return TalkerConfig(
        decoder=_decoder(raw),
        vocabulary=vocabulary,
        embedding_width=thinker.decoder.width,
        context=raw.size("max_position_embeddings"),
        ids=ids,
    )
