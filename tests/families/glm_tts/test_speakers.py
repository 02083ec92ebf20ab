"""Speakers of a fine-tuned model: every id as the reference draws it, and as voices of the assembled model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from legato.config import EngineConfig
from legato.engine import SpeechEngine
from legato.errors import CheckpointError
from legato.families.glm_tts import Choices, load
from legato.families.glm_tts.lm import RAS, PromptIds, speech_prompt
from legato.families.glm_tts.speakers import read_speakers
from legato.families.glm_tts.tokenizer import SpecialIds
from legato.families.glm_tts.voices import save_voice
from legato.families.glm_tts.weights import load_lm
from legato.protocols import LoadOptions
from legato.types import UtteranceId

from . import tiny_frontend
from .glm_inputs import LM_CASES
from .test_lm import speak, stage
from .whole import build_whole

pytest.importorskip("yaml")
DATA = Path(__file__).parent / "data"
SPEAKERS = DATA / "spk_prompt_dict.yaml"


def test_tokens_equal_reference(checkpoint: Path, special: SpecialIds) -> None:
    """With and without a recording after the speaker's ids."""
    lm = load_lm(checkpoint / "llm")
    lm.freeze(4)
    speakers = read_speakers(SPEAKERS, vocabulary=512)
    golden = load_file(DATA / "sft.safetensors")
    assert len(golden) == 16
    for name, wanted in golden.items():
        case, speaker, seed = name.split(".")
        ids = PromptIds(*LM_CASES[int(case)], speaker_ids=speakers[speaker])
        prompt = speech_prompt(UtteranceId(0, 0), ids, special, int(seed), RAS, audio_only=False)
        assert speak(stage(lm), [prompt]) == [wanted.tolist()]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("wetext")
    return build_whole(tmp_path_factory.mktemp("tuned"))


def test_speakers_are_voices_where_the_weights_bring_them(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "ckpt"
    shutil.copytree(tree, copy)
    assert load(copy, LoadOptions()).voices == {}
    shutil.copy(SPEAKERS, copy / "llm")
    model = load(copy, LoadOptions(ode_steps=2))
    assert list(model.voices) == ["unknown", "tongtong", "xiaochen", "chuichui"]
    with SpeechEngine(model, EngineConfig()) as engine:
        one, again, other = (engine.generate("the day", voice=name) for name in ("tongtong", "tongtong", "xiaochen"))
    assert len(one.samples) and (one.samples == again.samples).all()
    assert one.samples.shape != other.samples.shape or (one.samples != other.samples).any()


def test_speaker_follows_the_stored_voice_of_its_name(tree: Path, tmp_path: Path) -> None:
    plain = load(tree, LoadOptions())
    assert plain.cloner is not None
    save_voice(tmp_path, plain.cloner.clone("tongtong", tiny_frontend.speechlike(16000, 3.2), 16000, "good"))
    model = load(tree, LoadOptions(voices_dir=tmp_path), Choices(speakers=SPEAKERS))
    facts = model.voices["tongtong"].facts
    assert facts.speaker_ids == (278, 135, 42, 116, 93, 116, 93, 255)
    assert facts.text == "good" and len(facts.mel) and torch.any(facts.speaker != 0)
    assert model.voices["unknown"].facts.text_ids == ()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1, 2]", "is not a table of speakers"),
        ("{}", "is not a table of speakers"),
        ('{"ann": [1, 512]}', "the ids of 'ann' must be whole numbers below 512"),
        ('{"ann": [true]}', "the ids of 'ann' must be"),
        ('{"ann": "12"}', "the ids of 'ann' must be"),
        ('{"ann": [1', "is not YAML"),
    ],
)
def test_bad_table_is_refused(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "spk_prompt_dict.yaml"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=says):
        read_speakers(path, 512)


def test_missing_table_that_was_asked_for_is_named(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="none.yaml is missing"):
        load(tree, LoadOptions(), Choices(speakers=tmp_path / "none.yaml"))
