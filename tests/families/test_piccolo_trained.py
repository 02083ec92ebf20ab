"""Checkpoints as the recipe exports them (format 2): two languages, stored voices, cloning, through the whole engine.

The weights are random: what is tested is who conditions on what, and that streaming and company change nothing.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from legato.audio_file import read_audio
from legato.cli import app
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.errors import CheckpointError, ConfigError, RequestError, UnsupportedFeature
from legato.families import load
from legato.families.piccolo import mel_spec
from legato.families.piccolo.cloner import PiccoloCloner
from legato.families.piccolo.codec import SpeechTokenizer
from legato.families.piccolo.config import FIRST_CODE, PiccoloConfig, read_config
from legato.families.piccolo.flow import PiccoloFlow
from legato.families.piccolo.lm import PiccoloLM
from legato.families.piccolo.voices import PiccoloVoice, save_voice
from legato.nn.early_vocos import EarlyVocos
from legato.protocols import LoadOptions, SpeechModel
from legato.types import AudioChunk, SpeechRequest, Utterance, UtteranceId, Voice

HEAD_SEED = 1
"""Of a random head with which utterances are short, and none is empty."""

SIZES = Path(__file__).parents[2] / "recipes" / "piccolo" / "sizes_tiny.json"


def write_checkpoint(folder: Path) -> PiccoloConfig:
    """Random nets of the miniature's sizes, and two voices."""
    torch.manual_seed(0)
    shutil.copy(SIZES, folder / "config.json")
    config = read_config(folder / "config.json")
    assert config.codec is not None
    nets = {
        "lm": PiccoloLM(config),
        "flow": PiccoloFlow(config),
        "vocoder": EarlyVocos(config.vocoder),  # type: ignore[arg-type]
        "codec": SpeechTokenizer(config.codec),
    }
    for name, net in nets.items():
        if isinstance(net, PiccoloLM):
            torch.manual_seed(HEAD_SEED)
            torch.nn.init.normal_(net.head.weight, 0.0, 0.3)
            net.head.weight.data[:FIRST_CODE] *= 10  # about every other step ends a phoneme, so utterances are short
        save_file(net.state_dict(), folder / f"{name}.safetensors")
    save_file({"ptab": torch.zeros(180, config.codes)}, folder / "phone_table.safetensors")
    cloner = PiccoloCloner(nets["codec"].eval(), nets["flow"].eval(), config, mel_spec(config))  # type: ignore[arg-type]
    for seed, name in enumerate(("anna", "ben")):
        mel = torch.randn(120, 80, generator=torch.Generator().manual_seed(seed)) * 2 - 5
        save_voice(folder / "voices", Voice(name, "noise", ("en",), cloner.facts(mel)))
    return config


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    write_checkpoint(folder)
    return folder


@pytest.fixture
def copied(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> SpeechModel:
    return load(checkpoint, LoadOptions())


def speak(model: SpeechModel, *requests: SpeechRequest, config: EngineConfig | None = None) -> list[np.ndarray]:
    """Samples of requests spoken together."""
    chunks: dict[int, list[np.ndarray]] = {i: [] for i in range(len(requests))}

    def chunk(request: int, piece: AudioChunk) -> None:
        chunks[request].append(piece.pcm)

    def fail(request: int, error: Exception) -> None:
        raise error

    core = EngineCore(model, config or EngineConfig(), chunk, fail)
    for number, request in enumerate(requests):
        core.submit(number, request)
    while core.step():
        pass
    return [np.concatenate(pieces) for pieces in chunks.values()]


def test_facts(model: SpeechModel) -> None:
    assert list(model.voices) == ["anna", "ben"]
    assert model.languages == ("en", "zh")
    assert model.nets["vocoder"] == "early_vocos"
    assert model.cloner is not None
    assert (model.vocoder.reach.right, model.vocoder.exact) == (6, True)


def test_both_languages_and_both_together(model: SpeechModel) -> None:
    for text in ("Hi.", "好。", "我app。"):
        (wave,) = speak(model, SpeechRequest(text, seed=3))
        assert len(wave) > 2400
        assert np.isfinite(wave).all()


def test_prompt_tells_voice_language_and_text(model: SpeechModel) -> None:
    config: PiccoloConfig = model.frontend.config  # type: ignore[attr-defined]
    voice = model.voices["anna"]
    prompts = {}
    for text in ("Hi.", "好。"):
        prompt = model.frontend.prompt(Utterance(UtteranceId(0, 0), text, voice, 0))
        assert prompt is not None
        codes = tuple(config.first_code_id + code for code in voice.facts.codes)
        assert prompt.token_ids[: len(codes)] == codes
        assert prompt.shared_tokens == len(codes) == config.prompt_codes
        prompts[text] = prompt.token_ids[len(codes)]
    assert prompts == {"Hi.": config.languages["en"], "好。": config.languages["zh"]}


def test_voices_differ_and_a_voice_is_itself(model: SpeechModel) -> None:
    anna, again, ben = (speak(model, SpeechRequest("Hi.", v, seed=1))[0] for v in ("anna", "anna", "ben"))
    assert np.array_equal(anna, again)
    assert len(anna) != len(ben) or not np.allclose(anna, ben, atol=1e-3)


def test_the_flow_continues_the_reference(model: SpeechModel) -> None:
    """The same codes and noise after another past are another mel; who speaks matters by itself, too."""
    voice = model.voices["anna"]
    others = [
        replace(voice.facts, mel=voice.facts.mel + 1.0),
        replace(voice.facts, speaker=-voice.facts.speaker),
        replace(voice.facts, mel_codes=voice.facts.mel_codes[::-1]),
    ]
    waves = [speak(model, SpeechRequest("Hi.", Voice("x", "", ("en",), f), seed=1))[0] for f in others]
    (own,) = speak(model, SpeechRequest("Hi.", "anna", seed=1))
    for wave in waves:
        assert len(wave) == len(own)
        assert not np.allclose(wave, own, atol=1e-5)


def test_company_changes_nothing(model: SpeechModel) -> None:
    requests = [SpeechRequest("Hi.", "anna", seed=1), SpeechRequest("好。", "ben", seed=2)]
    together = speak(model, *requests)
    for request, wave in zip(requests, together, strict=True):
        assert np.array_equal(speak(model, request)[0], wave)


def test_a_clone_speaks(model: SpeechModel) -> None:
    assert model.cloner is not None
    assert model.check_voice is not None
    wave = np.random.default_rng(0).normal(0, 0.1, (2, 4 * 16_000)).astype(np.float32)
    voice = model.cloner.clone("me", wave, 16_000, None)
    model.check_voice(voice)
    assert voice.description == "cloned from 4.0 s of speech"
    assert len(speak(model, SpeechRequest("Hi.", voice, seed=1))[0]) > 2400


def test_a_cloned_voice_is_its_file(model: SpeechModel, copied: Path) -> None:
    voice = model.voices["anna"]
    save_voice(copied / "more", replace(voice, name="copy"))
    loaded = load(copied, LoadOptions(voices_dir=copied / "more"))
    assert list(loaded.voices) == ["anna", "ben", "copy"]
    waves = [speak(loaded, SpeechRequest("Hi.", name, seed=1))[0] for name in ("anna", "copy")]
    assert np.array_equal(*waves)


@pytest.mark.parametrize(
    ("wave", "measured"),
    [
        (np.zeros((1, 48_000), np.float32), "silent"),
        (np.full((1, 48_000), np.nan, np.float32), "silent"),
        (np.full((1, 24_000), 0.3, np.float32), "1.0 s"),
        (np.zeros((1, 0), np.float32), "silent"),
    ],
)
def test_audio_that_cannot_serve_is_refused(model: SpeechModel, wave: np.ndarray, measured: str) -> None:
    assert model.cloner is not None
    with pytest.raises(RequestError, match=measured):
        model.cloner.clone("me", wave, 24_000, None)


def test_silence_around_the_speech_is_cut(model: SpeechModel) -> None:
    assert isinstance(model.cloner, PiccoloCloner)
    speech = np.random.default_rng(0).normal(0, 0.1, 72_000).astype(np.float32)
    padded = np.concatenate([np.zeros(48_000), speech, np.zeros(24_000)]).astype(np.float32)
    voices = [model.cloner.clone("me", wave[None], 24_000, None) for wave in (speech, padded)]
    facts: list[PiccoloVoice] = [voice.facts for voice in voices]
    assert facts[0].codes == facts[1].codes
    assert torch.equal(facts[0].mel, facts[1].mel)


def test_a_voice_of_another_checkpoint_is_refused(model: SpeechModel) -> None:
    assert model.check_voice is not None
    facts = model.voices["anna"].facts
    others = (
        replace(facts, speaker=torch.zeros(3)),
        replace(facts, mel=facts.mel[:16]),
        replace(facts, codes=(64,)),
        replace(facts, codes=(1,) * 26),
        None,
    )
    for other in others:
        with pytest.raises(RequestError, match="another checkpoint"):
            model.check_voice(Voice("x", "", (), other))


@pytest.mark.parametrize("name", ["../up", "a/b", "", "x" * 65, "名"])
def test_a_voice_is_never_a_path(model: SpeechModel, tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="cannot name a voice"):
        save_voice(tmp_path / "voices", replace(model.voices["anna"], name=name))
    assert not (tmp_path / "voices").exists()


def test_a_checkpoint_without_voices_is_refused(copied: Path) -> None:
    shutil.rmtree(copied / "voices")
    with pytest.raises(CheckpointError, match="voices hold no voice"):
        load(copied, LoadOptions())


def test_a_damaged_voice_is_named(copied: Path) -> None:
    path = copied / "voices" / "ben.safetensors"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(CheckpointError, match=r"ben\.safetensors"):
        load(copied, LoadOptions())


def test_a_voice_with_values_that_are_not_finite_is_refused(copied: Path) -> None:
    path = copied / "voices" / "ben.safetensors"
    tensors = load_file(path)
    tensors["speaker"][0] = torch.nan
    about = {"format": "legato-piccolo-voice-2", "description": "", "languages": "[]"}
    save_file(tensors, path, metadata=about)
    with pytest.raises(CheckpointError, match="finite"):
        load(copied, LoadOptions())


def test_missing_codec_is_named(copied: Path) -> None:
    (copied / "codec.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"codec\.safetensors"):
        load(copied, LoadOptions())


def test_unknown_format_is_named(copied: Path) -> None:
    raw = json.loads((copied / "config.json").read_text(encoding="utf-8"))
    (copied / "config.json").write_text(json.dumps(raw | {"version": 3}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="format 3"):
        load(copied, LoadOptions())


def test_recomputing_the_past_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="recompute_past"):
        load(checkpoint, LoadOptions(recompute_past=True))


def test_other_scripts_are_refused(model: SpeechModel) -> None:
    model.frontend.check("你好, Café！ 3 °C")
    with pytest.raises(UnsupportedFeature, match="お"):
        model.frontend.check("おはよう and か")


# --- voices kept with the checkpoint ---


def voices(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["voices", *arguments])
    return result.exit_code, result.output


def test_voices_are_added_from_a_recording_and_removed(copied: Path, tmp_path: Path) -> None:
    wave = np.random.default_rng(0).normal(0, 0.1, 4 * 24000).astype(np.float32)
    soundfile.write(tmp_path / "carl.wav", wave, 24000)
    where = ["--model", str(copied)]
    code, said = voices("add", "carl", str(tmp_path / "carl.wav"), *where)
    assert code == 0 and "carl.safetensors" in said
    loaded = load(copied, LoadOptions())
    assert list(loaded.voices) == ["anna", "ben", "carl"]
    assert loaded.cloner is not None
    told: PiccoloVoice = loaded.cloner.clone("carl", *read_audio(tmp_path / "carl.wav"), None).facts
    kept: PiccoloVoice = loaded.voices["carl"].facts
    assert kept.codes == told.codes and torch.equal(kept.speaker, told.speaker)
    code, said = voices("add", "carl", str(tmp_path / "carl.wav"), *where)
    assert code == 1 and "has a voice 'carl' already" in said
    assert voices("remove", "carl", *where)[0] == 0
    assert list(load(copied, LoadOptions()).voices) == ["anna", "ben"]


def test_say_speaks_with_a_kept_voice_and_like_a_recording(checkpoint: Path, tmp_path: Path) -> None:
    wave = np.random.default_rng(0).normal(0, 0.1, 4 * 24000).astype(np.float32)
    soundfile.write(tmp_path / "carl.wav", wave, 24000)
    kept, model = ["--voices-dir", str(tmp_path / "kept")], ["--model", str(checkpoint)]
    assert voices("add", "carl", str(tmp_path / "carl.wav"), *kept, *model)[0] == 0
    spoken = []
    for number, who in enumerate((["--voice", "carl", *kept], ["--prompt-audio", str(tmp_path / "carl.wav")])):
        path = tmp_path / f"{number}.wav"
        result = CliRunner().invoke(app, ["say", "Hello.", "-o", str(path), *who, *model])
        assert result.exit_code == 0, result.output
        spoken.append(soundfile.read(path)[0])
    assert len(spoken[0]) == len(spoken[1])
    both = ["--voice", "anna", "--prompt-audio", str(tmp_path / "carl.wav")]
    result = CliRunner().invoke(app, ["say", "Hello.", *both, *model])
    assert result.exit_code == 1 and "give one of them" in result.output


def test_voices_that_cannot_be_kept_are_refused(copied: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "short.wav", np.full(9000, 0.1, np.float32), 24000)
    code, said = voices("add", "x", str(tmp_path / "short.wav"), "--model", str(copied))
    assert code == 1 and "at least 1.5 s" in said
    code, said = voices("add", "x", str(tmp_path / "short.wav"), "--model", str(copied), "--sample-rate", "16000")
    assert code == 1 and "speaks at 24000" in said
    code, said = voices("add", "x", str(tmp_path / "short.wav"))
    assert code == 1 and "--voices-dir" in said


def test_pronunciations_are_checked_at_the_door(model: SpeechModel) -> None:
    model.frontend.check("I like {Qatar|/kˈʌtɚ/} and {行|hang2}")
    for text, what in (("{a|/§/}", "'§' is no phoneme"), ("{行|hang9}", "pinyin|one syllable")):
        with pytest.raises(RequestError, match=what):
            model.frontend.check(text)
