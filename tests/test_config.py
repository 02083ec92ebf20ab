"""The config file: every key has its effect or is refused with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

import legato
from legato.config import Config, EngineConfig, load_config, parse_config
from legato.errors import ConfigError
from legato.fit import fit
from legato.protocols import SpeechModel


def fitted(model: SpeechModel, **sections: dict[str, object]) -> EngineConfig:
    return fit(parse_config(dict(sections)), model).engine


def test_defaults_need_no_file() -> None:
    assert load_config(None) == Config()


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        ("engine", "kv_page_sise", "did you mean kv_page_size"),
        ("server", "prot", "did you mean port"),
        ("codec_streaming", "mel_bin", "did you mean mel_bins"),
        ("engine", "qqqqq", "unknown key engine.qqqqq$"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest(section: str, key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({section: {key: 1}})


def test_unknown_section() -> None:
    with pytest.raises(ConfigError, match="unknown key prefiling; did you mean prefilling"):
        parse_config({"prefiling": {}})


@pytest.mark.parametrize(
    "section",
    [
        {"max_requests": 0},
        {"max_requests": "many"},
        {"ramp_blocks": []},
        {"overlap_ratio": 2.0},
        {"utterance_chars": 10},
    ],
)
def test_wrong_values_are_named(section: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="engine"):
        parse_config({"engine": section})


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"engine.*server"):
        parse_config({"engine": {"nope": 1}, "server": {"nope": 1}})


@pytest.mark.parametrize("text", ["[engine", "a = ", "\x00"])
def test_a_file_that_is_not_toml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="cannot be read as TOML"):
        load_config(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no config file"):
        load_config(tmp_path / "none.toml")


def test_the_key_is_named_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    server = parse_config({"server": {"api_key_env": "LEGATO_TEST_KEY"}}).server
    monkeypatch.delenv("LEGATO_TEST_KEY", raising=False)
    with pytest.raises(ConfigError, match="LEGATO_TEST_KEY, which is not set"):
        _ = server.api_key
    monkeypatch.setenv("LEGATO_TEST_KEY", "s3cret")
    assert server.api_key == "s3cret"


# --- where the file meets the model ---


def test_keys_users_already_have_reach_the_engine(piccolo: SpeechModel) -> None:
    engine = fitted(
        piccolo,
        prefilling={"text_chunk_tokens": 128, "kv_page_size": 32, "attn_kernel": "sdpa", "kv_paged": True},
        codec_streaming={
            "code_frames_per_chunk": 16,
            "chunk_ms": 640,
            "lookback_chunks": 2,
            "lookahead_chunks": 1,
            "dit_backbone": "transformer",
            "mel_bins": 80,
            "vocoder": "early_vocos",
            "sample_rate": 24000,
            "hop_size": 480,
            "fade_window": "hann",
        },
    )
    assert (engine.max_tokens_per_step, engine.kv_page_size, engine.attn_kernel) == (128, 32, "sdpa")
    assert (engine.ramp_blocks, engine.look_ahead_blocks) == ((1, 2), (1,))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hop_size", 256, "piccolo has 480; write 480"),
        ("sample_rate", 16000, "piccolo has 24000"),
        ("vocoder", "bigvgan", "piccolo has 'early_vocos'"),
        ("lookback_chunks", 1, "piccolo has 2"),
        ("code_frames_per_chunk", 12, "not a multiple of piccolo's block of 8"),
        ("chunk_ms", 320, "needs code_frames_per_chunk"),
        ("lookahead_chunks", 0, "needs 1 to be exact"),
        ("overlap_ratio", 0.5, "exact and need no cross-fade"),
        ("fade_window", "sine", "'hann'"),
    ],
)
def test_contradictions_name_key_value_and_fact(piccolo: SpeechModel, key: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fitted(piccolo, codec_streaming={key: value})


def test_keys_that_contradict_each_other(piccolo: SpeechModel) -> None:
    with pytest.raises(ConfigError, match="16 codec tokens at 25 per second are 640 ms; write 640"):
        fitted(piccolo, codec_streaming={"code_frames_per_chunk": 16, "chunk_ms": 320})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("continuous_position_ids", False, "would forget"),
        ("kv_paged", False, "write true"),
        ("decode_max_batch", False, "hold up listeners"),
        ("audio_block_seconds", 2.0, "takes text only"),
    ],
)
def test_what_would_harm_is_refused_with_the_reason(
    piccolo: SpeechModel, key: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fitted(piccolo, prefilling={key: value})


def test_the_same_setting_under_two_names(piccolo: SpeechModel) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        fitted(piccolo, engine={"kv_page_size": 16}, prefilling={"kv_page_size": 16})


def test_more_look_ahead_is_allowed_and_its_price_told(piccolo: SpeechModel) -> None:
    told = fit(parse_config({"codec_streaming": {"lookahead_chunks": 2}}), piccolo)
    assert told.engine.look_ahead_blocks == (2,)
    assert "320 ms" in told.warnings[0]


def test_steps_reach_the_flow() -> None:
    with legato.load(config=parse_config({"codec_streaming": {"flow_matching_steps": 3}})) as engine:
        assert engine.model.flow.facts.ode_steps == 3


def test_unknown_device() -> None:
    with pytest.raises(ConfigError, match="write auto, cpu"):
        legato.load(config=parse_config({"engine": {"device": "abacus"}}))


def test_inexact_joins_are_blended_and_keep_the_duration() -> None:
    early = parse_config({"engine": {"exact_joins": False}})
    with legato.load(config=early) as engine:
        audio = engine.generate("Good morning to everyone.", seed=3)
        assert not engine.model.vocoder.exact
        assert len(audio.samples) == audio.stats.usage.generated_tokens * engine.model.rates.samples_per_token
