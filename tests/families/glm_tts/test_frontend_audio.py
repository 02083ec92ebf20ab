"""Reference audio: measured, refused or warned about with the figure; voices made, stored and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import save_file

from legato.audio_file import read_audio
from legato.errors import CheckpointError, RequestError, UnknownVoice
from legato.families.glm_tts.cloner import GlmCloner
from legato.families.glm_tts.prompt_audio import check, measure
from legato.families.glm_tts.speaker import SpeakerNet
from legato.families.glm_tts.speech_tokenizer import read_speech_tokenizer
from legato.families.glm_tts.voices import (
    GlmVoice,
    find_voice,
    read_voices,
    save_voice,
)
from legato.stored_voices import remove_voice
from legato.types import Voice

from .tiny_frontend import speechlike, write_speaker_net, write_speech_tokenizer

RATE = 24000
NOISE = np.random.RandomState(0).standard_normal((1, 4 * RATE)).astype(np.float32) * 0.06

# --- measuring ---


def test_good_reference_has_no_warnings() -> None:
    found, warnings = check(speechlike(RATE, 4.0), RATE)
    assert warnings == ()
    assert found.seconds == 4.0
    assert found.clipped_share == 0
    assert 15 < found.snr_db < 60


def test_snr_estimate_follows_the_noise() -> None:
    clean = speechlike(RATE, 6.0)
    random = np.random.RandomState(0)
    levels = [0.001, 0.01, 0.03, 0.1]
    found = [measure(clean + (random.standard_normal(clean.shape) * n).astype(np.float32), RATE) for n in levels]
    estimates = [each.snr_db for each in found]
    assert estimates == sorted(estimates, reverse=True)
    quiet = clean[0, np.abs(clean[0]) > 0]
    for level, estimate in zip(levels[1:], estimates[1:], strict=True):
        truth = 10 * np.log10(float(np.square(quiet).mean()) / level**2)
        assert abs(estimate - truth) < 6, (level, estimate, truth)


def test_single_full_scale_peaks_are_not_clipping() -> None:
    wave = speechlike(RATE, 4.0)
    wave[0, 1000:90000:100] = 1.0
    assert measure(wave, RATE).clipped_share == 0
    wave[0, 50000:50010] = -1.0
    assert measure(wave, RATE).clipped_share == pytest.approx(10 / wave.shape[1])


@pytest.mark.parametrize(
    ("wave", "rate", "said"),
    [
        (speechlike(RATE, 0.3), RATE, r"it is 0\.30 s long; give at least 1 s, better 3 to 10 s"),
        (speechlike(8000, 31.0), 8000, r"it is 31\.0 s long; cut it to at most 30 s"),
        (np.zeros((1, 3 * RATE), np.float32), RATE, r"silent \(peak -180 dBFS\)"),
        (speechlike(RATE, 4.0) * np.float32(1e-3), RATE, "silent"),
        (speechlike(4000, 4.0), 4000, "sample rate is 4000 Hz; give one from 8000 to 192000"),
        (speechlike(RATE, 4.0) * np.float32(np.nan), RATE, "not numbers"),
        (np.zeros((1, 0), np.float32), RATE, r"\[1, 0\]"),
        (np.zeros((12, RATE), np.float32), RATE, "channels ≤ 8"),
        (np.clip(speechlike(RATE, 4.0) * 100, -1, 1), RATE, r"\d\d\.\d% of its samples are clipped"),
        (NOISE, RATE, "nothing stands out"),
        (np.pad(speechlike(RATE, 1.0), ((0, 0), (0, 15 * RATE))), RATE, "9[0-9]% of it is silence"),
    ],
    ids=["short", "long", "zeros", "faint", "4kHz", "nan", "empty", "channels", "clipped", "noise", "silence"],
)
def test_what_cannot_be_a_reference_is_refused(wave: np.ndarray, rate: int, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        check(wave, rate)
    assert caught.value.param == "prompt_audio"


@pytest.mark.parametrize(
    ("wave", "rate", "said"),
    [
        (speechlike(RATE, 2.0), RATE, "2.0 s long; 3 to 10 s"),
        (speechlike(RATE, 12.0), RATE, "12.0 s long; 3 to 10 s"),
        (speechlike(8000, 4.0, 2), 8000, "sample rate is 8000 Hz"),
        (np.pad(speechlike(RATE, 3.0), ((0, 0), (0, 5 * RATE))), RATE, "of it is silence"),
        (speechlike(RATE, 4.0) + NOISE, RATE, "SNR is about"),
        (np.clip(speechlike(RATE, 4.0) * 2.5, -1, 1), RATE, "samples are clipped"),
    ],
    ids=["short", "long", "8kHz", "silence", "noise", "clipped"],
)
def test_what_makes_a_poor_clone_is_warned_about(wave: np.ndarray, rate: int, said: str) -> None:
    _, warnings = check(np.ascontiguousarray(wave), rate)
    assert any(said in warning for warning in warnings), warnings


# --- cloning ---


@pytest.fixture(scope="module")
def cloner(tmp_path_factory: pytest.TempPathFactory) -> GlmCloner:
    folder = tmp_path_factory.mktemp("cloner")
    tokens = read_speech_tokenizer(write_speech_tokenizer(folder / "speech_tokenizer"))
    speaker = SpeakerNet(write_speaker_net(folder / "campplus.onnx"))
    return GlmCloner(lambda text: tuple(text.encode()), lambda: tokens, lambda: speaker, RATE)


def facts(voice: Voice) -> GlmVoice:
    assert isinstance(voice.facts, GlmVoice)
    return voice.facts


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000, 96000])
@pytest.mark.parametrize("channels", [1, 2])
def test_any_rate_and_channel_count_makes_a_voice(rate: int, channels: int, cloner: GlmCloner) -> None:
    made = facts(cloner.clone("anna", speechlike(rate, 3.2, channels), rate, "hello"))
    assert len(made.speech_ids) == 80
    assert made.mel.shape == (160, 80)
    assert made.speaker.shape == (192,)
    assert made.text_ids == tuple(b"hello")
    assert bool(torch.isfinite(made.mel).all() and torch.isfinite(made.speaker).all())


def test_tokens_hear_the_first_channel_and_the_rest_the_mean(cloner: GlmCloner) -> None:
    left, right = speechlike(RATE, 3.2)[0], speechlike(RATE, 3.2, seed=9)[0][::-1] * np.float32(0.5)
    both = facts(cloner.clone("a", np.stack((left, right)), RATE, "x"))
    alone = facts(cloner.clone("a", left[None], RATE, "x"))
    mean = facts(cloner.clone("a", ((left + right) / 2)[None], RATE, "x"))
    assert both.speech_ids == alone.speech_ids
    assert (both.mel - mean.mel).abs().max() < 1e-4
    assert (both.mel - alone.mel).abs().max() > 0.1


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_what_the_reference_says_is_needed(text: str | None, cloner: GlmCloner) -> None:
    with pytest.raises(RequestError, match="word for word") as caught:
        cloner.clone("anna", speechlike(RATE, 3.2), RATE, text)
    assert caught.value.param == "prompt_text"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("好" * 3000, "3000 letters for 3.2 s of audio, 938 a second"),
        ("a" * 97, "97 letters"),
        ("好" * 39, "12 Chinese"),
    ],
)
def test_text_that_nobody_says_in_that_time_is_refused(text: str, said: str, cloner: GlmCloner) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        cloner.clone("anna", speechlike(RATE, 3.2), RATE, text)
    assert caught.value.param == "prompt_text"
    assert facts(cloner.clone("anna", speechlike(RATE, 3.2), RATE, text[:38])).text == text[:38]


@pytest.mark.parametrize("name", ["ref.wav", "ref.flac", "ref.ogg"])
def test_common_formats_are_read(name: str, cloner: GlmCloner, tmp_path: Path) -> None:
    soundfile.write(tmp_path / name, speechlike(44100, 3.2, 2).T, 44100)
    wave, rate = read_audio(tmp_path / name)
    assert len(facts(cloner.clone("anna", wave, rate, "x")).speech_ids) == 80


def test_text_file_is_not_sound(tmp_path: Path) -> None:
    (tmp_path / "ref.wav").write_text("these are words, not sounds")
    with pytest.raises(RequestError, match="cannot be read"):
        read_audio(tmp_path / "ref.wav")


# --- voices on disk ---


@pytest.fixture
def voice() -> Voice:
    made = GlmVoice("你好。", (1, 2, 3), (7, 0, 31), torch.arange(480.0).view(6, 80), torch.ones(192), RATE, ("short",))
    return Voice("anna", "cloned", ("zh", "en"), made)


def test_stored_voice_is_the_same(voice: Voice, tmp_path: Path) -> None:
    path = save_voice(tmp_path / "voices", voice)
    found = find_voice(tmp_path / "voices", "anna")
    assert path.name == "anna.safetensors"
    assert (found.name, found.description, found.languages) == ("anna", "cloned", ("zh", "en"))
    for name in ("text", "text_ids", "speech_ids", "mel_sample_hz", "warnings"):
        assert getattr(facts(found), name) == getattr(facts(voice), name)
    assert torch.equal(facts(found).mel, facts(voice).mel)
    assert torch.equal(facts(found).speaker, facts(voice).speaker)
    assert list(read_voices(tmp_path / "voices")) == ["anna"]
    assert [p.name for p in (tmp_path / "voices").iterdir()] == ["anna.safetensors"]


@pytest.mark.parametrize("name", ["", "../anna", "a/b", "a.b", "ä", "a b", "x" * 65, "anna\n"])
def test_voice_names_are_never_paths(name: str, voice: Voice, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot name a voice"):
        find_voice(tmp_path, name)
    with pytest.raises(RequestError, match="cannot name a voice"):
        save_voice(tmp_path, Voice(name, facts=voice.facts))


def test_unknown_voice_lists_the_known(voice: Voice, tmp_path: Path) -> None:
    save_voice(tmp_path, voice)
    with pytest.raises(UnknownVoice, match="unknown voice 'bob'; this model has: anna"):
        find_voice(tmp_path, "bob")
    remove_voice(tmp_path, "anna")
    assert read_voices(tmp_path) == {}
    assert read_voices(tmp_path / "nowhere") == {}


def test_damaged_voices_are_named(voice: Voice, tmp_path: Path) -> None:
    path = save_voice(tmp_path, voice)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=r"anna\.safetensors is damaged"):
        find_voice(tmp_path, "anna")
    save_file({"mel": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="not a voice of this model"):
        find_voice(tmp_path, "anna")
    save_voice(
        tmp_path, Voice("anna", facts=GlmVoice("x", (1,), (2,), torch.full((6, 80), torch.nan), torch.ones(192), 1))
    )
    with pytest.raises(CheckpointError, match="finite"):
        find_voice(tmp_path, "anna")
