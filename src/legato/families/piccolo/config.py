"""The facts of a piccolo checkpoint, read from its config.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.errors import CheckpointError
from legato.nn.decoder import DecoderConfig
from legato.nn.dit import DiTConfig
from legato.nn.vocos import VocosConfig
from legato.types import Rates, Sampling

END_OF_AUDIO, ADVANCE, FIRST_CODE = 0, 1, 2
"""Rows of the output head: the end, "give me the next phoneme", then the codes."""


@dataclass(frozen=True)
class PiccoloConfig:
    """Everything the nets and the frontend need to know."""

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
    vocoder: VocosConfig

    @property
    def ids(self) -> int:
        """Rows of the input embedding."""
        return self.first_code_id + self.codes


def read_config(path: Path) -> PiccoloConfig:
    """Parse config.json. Raises CheckpointError naming the file and the key."""
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path} lacks or misspells {error}") from error


def _parse(raw: dict[str, Any]) -> PiccoloConfig:
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
        dit=_dit(flow),
        mel_bins=flow["n_mels"],
        mel_mean=flow["mean"],
        mel_std=flow["std"],
        ode_steps=flow["steps"],
        guidance=flow["cfg_strength"],
        vocoder=_vocoder(voc, flow["n_mels"], hop),
    )


def _dit(flow: dict[str, Any]) -> DiTConfig:
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


def _vocoder(voc: dict[str, Any], mel_bins: int, hop: int) -> VocosConfig:
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
