"""The facts of a piccolo checkpoint, read from its config.json.

Two formats: the first voice's ("version": "v0"), and 2, whose keys are the names used here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from legato.errors import CheckpointError
from legato.nn.decoder import DecoderConfig
from legato.nn.dit import DiTConfig
from legato.nn.early_vocos import EarlyVocosConfig
from legato.nn.vocos import VocosConfig
from legato.types import Rates, Sampling

from .codec import CodecConfig
from .said import MOST_AROUND

END_OF_AUDIO, ADVANCE, FIRST_CODE = 0, 1, 2
"""Rows of the output head: the end, "give me the next phoneme", then the codes."""


FIRST_VOICE = "v0"
FORMAT = 2
"""Of config.json, as written by the recipe. The first voice's calls itself "v0"."""

EARLY = "early_vocos"
"""The kind of vocoder of the first voice's config.json that is described as in format 2."""

PHONEME_IDS = 180
"""Rows of the embedding that stand for phonemes and languages."""


@dataclass(frozen=True)
class PiccoloConfig:
    """Everything the nets and the frontend need to know.

    `languages` are the ids that tell the language of what follows; `prompt_codes` how many codes of its reference a
    voice brings at most; `speaker_width` the size of its vector; `phonemes_around` how many phonemes on either side the
    flow is told besides the one being spoken. The first voice has none of these, nor a `codec`.
    """

    rates: Rates
    lm: DecoderConfig
    phonemes: dict[str, int]
    codes: int
    begin_of_audio: int
    first_code_id: int
    lead_phonemes: int
    phoneme_table_weight: float
    sampling: Sampling
    dit: DiTConfig
    mel_bins: int
    mel_mean: float
    mel_std: float
    ode_steps: int
    guidance: float
    vocoder: VocosConfig | EarlyVocosConfig
    languages: dict[str, int] = field(default_factory=dict)
    prompt_codes: int = 0
    speaker_width: int = 0
    phonemes_around: int = 0
    codec: CodecConfig | None = None

    def language_ids(self, language: str) -> tuple[int, ...]:
        """What stands before the phonemes to tell their language; nothing if the model knows one only."""
        return (self.languages[language],) if self.languages else ()

    @property
    def ids(self) -> int:
        """Rows of the input embedding."""
        return self.first_code_id + self.codes


def read_config(path: Path) -> PiccoloConfig:
    """Parse config.json. Raises CheckpointError naming the file and the key."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        version = raw.get("version")
        if version not in (FORMAT, FIRST_VOICE):
            raise CheckpointError(f"{path} is of format {version!r}; this version reads {FORMAT} and {FIRST_VOICE!r}")
        return _parse_first(raw) if version == FIRST_VOICE else _parse(raw)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path} lacks or misspells {error}") from error


def _parse_first(raw: dict[str, Any]) -> PiccoloConfig:
    lm, flow, mel, voc = raw["lm"], raw["flow"], raw["mel"], raw["vocoder"]
    sample_hz, hop = raw["sample_rate"], mel["hop"]
    return PiccoloConfig(
        rates=Rates(token_hz=raw["codec"]["rate_hz"], frame_hz=sample_hz // hop, sample_hz=sample_hz),
        lm=DecoderConfig(
            width=lm["d"],
            layers=lm["layers"],
            heads=lm["heads"],
            kv_heads=lm["kv_heads"],
            head_dim=lm["d"] // lm["heads"],
            inner=lm["ff"],
            rope_theta=lm["theta"],
            norm_eps=1e-6,
            qkv_bias=True,
        ),
        phonemes=raw["phonemes"]["vocab"],
        codes=lm["n_codes"],
        begin_of_audio=lm["BOA"],
        first_code_id=lm["first_code_id"],
        lead_phonemes=lm["lead"],
        phoneme_table_weight=lm["phone_table_weight"],
        sampling=Sampling(**lm["sampling"]),
        dit=_first_dit(flow),
        mel_bins=flow["n_mels"],
        mel_mean=flow["mean"],
        mel_std=flow["std"],
        ode_steps=flow["steps"],
        guidance=flow["cfg_strength"],
        vocoder=_vocoder(voc, flow["n_mels"], hop)
        if voc["kind"] == EARLY
        else _first_vocoder(voc, flow["n_mels"], hop),
    )


def _first_dit(flow: dict[str, Any]) -> DiTConfig:
    return DiTConfig(
        inputs=2 * flow["n_mels"] + flow["d"],
        width=flow["d"],
        layers=flow["layers"],
        heads=flow["heads"],
        inner=flow["ff"],
        outputs=flow["n_mels"],
        block_frames=flow["block"],
        look_back_layers=tuple(flow["back_layers"]),
        look_ahead_layers=tuple(flow["ahead_layers"]),
        rope_theta=flow["theta"],
    )


def _first_vocoder(voc: dict[str, Any], mel_bins: int, hop: int) -> VocosConfig:
    tail_width = voc.get("dt", voc["d"] // 2)
    return VocosConfig(
        mel_bins=mel_bins,
        width=voc["d"],
        inner=voc["h"],
        blocks=voc["layers"],
        subframes=voc["sub"],
        tail_width=tail_width,
        tail_inner=3 * tail_width,
        tail_blocks=voc["tail"],
        hop_samples=hop,
    )


def _parse(raw: dict[str, Any]) -> PiccoloConfig:
    lm, flow, mel, codec = dict(raw["lm"]), dict(raw["flow"]), raw["mel"], raw["codec"]
    sample_hz, hop, bins = raw["sample_hz"], mel["hop_samples"], mel["bins"]
    levels = tuple(codec["levels"])
    return PiccoloConfig(
        rates=Rates(token_hz=codec["token_hz"], frame_hz=sample_hz // hop, sample_hz=sample_hz),
        lm=DecoderConfig(
            width=lm["width"],
            layers=lm["layers"],
            heads=lm["heads"],
            kv_heads=lm["kv_heads"],
            head_dim=lm["width"] // lm["heads"],
            inner=lm["inner"],
            rope_theta=lm["rope_theta"],
            norm_eps=1e-6,
            qkv_bias=True,
        ),
        phonemes=raw["phonemes"],
        codes=math.prod(levels),
        begin_of_audio=PHONEME_IDS,
        first_code_id=PHONEME_IDS + 3,
        lead_phonemes=lm["lead_phonemes"],
        phoneme_table_weight=lm["phoneme_table_weight"],
        sampling=Sampling(**lm["sampling"]),
        dit=DiTConfig(
            inputs=2 * bins + flow["width"],
            width=flow["width"],
            layers=flow["layers"],
            heads=flow["heads"],
            inner=flow["inner"],
            outputs=bins,
            block_frames=flow["block_frames"],
            look_back_layers=tuple(flow["look_back_layers"]),
            look_ahead_layers=tuple(flow["look_ahead_layers"]),
            rope_theta=flow["rope_theta"],
        ),
        mel_bins=bins,
        mel_mean=mel["mean"],
        mel_std=mel["std"],
        ode_steps=flow["ode_steps"],
        guidance=flow["guidance"],
        vocoder=_vocoder(raw["vocoder"], bins, hop),
        languages=raw["languages"],
        prompt_codes=lm["prompt_codes"],
        speaker_width=flow["speaker_width"],
        phonemes_around=_around(flow["phonemes_around"]),
        codec=CodecConfig(bins, mel["mean"], mel["std"], codec["width"], tuple(codec["blocks"]), levels),
    )


def _around(phonemes: int) -> int:
    if phonemes not in range(MOST_AROUND + 1):
        raise ValueError(f"phonemes_around is {phonemes}; it is 0 to {MOST_AROUND}")
    return phonemes


def _vocoder(raw: dict[str, Any], bins: int, hop: int) -> EarlyVocosConfig:
    sizes = VocosConfig(
        mel_bins=bins,
        width=raw["width"],
        inner=raw["inner"],
        blocks=raw["blocks"],
        subframes=raw["subframes"],
        tail_width=raw["tail_width"],
        tail_inner=raw["tail_inner"],
        tail_blocks=raw["tail_blocks"],
        hop_samples=hop,
    )
    return EarlyVocosConfig(sizes, tuple(raw["ahead"]), tuple(raw["tail_ahead"]))
