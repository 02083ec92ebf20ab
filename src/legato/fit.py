"""Where a config file meets a model: facts are compared, choices become engine settings, contradictions are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from legato.config import MIN_OVERLAP_RATIO, CodecStreamingConfig, Config, EngineConfig, PrefillingConfig
from legato.errors import ConfigError
from legato.protocols import LoadOptions, SpeechModel


@dataclass(frozen=True)
class Fitted:
    """Settings for one model, and what its user should know about them."""

    engine: EngineConfig
    warnings: tuple[str, ...]


def load_options(config: Config) -> LoadOptions:
    """What a config says about loading a model. Raises ConfigError when its device is not there."""
    engine = config.engine
    device = _device(engine.device)
    return LoadOptions(
        device=device,
        batch_invariant=engine.invariant_on(device),
        ode_steps=engine.ode_steps or config.codec_streaming.flow_matching_steps,
        exact_joins=engine.exact_joins,
        voices_dir=engine.voices_dir,
        lm_dtype=engine.lm_dtype,
        speech=engine.speech,
    )


def _device(wanted: str) -> str:
    """The device to use. Raises ConfigError when it is not there."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = wanted.split(":")[0]
    if kind not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"engine.device = {wanted!r}: write auto, cpu, cuda, cuda:N or mps")
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present[kind]:
        raise ConfigError(f"engine.device = {wanted!r}, but this machine has no {kind} device that torch can use")
    return wanted


def fit(config: Config, model: SpeechModel) -> Fitted:
    """Engine settings from a whole config. Raises ConfigError naming every key that cannot hold for this model."""
    problems = [*_refused(config.prefilling), *_contradictions(config, model)]
    if problems:
        raise ConfigError("; ".join(problems))
    changes = _prefilling_changes(config.prefilling) | _streaming_changes(config.codec_streaming, model)
    twice = [key for key in changes if key in config.engine.model_fields_set]
    if twice:
        raise ConfigError(f"engine.{twice[0]} is given twice, in [engine] and under its other name; keep one")
    engine = EngineConfig.model_validate(config.engine.model_dump() | changes)
    return Fitted(engine, tuple(_warnings(engine, model)))


def _refused(prefilling: PrefillingConfig) -> list[str]:
    """Keys whose only value that works is the one that is left."""
    problems = []
    if not prefilling.continuous_position_ids:
        problems.append(
            "prefilling.continuous_position_ids = false would restart positions at every chunk, and the model would "
            "forget what came before; write true"
        )
    if not prefilling.kv_paged:
        problems.append(
            "prefilling.kv_paged = false: there is no other cache; write true (use_cache = false per request)"
        )
    if not prefilling.decode_max_batch:
        problems.append("prefilling.decode_max_batch = false would let prompts hold up listeners; write true")
    for key in ("audio_block_seconds", "vision_patch_size", "vision_merge_2x2"):
        if getattr(prefilling, key) is not None:
            problems.append(f"prefilling.{key}: this model takes text only; leave the key out")
    return problems


def _contradictions(config: Config, model: SpeechModel) -> list[str]:
    """Keys that say something else than the model does."""
    streaming, rates, facts = config.codec_streaming, model.rates, model.flow.facts
    fixed: dict[str, Any] = {
        "dit_backbone": model.nets.get("dit_backbone"),
        "vocoder": model.nets.get("vocoder"),
        "mel_bins": facts.mel_bins,
        "sample_rate": rates.sample_hz,
        "hop_size": rates.samples_per_frame,
        "lookback_chunks": facts.look_back_blocks,
        "fade_window": "hann",
    }
    problems = [
        f"codec_streaming.{key} = {given!r}, but {model.name} has {value!r}; write {value!r} or leave it out"
        for key, value in fixed.items()
        if (given := getattr(streaming, key)) is not None and given != value
    ]
    return problems + _chunk_problems(streaming, model) + _join_problems(config, model)


def _chunk_problems(streaming: CodecStreamingConfig, model: SpeechModel) -> list[str]:
    problems = []
    tokens, block = streaming.code_frames_per_chunk, model.flow.facts.block_tokens
    if tokens is not None and tokens % block:
        problems.append(
            f"codec_streaming.code_frames_per_chunk = {tokens} is not a multiple of {model.name}'s block of {block}"
        )
    if streaming.chunk_ms is not None:
        expected = 1000 * (tokens or block) / model.rates.token_hz
        if tokens is None or streaming.chunk_ms != expected:
            given = (
                "codec_streaming.chunk_ms needs code_frames_per_chunk"
                if tokens is None
                else (
                    f"codec_streaming.chunk_ms = {streaming.chunk_ms:g}, but {tokens} codec tokens at "
                    f"{model.rates.token_hz} per second are {expected:g} ms"
                )
            )
            problems.append(f"{given}; write {expected:g} or leave it out")
    ahead = streaming.lookahead_chunks
    if ahead is not None and ahead < model.flow.facts.look_ahead_blocks:
        least = model.flow.facts.look_ahead_blocks
        problems.append(f"codec_streaming.lookahead_chunks = {ahead}, but {model.name} needs {least} to be exact")
    return problems


def _join_problems(config: Config, model: SpeechModel) -> list[str]:
    """Cross-fade keys have an effect only where joins are not exact."""
    if not model.vocoder.exact or (config.codec_streaming.overlap_ratio is None):
        return []
    return [
        f"codec_streaming.overlap_ratio: {model.name}'s joins are exact and need no cross-fade; leave it out "
        "(or set engine.exact_joins = false for more sound in the first chunk)"
    ]


def _prefilling_changes(prefilling: PrefillingConfig) -> dict[str, Any]:
    names = {"text_chunk_tokens": "max_tokens_per_step", "kv_page_size": "kv_page_size", "attn_kernel": "attn_kernel"}
    return {ours: value for theirs, ours in names.items() if (value := getattr(prefilling, theirs)) is not None}


def _streaming_changes(streaming: CodecStreamingConfig, model: SpeechModel) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if streaming.code_frames_per_chunk is not None:
        changes["ramp_blocks"] = (
            model.ramp.keep_blocks[0],
            streaming.code_frames_per_chunk // model.flow.facts.block_tokens,
        )
    if streaming.lookahead_chunks is not None:
        changes["look_ahead_blocks"] = (streaming.lookahead_chunks,)
    if streaming.flow_matching_steps is not None:
        changes["ode_steps"] = streaming.flow_matching_steps
    if streaming.overlap_ratio is not None:
        changes["overlap_ratio"] = streaming.overlap_ratio
    return changes


def _warnings(engine: EngineConfig, model: SpeechModel) -> list[str]:
    warnings = []
    facts = model.flow.facts
    extra = (engine.look_ahead_blocks or model.ramp.ahead_blocks)[0] - facts.look_ahead_blocks
    if extra > 0 and model.voices:
        delay_ms = 1000 * extra * facts.block_tokens // model.rates.token_hz
        warnings.append(f"{extra} more look-ahead block(s): first sound waits for {delay_ms} ms more of speech tokens")
    if not model.vocoder.exact and engine.overlap_ratio < MIN_OVERLAP_RATIO:
        warnings.append(f"overlap_ratio {engine.overlap_ratio} is below {MIN_OVERLAP_RATIO}: joins may be audible")
    return warnings
