"""What a request may ask of this family, from the door to the thread that computes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from legato.cli import app
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.engine import SpeechEngine
from legato.errors import EngineError, RequestError, UnknownVoice, UnsupportedFeature
from legato.families.glm_tts import load
from legato.protocols import LoadOptions, SpeechModel
from legato.types import SpeechRequest, Voice

from .tiny_frontend import speechlike
from .whole import build_whole

pytest.importorskip("wetext")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_whole(tmp_path_factory.mktemp("requests"))


@pytest.fixture(scope="module")
def recording(tree: Path) -> Path:
    path = tree.parent / "ada.wav"
    soundfile.write(path, speechlike(24000, 3.2)[0], 24000)
    return path


@pytest.fixture(scope="module")
def model(tree: Path) -> SpeechModel:
    return load(tree, LoadOptions(ode_steps=2))


@pytest.fixture
def engine(model: SpeechModel) -> Iterator[SpeechEngine]:
    with SpeechEngine(model, EngineConfig()) as engine:
        yield engine


# --- cloning ---


def test_cloning_runs_in_the_thread_that_computes(model: SpeechModel, recording: Path) -> None:
    threads: list[str] = []
    assert model.cloner is not None
    clone = model.cloner.clone

    class Watched:
        def clone(self, *arguments: object) -> Voice:
            threads.append(threading.current_thread().name)
            return clone(*arguments)  # type: ignore[arg-type]

    with SpeechEngine(replace(model, cloner=Watched()), EngineConfig()) as engine:
        once = engine.generate("the day", prompt_audio=recording, prompt_text="good morning")
        voice = engine.clone(recording, "good morning")
        kept = engine.generate("the day", voice=voice)
        later = asyncio.run(engine.agenerate("the day", prompt_audio=recording, prompt_text="good morning"))
    assert threads == ["legato-engine"] * 3
    assert np.array_equal(once.samples, kept.samples) and np.array_equal(once.samples, later.samples)


def test_what_cloning_raises_reaches_the_caller_and_nobody_else(engine: SpeechEngine, recording: Path) -> None:
    with pytest.raises(RequestError, match="word for word"):
        engine.generate("the day", prompt_audio=recording)
    with pytest.raises(RequestError, match="needs prompt_audio"):
        engine.generate("the day", prompt_text="good morning")
    assert len(engine.generate("the day", prompt_audio=recording, prompt_text="good morning").samples)


def test_cloning_ends_with_the_engine(model: SpeechModel, recording: Path) -> None:
    """One that waits when the engine breaks, and one that comes too late."""
    engine = SpeechEngine(model, EngineConfig())
    begun, go_on = threading.Event(), threading.Event()

    def breaks() -> None:
        begun.set()
        go_on.wait()
        raise ZeroDivisionError

    engine._command(breaks)
    begun.wait()
    errors: list[BaseException] = []
    waiting = threading.Thread(target=lambda: errors.append(caught(engine, recording)))
    waiting.start()
    while not engine._jobs:
        threading.Event().wait(0.001)
    go_on.set()
    waiting.join()
    assert isinstance(errors[0], EngineError) and "the engine broke" in str(errors[0])
    assert isinstance(caught(engine, recording), EngineError)
    engine.close()


def caught(engine: SpeechEngine, recording: Path) -> BaseException:
    with pytest.raises(EngineError) as error:
        engine.clone(recording, "good morning")
    return error.value


# --- voices ---


def test_no_voice_at_all_says_how_to_add_one(engine: SpeechEngine) -> None:
    with pytest.raises(UnknownVoice, match="^this model has no stored voice: `legato voices add NAME"):
        engine.generate("the day")
    with pytest.raises(UnknownVoice, match="^unknown voice 'bo'; this model has no stored voice"):
        engine.generate("the day", voice="bo")


def test_foreign_voices_are_refused_at_the_door(tree: Path, engine: SpeechEngine, recording: Path) -> None:
    good = engine.clone(recording, "good morning")
    with pytest.raises(RequestError, match="heart is not a voice of GLM-TTS"):
        engine.submit(SpeechRequest("the day", Voice("heart", facts=None)))
    with pytest.raises(RequestError, match="codec ids up to 64, but this model has 64"):
        engine.submit(SpeechRequest("the day", replace(good, facts=replace(good.facts, speech_ids=(64,)))))
    with pytest.raises(RequestError, match="made for 32000 samples per second, and this model speaks at 24000"):
        engine.submit(SpeechRequest("the day", replace(good, facts=replace(good.facts, mel_sample_hz=32000))))


def test_model_without_cloning_takes_its_own_voices_only(piccolo: SpeechModel) -> None:
    core = EngineCore(replace(piccolo, cloner=None), EngineConfig(), lambda *_: None, lambda *_: None)
    own = next(iter(piccolo.voices.values()))
    assert core.door.check(SpeechRequest("Hello.", own)) is own
    with pytest.raises(UnsupportedFeature, match="piccolo speaks with its own voices only, not with 'ada'"):
        core.door.check(SpeechRequest("Hello.", Voice("ada")))


def test_prompt_text_of_a_voice_is_computed_once(model: SpeechModel, recording: Path) -> None:
    """Its whole pages are shared by what is spoken with it, and by that only."""
    said = "good morning my good world, " * 4
    assert model.cloner is not None
    wave = speechlike(16000, 3.2)
    ada, bo = (model.cloner.clone(name, wave, 16000, text) for name, text in (("ada", said), ("bo", "good")))
    assert len(ada.facts.text_ids) >= 32

    def pages(*voices: Voice) -> int:
        """Pages in use when every prompt is in, one in each step."""
        config = EngineConfig(prefill_tokens_beside_decodes=512)
        core = EngineCore(model, config, lambda *_: None, lambda *_: None)
        for number, voice in enumerate(voices):
            core.submit(number, SpeechRequest("the day", voice))
            core.step()
        return core.lm.pool.used

    whole = len(ada.facts.text_ids) // EngineConfig().kv_page_size
    assert pages(ada, ada) == 2 * pages(ada) - whole
    assert pages(ada, bo) == pages(ada) + pages(bo)


# --- pronunciation ---


def test_phonemes_by_request(model: SpeechModel, engine: SpeechEngine, recording: Path) -> None:
    pytest.importorskip("jieba")
    voice = engine.clone(recording, "good morning")
    text = "弦乐"
    by_default, as_text, as_phonemes = (
        engine.generate(text, voice=voice, pronunciation=mode).samples for mode in (None, "text", "phonemes")
    )
    assert np.array_equal(by_default, as_text)
    assert not np.array_equal(as_text, as_phonemes)
    with pytest.raises(UnsupportedFeature, match="pronunciation 'ipa': glm-tts has only 'text', 'phonemes'"):
        engine.generate(text, voice=voice, pronunciation="ipa")


def test_phonemes_on_the_command_line(tree: Path, recording: Path, tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    where = ["--model", str(tree), "--voices-dir", str(tmp_path)]
    (tmp_path / "legato.toml").write_text(f'[engine]\nvoices_dir = "{tmp_path}"\n')
    runner = CliRunner()
    added = runner.invoke(app, ["voices", "add", "ada", str(recording), "--text", "good morning", *where])
    assert added.exit_code == 0, added.output
    assert "ada (default)" in runner.invoke(app, ["voices", *where]).output
    sounds = []
    for name, more in (("text", []), ("phonemes", ["--phonemes"])):
        output = tmp_path / f"{name}.wav"
        options = ["--model", str(tree), "--config", str(tmp_path / "legato.toml"), "-o", str(output), *more]
        said = runner.invoke(app, ["say", "弦乐", *options])
        assert said.exit_code == 0, said.output
        sounds.append(output.read_bytes())
    assert sounds[0] != sounds[1]


def test_phonemes_are_refused_where_there_are_none(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["say", "Hello.", "--phonemes", "-o", str(tmp_path / "out.wav")])
    assert said.exit_code == 1
    assert "pronunciation 'phonemes': piccolo has only 'text'" in said.output


def test_bfloat16_on_a_cpu_makes_no_promise_and_speaks(tree: Path, recording: Path) -> None:
    halved = load(tree, LoadOptions(ode_steps=2, lm_dtype="bfloat16"))
    assert (halved.lm.row_tile, halved.batch_invariant) == (0, False)
    with SpeechEngine(halved, EngineConfig()) as engine:
        assert len(engine.generate("the day", voice=engine.clone(recording, "good morning")).samples)
