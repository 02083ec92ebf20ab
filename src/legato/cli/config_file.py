"""The text of a config file for one model: every key of config.py, with the model's facts and what each key does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from legato.config import ApiConfig, CodecStreamingConfig, Config, EngineConfig, PrefillingConfig, ServerConfig
from legato.protocols import SpeechModel

Section = type[EngineConfig | ServerConfig | ApiConfig | PrefillingConfig | CodecStreamingConfig]

SECTIONS: dict[str, Section] = {
    "engine": EngineConfig,
    "server": ServerConfig,
    "api": ApiConfig,
    "prefilling": PrefillingConfig,
    "codec_streaming": CodecStreamingConfig,
}

INTRODUCTIONS = {
    "engine": "How the engine runs.",
    "server": "How `legato serve` listens.",
    "api": "Another server to speak through: `legato say --remote`. Take the marks away to use it.",
    "prefilling": "How prompts enter the language model.",
    "codec_streaming": "How codec tokens become sound. Facts of the model must agree with it.",
}

NOTES: dict[str, dict[str, str]] = {
    "engine": {
        "device": "auto, cpu, cuda, cuda:N or mps",
        "threads": "CPU threads; left out: torch decides",
        "batch_invariant": "the same bits whatever shares a batch; left out: true on a CPU, false elsewhere",
        "lm_dtype": "float32 or bfloat16, of the language models; left out: bfloat16 on CUDA, else float32",
        "speech": "false: load a model that writes without its voice",
        "attn_kernel": "auto, tiled, sdpa or flash_attention_2",
        "kv_page_size": "positions per page of the KV cache",
        "kv_memory_mb": "memory of the KV cache",
        "writer_kv_memory_mb": "memory of the KV cache of the language model that writes replies",
        "media_rows_per_step": "most rows that sounds and pictures may become in one call of their encoder",
        "media_cache_mb": "memory of encoded sounds and pictures, kept for the next turns",
        "max_tokens_per_step": "most tokens in one step of the language model",
        "prefill_tokens_beside_decodes": "prompt tokens that may join a step in which others speak already",
        "max_sequences": "most utterances in one step",
        "max_requests": "requests spoken at the same time; more wait",
        "max_waiting": "requests that may wait; more are refused",
        "max_windows": "most windows in one call of the flow, or of the vocoder",
        "utterances_ahead": "utterances of one request that may be in the making",
        "ramp_blocks": "blocks kept of the first, second, … flow window; the last repeats",
        "look_ahead_blocks": "blocks that the first, second, … window waits for beyond those it keeps",
        "ode_steps": "steps from noise to mel: fewer are faster and rougher",
        "exact_joins": "false: more sound in the first chunk, with a small error at the joins, which are blended",
        "voices_dir": "where voices cloned from recordings are kept; left out: voices/ in the checkpoint",
        "overlap_ratio": "share of the vocoder's context that is blended where joins are not exact",
        "guard_s": "a listener with less sound than this left comes before requests without a first sound",
        "hold_first_sound": "wait with the first sound until it lasts to the next chunk, however many are served",
        "admit_by_deadline": "let a request begin only while everybody who listens can be served in time; else wait",
        "max_buffered_s": "sound made beyond what its reader has taken; then that request pauses",
        "max_text_chars": "longest text of one request; `legato say` has no limit unless this is written",
        "first_utterance_chars": "longest first piece of a text",
        "utterance_chars": "longest later piece",
    },
    "server": {
        "host": "0.0.0.0 lets other machines in, and then needs a key",
        "port": "0 takes a free one",
        "api_key_env": "the NAME of the environment variable that holds the key, never the key",
        "cors_origins": "web pages of other origins that may call, such as https://app.example",
        "max_body_bytes": "largest request body",
        "max_media_bytes": "largest body of /v1/chat/completions, whose messages carry media",
        "keep_alive_s": "longest silence of a stream of events; then a comment is sent",
    },
    "api": {
        "base_url": "any OpenAI-compatible endpoint, with or without /v1",
        "api_key_env": "the NAME of the environment variable that holds the key, never the key",
        "timeout_seconds": "longest silence of the server",
        "stream": "ask for the sound as it is made",
    },
    "prefilling": {
        "text_chunk_tokens": "engine.max_tokens_per_step under its other name: the longest piece of a prompt",
        "audio_block_seconds": "for models that hear",
        "vision_patch_size": "for models that see",
        "vision_merge_2x2": "for models that see",
        "continuous_position_ids": "must be true: otherwise the model would forget at every chunk",
        "kv_paged": "must be true: there is no other cache",
        "kv_page_size": "engine.kv_page_size under its other name",
        "decode_max_batch": "must be true: prompts never hold up listeners",
        "attn_kernel": "engine.attn_kernel under its other name",
    },
    "codec_streaming": {
        "code_frames_per_chunk": "codec tokens per chunk once the stream runs; left out: the model's own ramp",
        "chunk_ms": "the same in milliseconds",
        "lookback_chunks": "a fact of the model",
        "lookahead_chunks": "the same for every window; more delays the first sound",
        "dit_backbone": "a fact of the model",
        "flow_matching_steps": "engine.ode_steps under its other name: fewer are faster and rougher",
        "mel_bins": "a fact of the model",
        "vocoder": "a fact of the model",
        "sample_rate": "a fact of the model, in Hz",
        "hop_size": "a fact of the model: samples per mel frame",
        "overlap_ratio": "for models whose joins are blended",
        "fade_window": "shape of such a blend",
    },
}
"""What each key does. A test holds it to config.py."""

EXAMPLES: dict[str, dict[str, Any]] = {
    "engine": {"threads": 4, "batch_invariant": True},
    "server": {"api_key_env": "LEGATO_API_KEY"},
    "api": {"base_url": "https://host/api", "api_key_env": "NAME_OF_THE_VARIABLE"},
    "prefilling": {"audio_block_seconds": 2.0, "vision_patch_size": 14, "vision_merge_2x2": True},
    "codec_streaming": {},
}
"""Values shown, and marked out, for keys without a default."""

MARKED_OUT = {"kv_page_size", "attn_kernel", "max_tokens_per_step", "overlap_ratio", "max_text_chars"}
"""Keys of [engine] that are shown but not set: the first four have another section's key beside them, and both would
be refused; the last one, once written, holds for `legato say` too."""


def config_text(model: SpeechModel) -> str:
    """A TOML file that changes nothing: what the defaults and the model say already, and what else could be said."""
    head = f"# Legato, for {model.name}. Every key may be left out; unknown keys are refused.\n"
    return "\n".join([head, *("\n".join(_section(name, model)) + "\n" for name in SECTIONS)])


def _section(name: str, model: SpeechModel) -> Iterator[str]:
    off = "# " if name == "api" else ""
    yield f"# {INTRODUCTIONS[name]}"
    yield f"{off}[{name}]"
    facts = _facts(name, model)
    for key, info in SECTIONS[name].model_fields.items():
        default = None if info.is_required() else info.default
        value = facts.get(key, default)
        live = value is not None and not (name == "engine" and key in MARKED_OUT)
        if value is None:
            value = _example(name, key, model)
        mark = off or ("" if live else "# ")
        note = NOTES[name].get(key, "")
        yield f"{mark}{key} = {_toml(value)}" + (f"  # {note}" if note else "")


def _facts(section: str, model: SpeechModel) -> dict[str, Any]:
    """What the model says about keys of this section, and what the engine would do without a file."""
    engine, flow = Config().engine, model.flow.facts
    if section == "prefilling":
        return {
            "text_chunk_tokens": engine.max_tokens_per_step,
            "kv_page_size": engine.kv_page_size,
            "attn_kernel": engine.attn_kernel,
        }
    if section != "codec_streaming":
        return {}
    facts = {
        "lookback_chunks": flow.look_back_blocks,
        "dit_backbone": model.nets.get("dit_backbone"),
        "flow_matching_steps": flow.ode_steps,
        "mel_bins": flow.mel_bins,
        "vocoder": model.nets.get("vocoder"),
        "sample_rate": model.rates.sample_hz,
        "hop_size": model.rates.samples_per_frame,
        "fade_window": "hann",
    }
    return facts if model.vocoder.exact else facts | {"overlap_ratio": engine.overlap_ratio}


def _example(section: str, key: str, model: SpeechModel) -> Any:
    """A value to show for a key that is left out."""
    flow = model.flow.facts
    tokens = model.ramp.keep_blocks[-1] * flow.block_tokens
    own: dict[str, Any] = {
        "ramp_blocks": model.ramp.keep_blocks,
        "look_ahead_blocks": model.ramp.ahead_blocks,
        "lookahead_chunks": flow.look_ahead_blocks,
        "ode_steps": flow.ode_steps,
        "code_frames_per_chunk": tokens,
        "chunk_ms": 1000 * tokens / model.rates.token_hz,
        "overlap_ratio": Config().engine.overlap_ratio,
    }
    return own[key] if key in own else EXAMPLES[section].get(key, "…")


def _toml(value: Any) -> str:
    """A TOML value; JSON's spelling of these types is TOML's too."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
