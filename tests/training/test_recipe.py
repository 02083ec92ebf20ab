"""The recipe's scripts that need no training: durations out of an ONNX file, texts, settings, error rates."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from legato.errors import ConfigError
from legato.training.corpus import SAMPLE_HZ, Corpus, CorpusWriter, Spoken
from legato.training.settings import Recipe, read_recipe

RECIPE = Path(__file__).parents[2] / "recipes" / "piccolo"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(RECIPE))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(RECIPE))
    return module


def test_the_teacher_tells_its_durations() -> None:
    """They cover the wave: one number per phoneme, 25 ms each, to the teacher's own length."""
    import onnxruntime
    from hibari import Hibari

    durations = script("durations")
    model = durations.with_output(durations._hibari(), durations.TENSORS["hibari"])
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    teacher = Hibari()
    ids = teacher.ids(teacher.phonemize("Good morning.")[0])
    *_, told = session.run(None, {"ids": np.asarray([ids], np.int64), "speed": np.ones(1, np.float32)})
    seconds = len(teacher.from_ids(ids, rng=np.random.default_rng(0))) / teacher.sample_rate
    assert told.reshape(-1).shape == (len(ids),)
    assert float(told.sum()) * 0.025 == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize("damaged", [b"", b"no model", bytes([7 << 3 | 3])])
def test_what_is_no_model_is_refused(damaged: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        script("durations").with_output(damaged, "x")


@pytest.mark.parametrize("language", ["english", "mandarin", "mixed"])
def test_templates_fill_every_blank(language: str) -> None:
    lines = getattr(script("templates"), language)(500, random.Random(0))
    assert len(set(lines)) == len(lines) > 300
    assert not any("{" in line or "  " in line for line in lines)


def test_perturbed_speakers_say_the_same_at_another_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perturb, writer = script("perturb"), CorpusWriter(tmp_path / "in")
    tone = np.sin(2 * np.pi * 500 * np.arange(48_000) / SAMPLE_HZ).astype(np.float32)
    for speaker in ("a", "a", "b"):
        writer.add(Spoken("hm", "en", speaker, (0, 5, 6, 0), (10, 35, 30, 5), 0, 0), tone)
    monkeypatch.setattr(sys, "argv", ["", "--corpus", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    perturb.main()
    perturb.main()  # once more adds nothing
    corpus = Corpus([tmp_path / "out"])
    assert len(corpus) == 3 and len(corpus.speakers) == 2
    for index, spoken in enumerate(corpus.utterances):
        factor = float(spoken.speaker.split("@")[1])
        assert factor in perturb.FACTORS
        assert abs(sum(spoken.durations) - 80 / factor) <= 0.5
        wave = corpus.wave(index)[: int(48_000 / factor)]
        assert np.abs(np.fft.rfft(wave)).argmax() / len(wave) * SAMPLE_HZ == pytest.approx(500 * factor, abs=2)


def test_evaluation_sentences_are_left_out() -> None:
    texts = script("texts")
    sentence = (RECIPE / "sentences_en.txt").read_text(encoding="utf-8").splitlines()[0]
    assert texts._without_evaluation([sentence, "Another one."], RECIPE / "sentences_en.txt") == ["Another one."]


@pytest.mark.parametrize(("name", "count"), [("en", 50), ("zh", 50), ("mixed", 20)])
def test_evaluation_sentences_are_many_and_different(name: str, count: int) -> None:
    lines = (RECIPE / f"sentences_{name}.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(set(lines)) >= count


@pytest.mark.parametrize("name", ["recipe", "recipe_tiny", "recipe_gpu"])
def test_settings_files_are_read(name: str) -> None:
    """recipe.toml spells out what the trainers have by default."""
    assert (read_recipe(RECIPE / f"{name}.toml") == Recipe()) == (name == "recipe")


@pytest.mark.parametrize(
    ("text", "named"), [("[codek]\n", "codek"), ("[lm]\nspeed = 3\n", "speed"), ("[", "cannot be read")]
)
def test_settings_that_are_unknown_are_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=named):
        read_recipe(path)


def test_error_rate_counts_characters_and_words() -> None:
    listening = script("listening")
    assert listening.units("我买了20张Ticket。") == ["我", "买", "了", "二", "十", "张", "ticket"]
    assert listening.units("Your neighbour's harbour") == ["your", "neighbours", "harbor"]
    assert listening.units("Well-known cats, isn't it?") == ["well", "known", "cats", "isnt", "it"]
    assert listening.syllables("他说A话") == listening.syllables("她说A 话") == "ta1 shuo1 a hua4"
    said = ["我买了20张ticket。", "Twenty-one cats!", "他说话"]
    rate, misheard = listening.error_rate(said, ["我卖了20张ticket", "twenty one cat", "他说话"])
    assert rate == 2 / 13
    assert [row["edits"] for row in misheard] == [1, 1]
