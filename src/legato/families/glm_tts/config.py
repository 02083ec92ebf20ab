"""Facts of a GLM-TTS checkpoint: the language model's sizes, the flow's settings.

Sizes of the flow and the vocoder are not here: they follow from the shapes of their tensors (weights.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from legato.errors import CheckpointError, ConfigError
from legato.nn.decoder import DecoderConfig

from .files import need_file, read_json_table, size_of, telling_what_to_run


@dataclass(frozen=True)
class LMFacts:
    """Sizes of the language model (Hugging Face Llama)."""

    decoder: DecoderConfig
    vocabulary: int
    tied: bool


@dataclass(frozen=True)
class FlowSettings:
    """What flow/config.yaml says and the tensors do not show."""

    token_hz: int
    frame_hz: int
    token_guidance: bool
    """Whether guidance also takes the codec ids away."""
    cosine_time: bool


@telling_what_to_run()
def read_lm_facts(path: Path) -> LMFacts:
    """Parse llm/config.json. Raises CheckpointError naming the file and the key."""
    try:
        return _lm_facts(read_json_table(path))
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path} lacks or misspells {error}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _lm_facts(raw: dict[str, Any]) -> LMFacts:
    heads, width = size_of(raw, "num_attention_heads"), size_of(raw, "hidden_size")
    kv_heads = size_of(raw, "num_key_value_heads") if raw.get("num_key_value_heads") is not None else heads
    if heads % kv_heads:
        raise ValueError(f"num_attention_heads = {heads} is no multiple of num_key_value_heads = {kv_heads}")
    rope = raw.get("rope_parameters") or {}
    for key, only in (("hidden_act", "silu"), ("rope_scaling", None), ("attention_bias", False), ("mlp_bias", False)):
        if raw.get(key, only) != only:
            raise ValueError(f"{key} = {raw[key]!r} is not supported; this model family has {only!r}")
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_type = {rope['rope_type']!r} is not supported; this model family has 'default'")
    decoder = DecoderConfig(
        width=width,
        layers=size_of(raw, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=raw.get("head_dim") or width // heads,
        inner=size_of(raw, "intermediate_size"),
        rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta") or LLAMA_ROPE_THETA),
        norm_eps=float(raw.get("rms_norm_eps", LLAMA_NORM_EPS)),
        qkv_bias=False,
    )
    return LMFacts(decoder, size_of(raw, "vocab_size"), bool(raw.get("tie_word_embeddings", False)))


LLAMA_ROPE_THETA, LLAMA_NORM_EPS = 10000.0, 1e-6
"""Hugging Face's defaults for keys that a Llama config may leave out."""


def read_plain_yaml(path: Path) -> Any:
    """A YAML file as data: HyperPyYAML's tags, which name Python objects to build, are read over.

    Raises CheckpointError naming the file, ConfigError when PyYAML is not installed.
    """
    text = need_file(path).read_text(encoding="utf-8")
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        raise ConfigError(f"reading {path} needs PyYAML: pip install 'legato-speech[glm-tts]'") from None

    class Plain(yaml.SafeLoader):  # type: ignore[misc]
        pass

    def without_tag(loader: Any, _: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    Plain.add_multi_constructor("!", without_tag)
    try:
        return yaml.load(text, Loader=Plain)
    except yaml.YAMLError as error:
        raise CheckpointError(f"{path} is not YAML: {error}") from error


@telling_what_to_run()
def read_flow_settings(path: Path) -> FlowSettings:
    """Parse flow/config.yaml without running its tags. Raises CheckpointError naming the file and the key.

    Keys that are left out have the defaults of the released code.
    """
    raw = read_plain_yaml(path)
    flow = raw.get("flow") if isinstance(raw, dict) else None
    if not isinstance(flow, dict):
        raise CheckpointError(f"{path} lacks the table `flow:`")
    try:
        return flow_settings(flow)
    except TypeError as error:
        raise CheckpointError(f"{path} misstates a rate: {error}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def flow_settings(flow: dict[str, Any]) -> FlowSettings:
    """Settings from the mapping under `flow:`. Raises ValueError for a variant that was never released."""
    released = {"spkr_emb_adaLN": True, "remove_spkr_concat_condition": True, "use_wavlm_emb": False}
    defaults = {"spkr_emb_adaLN": False, "remove_spkr_concat_condition": False, "use_wavlm_emb": False}
    for key, only in released.items():
        if bool(flow.get(key, defaults[key])) != only:
            raise ValueError(f"{key} must be {only}: other variants of this flow were never released")
    return FlowSettings(
        token_hz=_whole(flow, "input_frame_rate", 12.5),
        frame_hz=_whole(flow, "mel_framerate", 86),
        token_guidance=bool(flow.get("speech_token_cfg", True)),
        cosine_time=flow.get("t_scheduler", "cosine") == "cosine",
    )


def _whole(flow: dict[str, Any], key: str, default: float) -> int:
    value = float(flow.get(key, default))
    if value != int(value):
        raise ValueError(f"{key} = {value:g} must be a whole number per second")
    return int(value)
