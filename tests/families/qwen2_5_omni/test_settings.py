"""config.json: both spellings say the same, and a value that cannot be is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from legato.errors import CheckpointError
from legato.families.qwen2_5_omni.config import OmniConfig, read_config

from .settings import TINY, config

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with the tiny settings in it."""
    (tmp_path / "config.json").write_text(json.dumps(config(TINY)), encoding="utf-8")
    return tmp_path


def edited(folder: Path, edit: Edit) -> OmniConfig:
    raw = config(TINY)
    edit(raw)
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    return read_config(folder)


def test_both_spellings_say_the_same(own: Path) -> None:
    released = read_config(own)
    (own / "config.json").write_text(json.dumps(config(TINY, newer=True)), encoding="utf-8")
    assert read_config(own) == released
    flow = ("dim", "depth", "heads"), ("hidden_size", "num_hidden_layers", "num_attention_heads")
    for names in flow:
        assert edited(own, lambda raw, n=names: [raw["token2wav_config"]["dit_config"].pop(k) for k in n]) == released


def test_a_tied_head_is_said_in_either_table(own: Path) -> None:
    assert not edited(own, lambda raw: None).thinker.tied
    for names in (("thinker_config",), ("thinker_config", "text_config")):
        raw = config(TINY)
        table = raw
        for name in names:
            table = table[name]
        table["tie_word_embeddings"] = True
        assert edited(own, lambda old, new=raw: old.update(new)).thinker.tied


def test_what_the_release_leaves_out(own: Path) -> None:
    names = ("block_size", "look_ahead_layers", "look_backward_layers")
    flow = edited(own, lambda raw: [raw["token2wav_config"]["dit_config"].pop(name) for name in names]).flow
    assert flow is not None
    assert (flow.block_frames, flow.look_ahead_layers, flow.look_back_layers) == (24, (10,), (0, 20))


def test_a_model_that_only_writes(own: Path) -> None:
    read = edited(own, lambda raw: raw.update(enable_audio_output=False))
    assert read.talker is read.flow is read.vocoder is None


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda raw: raw.pop("thinker_config"), "lacks thinker_config"),
        (
            lambda raw: raw["thinker_config"]["text_config"].pop("hidden_size"),
            "lacks thinker_config.text_config",
        ),
        (lambda raw: raw["thinker_config"]["vision_config"].pop("hidden_size"), "vision_config.hidden_size"),
        (lambda raw: raw["thinker_config"].pop("vision_start_token_id"), "vision_start_token_id"),
        (lambda raw: raw["talker_config"].pop("head_dim"), "mrope_section"),
        (
            lambda raw: raw["talker_config"].update(embedding_size=5),
            "embedding_size = 5, but the thinker's",
        ),
        (lambda raw: raw["thinker_config"]["audio_config"].update(output_dim=5), "audio_config gives rows of 5"),
        (lambda raw: raw["thinker_config"]["text_config"].update(hidden_act="gelu"), "hidden_act = 'gelu'"),
        (lambda raw: raw["thinker_config"]["text_config"].update(vocab_size="many"), "vocab_size = 'many'"),
        (lambda raw: raw["thinker_config"]["text_config"].pop("rope_scaling"), "rope_parameters or rope_scaling"),
        (
            lambda raw: raw["thinker_config"]["text_config"]["rope_scaling"].update(rope_type="yarn"),
            "rope type 'yarn' is not supported",
        ),
    ],
)
def test_settings_that_are_refused(own: Path, edit: Edit, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        edited(own, edit)
    assert str(own / "config.json") in str(caught.value)


OF_TABLES = {
    "audio": ("thinker_config", "audio_config"), "vision": ("thinker_config", "vision_config"),
    "text": ("thinker_config", "text_config"), "rope": ("thinker_config", "text_config", "rope_scaling"),
    "thinker": ("thinker_config",), "talker": ("talker_config",), "whole": (),
    "flow": ("token2wav_config", "dit_config"), "vocoder": ("token2wav_config", "bigvgan_config"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("table", "key", "value", "possible"),
    [
        ("whole", "enable_audio_output", "no", "true or false"),
        ("whole", "thinker_config", 5, "a table of keys and values"),
        ("thinker", "position_id_per_seconds", 0, "a whole number of at least 1"),
        ("thinker", "seconds_per_chunk", 0, "a whole number of at least 1"),
        ("thinker", "seconds_per_chunk", 2.5, "a whole number of at least 1"),
        ("thinker", "eos_token_id", "x", "an id from 0 to 319"),
        ("thinker", "eos_token_id", 999999, "an id from 0 to 319"),
        ("thinker", "eos_token_id", [301, -1], "a list of whole numbers from 0 to 319"),
        ("thinker", "audio_token_index", 320, "an id from 0 to 319"),
        ("text", "rope_theta", [1], "a number above 0"),
        ("text", "rope_theta", 0, "a number above 0"),
        ("text", "rope_theta", 10**400, "a number above 0"),
        ("text", "rms_norm_eps", "small", "a number above 0"),
        ("text", "num_key_value_heads", 3, "a divisor of num_attention_heads = 4"),
        ("text", "num_attention_heads", 0, "a whole number of at least 1"),
        ("text", "head_dim", "a", "a whole number of at least 1"),
        ("rope", "mrope_section", [2, 3, "3"], "a list of whole numbers of at least 0"),
        ("rope", "mrope_section", [2, 6], "three numbers that sum to 16 / 2"),
        ("audio", "encoder_attention_heads", 5, "a divisor of d_model = 32"),
        ("audio", "n_window", 0, "a whole number of at least 1"),
        ("vision", "num_heads", 0, "a whole number of at least 1"),
        ("vision", "num_heads", 3, "hidden_size = 32 is a multiple of 4 for every head"),
        ("vision", "window_size", 0, "a whole number of at least 1"),
        ("vision", "window_size", 27, "at least 28"),
        ("vision", "fullatt_block_indexes", [2], "a list of whole numbers from 0 to 1"),
        ("talker", "tts_text_end_token_id", 99999, "an id from 0 to 319"),
        ("talker", "tts_codec_end_token_id", 104, "an id from 0 to 103"),
        ("flow", "block_size", "a", "a whole number of at least 1"),
        ("flow", "repeats", 0, "a whole number of at least 1"),
        ("flow", "repeats", 5, "a divisor of block_size = 24"),
        ("flow", "look_ahead_layers", [99], "a list of whole numbers from 0 to 5"),
        ("flow", "look_backward_layers", 3, "a list of whole numbers from 0 to 5"),
        ("flow", "enc_channels", [16], "a list of three or more"),
        ("flow", "enc_dilations", [1, 2], "5 numbers, as many as enc_channels has"),
        ("flow", "enc_kernel_sizes", [5, 4, 3, 3, 1], "odd numbers"),
        ("flow", "enc_res2net_scale", 3, "a divisor of enc_channels"),
        ("vocoder", "resblock_dilation_sizes", 5, "3 lists of whole numbers of at least 1"),
        ("vocoder", "resblock_dilation_sizes", [[1], [3]], "3 lists of whole numbers of at least 1"),
        ("vocoder", "resblock_kernel_sizes", [3, 7, 10], "odd numbers"),
        ("vocoder", "upsample_rates", [0, 3, 2, 2, 2, 2], "a list of whole numbers of at least 1"),
        ("vocoder", "upsample_kernel_sizes", [11, 7, 4, 4, 4], "one for each of upsample_rates"),
        ("vocoder", "upsample_initial_channel", 32, "1 to 5 rates"),
    ],
)
def test_values_that_are_refused(own: Path, table: str, key: str, value: Any, possible: str) -> None:
    """The error names the file, the key, the value and what is possible."""

    def change(raw: dict[str, Any]) -> None:
        for name in OF_TABLES[table]:
            raw = raw[name]
        raw[key] = value

    with pytest.raises(CheckpointError) as caught:
        edited(own, change)
    said = str(caught.value)
    assert said.startswith(str(own / "config.json")) and possible in said
    if key != "upsample_initial_channel":
        assert f"{key} = {value!r:.60} must be" in said, said


def test_both_tables_of_sound_have_one_mel(own: Path) -> None:
    with pytest.raises(CheckpointError, match="dit_config.mel_dim = 80 and bigvgan_config.mel_dim = 100"):
        edited(own, lambda raw: raw["token2wav_config"]["bigvgan_config"].update(mel_dim=100))


def test_another_model_is_named(own: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config.json: model_type = 'qwen3' is another .* 'qwen2_5_omni'"):
        edited(own, lambda raw: raw.update(model_type="qwen3"))


def test_no_settings_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="config.json is missing: expected at .* To fetch"):
        read_config(tmp_path)
    for content, message in (("{", r"config\.json"), ("[]", "must be a table"), ("null", "lacks everything")):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        with pytest.raises(CheckpointError, match=message):
            read_config(tmp_path)
