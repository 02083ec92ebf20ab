"""Qwen2.5-Omni (Xu et al. 2025, arXiv:2503.20215): hears, sees and reads; writes and speaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from legato.conversation import Writer
from legato.errors import ConfigError
from legato.nn.bigvgan import BigVGANConfig
from legato.nn.layers import freeze
from legato.protocols import LoadOptions, SpeechModel
from legato.types import Ramp, Rates

from .audio_tower import load_audio_tower
from .chat import OmniChat
from .config import OmniConfig, read_config
from .flow import GUIDANCE, INTERVALS, SWAY, TABLEAUS, Integration, QwenFlow, SolverName
from .frontend import NoFrontend, ReadAloud
from .media import OmniEncoder, read_pixel_limits
from .memory import check_room
from .parts import FlowConfig, TalkerConfig
from .silent import NoFlow, NoTalker, NoVocoder
from .sound_weights import load_flow, load_vocoder
from .speech import Speech
from .talker import MAX_CODES, SpeechFacts, Talker, load_talker, no_code
from .thinker import Thinker, load_thinker
from .tokenizer import TextTokenizer
from .vision_tower import load_vision_tower
from .vocoder import EARLY_REACH_FRAMES, QwenVocoder
from .voices import read_voices
from .weights import Tensors

LM_ROW_TILE = 4
TOKEN_HZ = 50
RAMP = Ramp(keep_blocks=(2,), ahead_blocks=(1,))
"""36 codes until the first sound, which then lasts 140 ms beyond the vocoder's reach (280 ms with the early one)."""

DEFAULT_VOICE = "Chelsie"
THINKER, TALKER, SOUND = "thinker.", "talker.", "token2wav."


@dataclass(frozen=True)
class Choices:
    """What this family lets a caller choose beyond LoadOptions, whose `ode_steps` are intervals of the solver here.

    Of these, `lm_dtype` is that of thinker, encoders and talker (by default bfloat16 on CUDA, else float32); the flow
    and the vocoder always run in float32. `known_codes_only` keeps the talker from codes
    that have no sound; the reference does not. `max_codes` end a reply (50 are a second).
    """

    solver: SolverName = "rk4"
    guidance: float = GUIDANCE
    sway: float = SWAY
    known_codes_only: bool = True
    max_codes: int = MAX_CODES


@dataclass(frozen=True)
class _Loading:
    """What every part is loaded with."""

    tensors: Tensors
    options: LoadOptions
    choices: Choices
    device: torch.device
    dtype: torch.dtype

    @property
    def row_tile(self) -> int:
        return LM_ROW_TILE if self.options.batch_invariant else 0


@dataclass(frozen=True)
class _VoiceParts:
    """Settings of the parts that speak."""

    talker: TalkerConfig
    flow: FlowConfig
    vocoder: BigVGANConfig


def load(checkpoint: Path, options: LoadOptions, choices: Choices | None = None) -> SpeechModel:
    """Build the model from a checkpoint folder as released.

    Raises CheckpointError naming the file that is missing, damaged or does not fit, or the memory that is missing, and
    ConfigError for choices that cannot be.
    """
    choices, device = choices or Choices(), torch.device(options.device)
    _check(choices)
    config = read_config(checkpoint)
    speaking = _voice_parts(config) if options.speech else None
    dtype = _dtype(options, device)
    parts = {THINKER: dtype} | ({TALKER: dtype, SOUND: torch.float32} if speaking else {})
    tensors = Tensors(checkpoint, tuple(parts))
    check_room(tensors, parts, device)
    loading = _Loading(tensors, options, choices, device, dtype)
    tokenizer = TextTokenizer(checkpoint / "tokenizer.json", config.thinker.ids)
    thinker = load_thinker(tensors, config.thinker, dtype).to(device)
    thinker.freeze(loading.row_tile)
    if speaking is None:
        return _writing_model(config, loading, thinker, tokenizer)
    return _speaking_model(config, speaking, loading, thinker, tokenizer)


def _check(choices: Choices) -> None:
    if choices.solver not in TABLEAUS:
        raise ConfigError(f"solver = {choices.solver!r}: choose one of {', '.join(TABLEAUS)}")
    if choices.max_codes < 1:
        raise ConfigError(f"max_codes = {choices.max_codes} must be at least 1")


def _voice_parts(config: OmniConfig) -> _VoiceParts | None:
    """None for a checkpoint without a voice (`enable_audio_output` false)."""
    if config.talker is None or config.flow is None or config.vocoder is None:
        return None
    return _VoiceParts(config.talker, config.flow, config.vocoder)


def _dtype(options: LoadOptions, device: torch.device) -> torch.dtype:
    wanted = options.lm_dtype or ("bfloat16" if device.type == "cuda" else "float32")
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def _encoder(config: OmniConfig, loading: _Loading) -> OmniEncoder:
    tensors, dtype = loading.tensors, loading.dtype
    ear = load_audio_tower(tensors, config.thinker.audio, dtype).to(loading.device)
    eye = load_vision_tower(tensors, config.thinker.vision, dtype).to(loading.device)
    for net in (ear, eye):
        freeze(net)
    return OmniEncoder(ear, eye, read_pixel_limits(tensors.folder), together=not loading.options.batch_invariant)


def _writing_model(config: OmniConfig, loading: _Loading, thinker: Thinker, tokenizer: TextTokenizer) -> SpeechModel:
    encoder = _encoder(config, loading)
    return SpeechModel(
        name="qwen2.5-omni",
        family="qwen2_5_omni",
        rates=Rates(TOKEN_HZ, TOKEN_HZ, TOKEN_HZ),
        voices={},
        default_voice="",
        frontend=NoFrontend(),
        lm=NoTalker(loading.device),
        flow=NoFlow(),
        vocoder=NoVocoder(),
        ramp=RAMP,
        writer=Writer(thinker, encoder, OmniChat(config.thinker, tokenizer, encoder.limits)),
        batch_invariant=loading.options.batch_invariant,
        device=loading.options.device,
    )


def _speaking_model(
    config: OmniConfig, parts: _VoiceParts, loading: _Loading, thinker: Thinker, tokenizer: TextTokenizer
) -> SpeechModel:
    folder, options = loading.tensors.folder, loading.options
    encoder, flow = _encoder(config, loading), _flow(parts.flow, loading)
    voices = read_voices(folder, parts.flow, config.thinker.vocabulary, flow.ecapa.least_frames)
    talker = _talker(parts.talker, loading)
    speech = _speech(parts, loading, thinker)
    default = DEFAULT_VOICE if DEFAULT_VOICE in voices else next(iter(voices))
    frame_hz = TOKEN_HZ * parts.flow.frames_per_code
    vocoder = _vocoder(parts.vocoder, loading)
    return SpeechModel(
        name="qwen2.5-omni",
        family="qwen2_5_omni",
        rates=Rates(TOKEN_HZ, frame_hz, frame_hz * vocoder.net.config.hop_samples),
        voices=voices,
        default_voice=default,
        frontend=ReadAloud(config.thinker, tokenizer, speech),
        lm=talker,
        flow=flow,
        vocoder=vocoder,
        ramp=RAMP,
        languages=("zh", "en"),
        writer=Writer(thinker, encoder, OmniChat(config.thinker, tokenizer, encoder.limits, speech, voices, default)),
        nets={"dit_backbone": "transformer", "vocoder": "bigvgan"},
        batch_invariant=options.batch_invariant,
        device=options.device,
    )


def _talker(config: TalkerConfig, loading: _Loading) -> Talker:
    talker = load_talker(loading.tensors, config, loading.dtype).to(loading.device)
    talker.freeze(loading.row_tile)
    return talker


def _speech(parts: _VoiceParts, loading: _Loading, thinker: Thinker) -> Speech:
    ids = parts.talker.ids
    end, pad = thinker.text_rows([ids.text_end, ids.text_pad])
    facts = SpeechFacts(
        ids=ids,
        no_code=no_code(parts.talker),
        last_code=parts.flow.codes,
        end=end,
        pad=pad,
        known_codes_only=loading.choices.known_codes_only,
        max_codes=loading.choices.max_codes,
    )
    return Speech(facts, lambda id: thinker.text_rows([id])[0], parts.talker.context)


def _flow(config: FlowConfig, loading: _Loading) -> QwenFlow:
    choices, options = loading.choices, loading.options
    integration = Integration(choices.solver, options.ode_steps or INTERVALS, choices.guidance, choices.sway)
    flow = load_flow(config, loading.tensors, integration).to(loading.device)
    flow.prepare(options.batch_invariant)
    return flow


def _vocoder(config: BigVGANConfig, loading: _Loading) -> QwenVocoder:
    net = load_vocoder(config, loading.tensors).to(loading.device)
    freeze(net)
    return QwenVocoder(net, None if loading.options.exact_joins else EARLY_REACH_FRAMES)
