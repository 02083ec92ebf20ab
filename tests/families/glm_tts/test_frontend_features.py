"""What the three extractors hear in a reference recording, against the release's code on the same tiny weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from legato.errors import CheckpointError
from legato.families.glm_tts import speech_tokenizer as module
from legato.families.glm_tts.cloner import prompt_mel_spec
from legato.families.glm_tts.kaldi_fbank import centred_fbank
from legato.families.glm_tts.speaker import SpeakerNet
from legato.families.glm_tts.speech_tokenizer import nearest, read_speech_tokenizer
from legato.nn.mel import log_mel, whisper_log_mel
from legato.nn.resample import resample

from .tiny_frontend import write_speaker_net, write_speech_tokenizer

GOLDEN = Path(__file__).parent / "data_frontend" / "reference_features.safetensors"

VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "max_early": {"pooling_type": "max", "pooling_position": 2},
    "plain": {"quantize_causal_block_size": None, "encoder_causal_convolution": False},
    "causal": {"encoder_causal_attention": True, "quantize_causal_block_size": None},
}


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return load_file(GOLDEN)


@pytest.fixture(scope="module")
def wave(golden: dict[str, Tensor]) -> Tensor:
    """Float32 [2, n] at 32 kHz."""
    return golden["wave_int16"].float() / 32768


# --- codec tokens ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_codec_tokens_equal_the_references(
    variant: str, golden: dict[str, Tensor], wave: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[Tensor] = []
    monkeypatch.setattr(module, "nearest", lambda x, codebook: (states.append(x), nearest(x, codebook))[1])
    net = read_speech_tokenizer(write_speech_tokenizer(tmp_path, golden["codebook_center"], **VARIANTS[variant]))
    tokens = net.encode(resample(wave, 32000, 16000)[0])
    assert list(tokens) == golden[f"tokens_{variant}"].tolist()
    assert len(set(tokens)) > 10
    assert (states[0] - golden[f"hidden_{variant}"]).abs().max() < 1e-3


@pytest.fixture(scope="module")
def released(golden: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> module.SpeechTokenizer:
    folder = write_speech_tokenizer(tmp_path_factory.mktemp("speech_tokenizer"), golden["codebook_center"])
    return read_speech_tokenizer(folder)


@pytest.mark.parametrize("samples", [32000, 32002, 40000, 51198, 51200, 51202])
def test_one_token_for_each_started_40_ms(
    samples: int, released: module.SpeechTokenizer, golden: dict[str, Tensor], wave: Tensor
) -> None:
    tokens = released.encode(resample(wave[:, :samples], 32000, 16000)[0])
    assert list(tokens) == golden[f"tokens_first_{samples}"].tolist()
    assert len(tokens) == -(-samples // 1280)


def test_whisper_features_equal_the_references(
    released: module.SpeechTokenizer, golden: dict[str, Tensor], wave: Tensor
) -> None:
    mono = resample(wave, 32000, 16000)[0]
    padded = torch.nn.functional.pad(mono, (0, -len(mono) % 640))
    features = whisper_log_mel(padded, released.config.mel)
    assert (features - golden["whisper_features"]).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pooling_type": "sum"}, "pooling_type 'sum'"),
        ({"activation_function": "relu"}, "activation_function 'relu'"),
        ({"pooling_position": 4}, "pooling_position 4"),
        ({"quantize_vocab_size": None}, "misstates"),
        ({"num_mel_bins": 80}, "feature_size 128"),
    ],
)
def test_config_of_another_net_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_speech_tokenizer(tmp_path)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(json.dumps(json.loads(config) | changes))
    with pytest.raises(CheckpointError, match=said):
        read_speech_tokenizer(tmp_path)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json is missing.*hf download"):
        read_speech_tokenizer(tmp_path)
    write_speech_tokenizer(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="missing codebook.weight|missing conv"):
        read_speech_tokenizer(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(CheckpointError, match="model-00001-of-00002.safetensors is damaged.*hf download"):
        read_speech_tokenizer(tmp_path)


# --- mel and speaker vector ---


@pytest.mark.parametrize("sample_hz", [24000, 32000])
def test_prompt_mel_equals_the_references(sample_hz: int, golden: dict[str, Tensor], wave: Tensor) -> None:
    mel = log_mel(resample(wave.mean(0), 32000, sample_hz), prompt_mel_spec(sample_hz))
    expected = golden[f"mel_{sample_hz}"]
    assert mel.shape == expected.shape
    assert (mel - expected).abs().max() < 1e-4


def test_mels_of_two_rates_do_not_mix(golden: dict[str, Tensor], wave: Tensor) -> None:
    mono = wave.mean(0)
    for sample_hz in (24000, 32000, 24000):
        mel = log_mel(resample(mono, 32000, sample_hz), prompt_mel_spec(sample_hz))
        assert (mel - golden[f"mel_{sample_hz}"]).abs().max() < 1e-4


def test_fbank_equals_the_references(golden: dict[str, Tensor], wave: Tensor) -> None:
    features = centred_fbank(resample(wave.mean(0), 32000, 16000))
    assert features.shape == golden["fbank"].shape
    assert (features - golden["fbank"]).abs().max() < 1e-3


def test_speaker_vector_equals_the_references(golden: dict[str, Tensor], wave: Tensor, tmp_path: Path) -> None:
    net = SpeakerNet(write_speaker_net(tmp_path / "campplus.onnx"))
    vector = net.vector(resample(wave.mean(0), 32000, 16000))
    assert (vector - golden["speaker"]).abs().max() < 1e-3


def test_missing_speaker_net_says_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"campplus\.onnx is missing.*curl .*https://github\.com/zai-org/GLM-TTS/raw/main/"
    ):
        SpeakerNet(tmp_path / "campplus.onnx")


def test_other_onnx_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "campplus.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(CheckpointError, match="is a Git LFS pointer, not the file.*curl .*/raw/"):
        SpeakerNet(tmp_path / "campplus.onnx")
    (tmp_path / "campplus.onnx").write_bytes(b"no net")
    with pytest.raises(CheckpointError, match="damaged or not an ONNX file.*curl .*/raw/"):
        SpeakerNet(tmp_path / "campplus.onnx")
    with pytest.raises(CheckpointError, match="not CAM"):
        SpeakerNet(write_speaker_net(tmp_path / "campplus.onnx", bins=40))
    net = SpeakerNet(write_speaker_net(tmp_path / "campplus.onnx", width=512))
    with pytest.raises(CheckpointError, match="512 values, not the 192"):
        net.vector(torch.zeros(16000))
