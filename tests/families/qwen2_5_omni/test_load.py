"""The whole model through the engine's core: equal to the reference, the same in company, and what cannot be loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from legato.config import EngineConfig
from legato.core import EngineCore
from legato.errors import CheckpointError, ConfigError, PromptTooLong, SpeechError, UnknownVoice, UnsupportedFeature
from legato.families import load as load_by_name
from legato.families.qwen2_5_omni import Choices, load, memory
from legato.families.qwen2_5_omni.frontend import READ_ALOUD, ReadAloud
from legato.protocols import LoadOptions, SpeechModel
from legato.types import (
    AudioChunk,
    ChatRequest,
    Message,
    Part,
    Sampling,
    SpeechRequest,
    TextDelta,
    Utterance,
    UtteranceId,
)

from .conftest import DATA

GOLDEN = load_file(DATA / "whole.safetensors")
QUESTION = (Message("user", (Part("text", "Hi, what is up?"),)),)
QUICK = Choices(solver="euler", max_codes=40)


@dataclass
class Heard:
    """What came of one request."""

    text: str = ""
    pieces: list[np.ndarray] = field(default_factory=list)
    error: SpeechError | None = None
    final: bool = False

    @property
    def wave(self) -> np.ndarray:
        return np.concatenate(self.pieces) if self.pieces else np.zeros(0, np.float32)


class Room:
    """A core and everything that left it."""

    def __init__(self, model: SpeechModel, **settings: Any) -> None:
        self.model = model
        self.heard: dict[int, Heard] = {}
        config = EngineConfig(hold_first_sound=False, kv_memory_mb=4, writer_kv_memory_mb=4, **settings)
        self.core = EngineCore(model, config, self._take, self._fail)

    def _take(self, number: int, piece: AudioChunk | TextDelta) -> None:
        one = self.heard.setdefault(number, Heard())
        if isinstance(piece, TextDelta):
            one.text += piece.text
        else:
            assert piece.start_sample == sum(map(len, one.pieces))
            one.pieces.append(piece.pcm)
        one.final = one.final or piece.final

    def _fail(self, number: int, error: SpeechError) -> None:
        self.heard.setdefault(number, Heard()).error = error

    def chat(self, number: int, request: ChatRequest) -> None:
        assert self.model.writer is not None
        self.core.door.check_chat(request)
        self.core.submit_chat(number, request, self.model.writer.chat.prepare(request))

    def run(self) -> dict[int, Heard]:
        while self.core.step():
            pass
        return self.heard


@pytest.fixture(scope="module")
def quick(checkpoint: Path) -> SpeechModel:
    return load(checkpoint, LoadOptions(ode_steps=2), QUICK)


# --- the whole ---


def test_a_reply_is_the_references(checkpoint: Path) -> None:
    """Text, codes and wave, when one window takes the whole reply: the reference is one call at the end."""
    model = load(checkpoint, LoadOptions(), Choices(max_codes=24))
    room = Room(model, ramp_blocks=(100,), look_ahead_blocks=(0,))
    room.chat(0, ChatRequest(QUESTION, voice="Ethan", seed=7, max_tokens=8))
    heard = room.run()[0]
    ids = GOLDEN["reply"].tolist()
    assert model.writer is not None
    assert heard.final and heard.text == b"".join(map(model.writer.chat.tokenizer.bytes_of, ids)).decode(  # type: ignore[attr-defined]
        errors="replace"
    )
    np.testing.assert_allclose(heard.wave, GOLDEN["wave"].numpy(), rtol=0, atol=1e-4)


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


def requests() -> list[ChatRequest | SpeechRequest]:
    sound = np.random.default_rng(3).standard_normal(16000 * 3).astype(np.float32) * 0.1
    heard = (Message("user", (Part("audio", sound, 16000), Part("text", "What is this?"))),)
    return [
        ChatRequest(QUESTION, voice="Ethan", seed=7, max_tokens=8),
        ChatRequest(heard, voice="Chelsie", seed=8, max_tokens=12),
        SpeechRequest("Read me.", voice="Ethan", seed=9),
        ChatRequest(heard, modalities=("text",), seed=10, max_tokens=20),
        ChatRequest(QUESTION, voice="Chelsie", seed=11, max_tokens=1),
    ]


def submit(room: Room, number: int, request: ChatRequest | SpeechRequest) -> None:
    if isinstance(request, ChatRequest):
        room.chat(number, request)
    else:
        room.core.submit(number, request)


def test_company_changes_nothing(quick: SpeechModel) -> None:
    """Chats, a reading and a reply in text only, side by side, one of them cancelled midway: as alone."""
    together = Room(quick)
    for number, request in enumerate(requests()):
        submit(together, number, request)
    submit(together, 99, requests()[1])
    for _ in range(30):
        together.core.step()
    together.core.cancel(99)
    heard = together.run()
    for number, request in enumerate(requests()):
        alone = Room(quick)
        submit(alone, number, request)
        one = alone.run()[number]
        assert one.final and one.error is None and heard[number].final
        assert heard[number].text == one.text
        assert np.array_equal(heard[number].wave, one.wave)
        assert len(one.wave) % 480 == 0
    assert [len(heard[n].wave) > 0 for n in range(5)] == [True, True, True, False, False]
    assert heard[2].text == "" and heard[3].text


def test_without_the_cache_the_same_is_said(quick: SpeechModel) -> None:
    for request in (requests()[0], requests()[2]):
        heard = []
        for use_cache in (True, False):
            room = Room(quick)
            submit(room, 0, replace(request, use_cache=use_cache))
            heard.append(room.run()[0])
        assert heard[0].text == heard[1].text and len(heard[0].wave)
        assert np.array_equal(heard[0].wave, heard[1].wave)


def test_a_way_of_drawing_it_does_not_have(quick: SpeechModel) -> None:
    room = Room(quick)
    room.chat(0, ChatRequest(QUESTION, speech_sampling=Sampling(ras_window=10)))
    assert isinstance(room.run()[0].error, UnsupportedFeature)


def test_nothing_is_held_when_all_have_ended(quick: SpeechModel) -> None:
    room = Room(quick)
    for number, request in enumerate(requests()):
        submit(room, number, request)
    for _ in range(40):
        room.core.step()
    for number in range(5):
        room.core.cancel(number)
    assert room.core.replies is not None
    for lm in (room.core.lm, room.core.replies.lm):
        lm.pool.forget_prefixes()
        assert not len(lm) and not lm.pool.used
    assert not len(room.core.flow) and not room.core.vocoder.ready() and not len(room.core.replies.media)


# --- reading aloud ---


def test_the_prompt_of_a_reading(quick: SpeechModel) -> None:
    frontend = quick.frontend
    assert isinstance(frontend, ReadAloud)
    voice = quick.voices["Ethan"]
    prompt = frontend.prompt(Utterance(UtteranceId(0, 0), " Hello, you! ", voice, 3))
    assert prompt is not None and prompt.source is not None and prompt.relay is None
    written = b"".join(map(frontend.tokenizer.bytes_of, prompt.source.token_ids)).decode()
    assert written.endswith(f"user\n{READ_ALOUD}Hello, you!\nassistant\nHello, you!")
    assert prompt.source.relay is not None
    assert prompt.max_positions < prompt.source.max_positions + 2 + QUICK.max_codes
    assert frontend.prompt(Utterance(UtteranceId(0, 0), " \n", voice, 3)) is None


def test_a_reading_too_long_for_the_model(quick: SpeechModel) -> None:
    frontend = quick.frontend
    assert isinstance(frontend, ReadAloud)
    short = ReadAloud(replace(frontend.config, context=200), frontend.tokenizer, frontend.speech)
    with pytest.raises(PromptTooLong, match="this model has 200"):
        short.prompt(Utterance(UtteranceId(0, 0), "word " * 50, quick.voices["Ethan"], 3))


# --- without a voice ---


def test_writing_only(checkpoint: Path, tmp_path: Path) -> None:
    """Neither the files of the voice nor its memory are needed."""
    folder = copied(checkpoint, tmp_path)
    for name in ("spk_dict.pt", *voice_shards(folder)):
        (folder / name).unlink()
    model = load(folder, LoadOptions(), Choices(speech=False))
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
