"""Configuration: one TOML file, frozen and checked at the edge. The only reader of the environment."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from legato.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AttnKernel = Literal["auto", "tiled", "sdpa", "flash_attention_2"]

MIN_OVERLAP_RATIO = 0.4
"""Below this share of the vocoder's context the blended joins are audible."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class EngineConfig(_Section):
    """How the engine runs. All of it can be written under [engine]."""

    device: str = "auto"
    threads: PositiveInt | None = None
    batch_invariant: bool | None = None
    lm_dtype: Literal["float32", "bfloat16"] | None = None
    speech: bool = True
    attn_kernel: AttnKernel = "auto"
    kv_page_size: PositiveInt = 16
    kv_memory_mb: PositiveInt = 1024
    writer_kv_memory_mb: PositiveInt = 2048
    media_rows_per_step: PositiveInt = 512
    media_cache_mb: PositiveInt = 256
    max_tokens_per_step: PositiveInt = 512
    prefill_tokens_beside_decodes: PositiveInt = 12
    max_sequences: PositiveInt = 32
    max_requests: PositiveInt = 16
    max_waiting: int = Field(64, ge=0)
    max_windows: PositiveInt = 8
    utterances_ahead: PositiveInt = 2
    ramp_blocks: tuple[PositiveInt, ...] | None = Field(None, strict=False, min_length=1)
    look_ahead_blocks: tuple[NonNegativeInt, ...] | None = Field(None, strict=False, min_length=1)
    ode_steps: PositiveInt | None = None
    exact_joins: bool = True
    voices_dir: Path | None = Field(None, strict=False)
    overlap_ratio: float = Field(0.5, gt=0, le=1)
    guard_s: PositiveFloat = 0.2
    hold_first_sound: bool = True
    admit_by_deadline: bool = True
    max_buffered_s: PositiveFloat = 20.0
    max_text_chars: PositiveInt = 100_000
    first_utterance_chars: PositiveInt = 80
    utterance_chars: PositiveInt = 200

    @model_validator(mode="after")
    def _first_utterance_fits(self) -> EngineConfig:
        if self.first_utterance_chars > self.utterance_chars:
            raise ValueError(
                f"first_utterance_chars = {self.first_utterance_chars} is more than "
                f"utterance_chars = {self.utterance_chars}"
            )
        return self

    def invariant_on(self, device: str) -> bool:
        """Whether results must not depend on what shares a batch: as written, else on a CPU."""
        return device == "cpu" if self.batch_invariant is None else self.batch_invariant

    def pages(self, bytes_per_position: int) -> int:
        """Pages that `kv_memory_mb` buys, the scratch page included."""
        return max(2, self.kv_memory_mb * 2**20 // (bytes_per_position * self.kv_page_size))

    def writer_pages(self, bytes_per_position: int) -> int:
        """Pages that `writer_kv_memory_mb` buys for the language model that writes replies."""
        return max(2, self.writer_kv_memory_mb * 2**20 // (bytes_per_position * self.kv_page_size))


class ServerConfig(_Section):
    """How the server listens. All of it can be written under [server]."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    api_key_env: str | None = None
    cors_origins: tuple[str, ...] = Field((), strict=False)
    max_body_bytes: PositiveInt = 1_000_000
    max_media_bytes: PositiveInt = 32_000_000
    keep_alive_s: PositiveFloat = Field(10.0, strict=False)

    @property
    def api_key(self) -> str | None:
        """The key clients must send, read from the variable named by `api_key_env`."""
        return None if self.api_key_env is None else _secret(self.api_key_env, "server.api_key_env")


class ApiConfig(_Section):
    """An OpenAI-compatible endpoint to speak through, under [api]. It names the key's variable, never the key."""

    base_url: str
    api_key_env: str | None = None
    timeout_seconds: PositiveFloat = Field(120.0, strict=False)
    stream: bool = True

    @property
    def api_key(self) -> str | None:
        return None if self.api_key_env is None else _secret(self.api_key_env, "api.api_key_env")


class PrefillingConfig(_Section):
    """The [prefilling] section that users of these models already have; each key maps to the engine's or is refused."""

    text_chunk_tokens: PositiveInt | None = None
    audio_block_seconds: PositiveFloat | None = None
    vision_patch_size: PositiveInt | None = None
    vision_merge_2x2: bool | None = None
    continuous_position_ids: bool = True
    kv_paged: bool = True
    kv_page_size: PositiveInt | None = None
    decode_max_batch: bool = True
    attn_kernel: AttnKernel | None = None


class CodecStreamingConfig(_Section):
    """The [codec_streaming] section that users of these models already have. Facts of the model must agree with it."""

    code_frames_per_chunk: PositiveInt | None = None
    chunk_ms: PositiveFloat | None = Field(None, strict=False)
    lookback_chunks: int | None = Field(None, ge=0)
    lookahead_chunks: int | None = Field(None, ge=0)
    dit_backbone: str | None = None
    flow_matching_steps: PositiveInt | None = None
    mel_bins: PositiveInt | None = None
    vocoder: str | None = None
    sample_rate: PositiveInt | None = None
    hop_size: PositiveInt | None = None
    overlap_ratio: float | None = Field(None, gt=0, le=1)
    fade_window: str | None = None


class Config(_Section):
    """The whole file."""

    engine: EngineConfig = EngineConfig()
    server: ServerConfig = ServerConfig()
    api: ApiConfig | None = None
    prefilling: PrefillingConfig = PrefillingConfig()
    codec_streaming: CodecStreamingConfig = CodecStreamingConfig()


def load_config(path: Path | None) -> Config:
    """Read a TOML file; None gives the defaults. Raises ConfigError naming the key and what to write."""
    if path is None:
        return Config()
    try:
        return parse_config(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise ConfigError(f"there is no config file at {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_config(raw: dict[str, Any]) -> Config:
    """Check a parsed file. Raises ConfigError with every problem found."""
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        problems = [_explain(problem["type"], problem["loc"], problem["msg"]) for problem in error.errors()]
        raise ConfigError("; ".join(problems)) from None


def _explain(kind: str, location: tuple[int | str, ...], message: str) -> str:
    key = ".".join(str(part) for part in location)
    if kind != "extra_forbidden":
        return f"{key}: {message[0].lower()}{message[1:]}"
    near = get_close_matches(str(location[-1]), _keys_beside(location), n=1)
    return f"unknown key {key}" + (f"; did you mean {near[0]}?" if near else "")


def _keys_beside(location: tuple[int | str, ...]) -> list[str]:
    """The known keys of the section an unknown key was found in."""
    if len(location) == 1:
        return list(Config.model_fields)
    sections: dict[str, type[BaseModel]] = {
        "engine": EngineConfig,
        "server": ServerConfig,
        "api": ApiConfig,
        "prefilling": PrefillingConfig,
        "codec_streaming": CodecStreamingConfig,
    }
    return list(sections[str(location[0])].model_fields)


def _secret(variable: str, key: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise ConfigError(f"{key} names the environment variable {variable}, which is not set")
    return value
