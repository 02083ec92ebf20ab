"""Loading: facts, parts that are left out, and what is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from legato.errors import CheckpointError, ConfigError, UnknownVoice, UnsupportedFeature
from legato.families import load as load_by_name
from legato.families.qwen2_5_omni import Choices, load, memory
from legato.protocols import LoadOptions, SpeechModel
from legato.types import ChatRequest, SpeechRequest

from .room import QUESTION, QUICK, Room, requests, submit


@pytest.fixture(scope="module")
def quick(checkpoint: Path) -> SpeechModel:
    return load(checkpoint, LoadOptions(ode_steps=2), QUICK)


def test_facts(quick: SpeechModel, checkpoint: Path) -> None:
    assert (quick.rates.samples_per_token, quick.rates.sample_hz) == (480, 24000)
    assert list(quick.voices) == ["Chelsie", "Ethan"] and quick.default_voice == "Chelsie"
    assert (quick.ramp.keep_blocks, quick.ramp.ahead_blocks) == ((2,), (1,))
    assert quick.flow.facts.ode_steps == 2 and quick.flow.facts.block_tokens == 12
    assert quick.vocoder.exact and quick.vocoder.reach.right == 34
    assert load(checkpoint, LoadOptions()).flow.facts.ode_steps == 36
    early = load(checkpoint, LoadOptions(exact_joins=False))
    assert not early.vocoder.exact and early.vocoder.reach.right == 20


def test_a_checkpoint_as_released_is_known_by_its_model_type(checkpoint: Path) -> None:
    assert load_by_name(checkpoint, LoadOptions(ode_steps=1)).family == "qwen2_5_omni"


def test_half_the_memory(checkpoint: Path) -> None:
    """Thinker, encoders and talker in bfloat16; flow and vocoder stay in float32."""
    model = load(checkpoint, LoadOptions(ode_steps=1, lm_dtype="bfloat16"), Choices(solver="euler", max_codes=13))
    assert model.writer is not None
    assert model.lm.kv_shape.dtype == model.writer.lm.kv_shape.dtype == torch.bfloat16
    heard = []
    for company in (0, 1):
        room = Room(model)
        for number, request in enumerate(requests()[: 1 + company]):
            submit(room, number, request)
        heard.append(room.run()[0])
    assert heard[0].error is None and len(heard[0].wave) == 480 * 13
    assert (heard[0].text, heard[0].wave.tobytes()) == (heard[1].text, heard[1].wave.tobytes())


# --- without a voice ---


def test_writing_only(checkpoint: Path, tmp_path: Path) -> None:
    """Neither the files of the voice nor its memory are needed."""
    folder = copied(checkpoint, tmp_path)
    for name in ("spk_dict.pt", *voice_shards(folder)):
        (folder / name).unlink()
    model = load(folder, LoadOptions(speech=False))
    room = Room(model)
    room.chat(0, ChatRequest(QUESTION, ("text",), max_tokens=8))
    assert len(room.run()[0].text) and not room.heard[0].pieces
    with pytest.raises(UnsupportedFeature, match="without its voice"):
        room.core.submit(1, SpeechRequest("Hello."))
    assert model.writer is not None
    with pytest.raises(UnsupportedFeature, match="without its voice"):
        model.writer.chat.prepare(ChatRequest(QUESTION))


def test_a_checkpoint_without_a_voice(checkpoint: Path, tmp_path: Path) -> None:
    folder = copied(checkpoint, tmp_path)
    change_config(folder, lambda raw: raw.update(enable_audio_output=False))
    assert load(folder, LoadOptions()).voices == {}


def copied(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def voice_shards(folder: Path) -> set[str]:
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    return {file for name, file in index.items() if not name.startswith("thinker.")}


def change_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "config.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


# --- what cannot be loaded ---


def test_missing_files_are_named(checkpoint: Path, tmp_path: Path) -> None:
    folder = copied(checkpoint, tmp_path)
    for name in ("spk_dict.pt", "tokenizer.json", *voice_shards(folder)):
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(CheckpointError, match=f"{name} is missing"):
            load(folder, LoadOptions())
        (folder / name).write_bytes(kept)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw["talker_config"].update(vocab_size=105), "expected"),
        (lambda raw: raw["token2wav_config"]["dit_config"].update(num_embeds=90), "embedding.weight is"),
        (lambda raw: raw["token2wav_config"]["dit_config"].update(head_dim=8), "heads"),
        (lambda raw: raw["token2wav_config"]["bigvgan_config"].update(upsample_initial_channel=128), "conv_pre"),
    ],
)
def test_settings_of_another_checkpoint(
    checkpoint: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    folder = copied(checkpoint, tmp_path)
    change_config(folder, change)
    with pytest.raises(CheckpointError, match=words):
        load(folder, LoadOptions())


def test_a_tensor_that_is_missing_is_named(checkpoint: Path, tmp_path: Path) -> None:
    folder = copied(checkpoint, tmp_path)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    lost = "token2wav.code2wav_dit_model.input_embed.proj.bias"
    file = folder / index["weight_map"].pop(lost)
    save_file({name: t for name, t in load_file(file).items() if name != lost}, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"input_embed\.proj\.bias"):
        load(folder, LoadOptions())


def test_too_little_memory_is_said_before_anything_is_read(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 2**20)
    with pytest.raises(CheckpointError, match=r"take 0\.0 GiB .* has 0\.0 GiB free"):
        load(checkpoint, LoadOptions())


def test_available_memory_is_a_figure() -> None:
    room = memory.available(torch.device("cpu"))
    assert room is not None and room > 2**20


def test_choices_that_cannot_be(checkpoint: Path) -> None:
    for choices in (Choices(solver="heun"), Choices(max_codes=0)):  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            load(checkpoint, LoadOptions(), choices)


def test_an_unknown_voice(quick: SpeechModel) -> None:
    room = Room(quick)
    with pytest.raises(UnknownVoice, match="Chelsie, Ethan"):
        room.chat(0, ChatRequest(QUESTION, voice="Cherry"))
    with pytest.raises(UnknownVoice, match="Chelsie, Ethan"):
        room.core.submit(0, SpeechRequest("Hello.", voice="Cherry"))
