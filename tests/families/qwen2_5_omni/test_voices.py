"""Voices of a checkpoint: what is read, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from legato.errors import CheckpointError
from legato.families.qwen2_5_omni.config import read_config
from legato.families.qwen2_5_omni.parts import FlowConfig
from legato.families.qwen2_5_omni.voices import read_voices
from legato.types import Voice

VOCABULARY, LEAST_FRAMES = 320, 5


@pytest.fixture(scope="module")
def config(checkpoint: Path) -> FlowConfig:
    found = read_config(checkpoint).flow
    assert found is not None
    return found


def read(folder: Path, config: FlowConfig) -> dict[str, Voice]:
    return read_voices(folder, config, VOCABULARY, LEAST_FRAMES)


def test_voices(checkpoint: Path, config: FlowConfig) -> None:
    voices = read(checkpoint, config)
    assert list(voices) == ["Chelsie", "Ethan"]
    assert [voice.facts.bos_id for voice in voices.values()] == [313, 314]
    assert voices["Ethan"].facts.mel.shape == (61, 80) and voices["Ethan"].facts.vector.shape == (12,)


def test_the_safetensors_twin(checkpoint: Path, config: FlowConfig, tmp_path: Path) -> None:
    raw = torch.load(checkpoint / "spk_dict.pt", weights_only=True)
    twin = {f"{name}.{key}": torch.as_tensor(value) for name, facts in raw.items() for key, value in facts.items()}
    save_file(twin, tmp_path / "spk_dict.safetensors")
    for one, other in zip(read(checkpoint, config).values(), read(tmp_path, config).values(), strict=True):
        assert torch.equal(one.facts.mel, other.facts.mel) and torch.equal(one.facts.vector, other.facts.vector)
        assert (one.name, one.facts.bos_id) == (other.name, other.facts.bos_id)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cond": torch.zeros(1, 11)}, "cond has 11 numbers, the flow takes 12"),
        ({"ref_mel": torch.zeros(1, 61, 79)}, "ref_mel is [61, 79]"),
        ({"ref_mel": torch.zeros(1, 4, 80)}, "at least 5"),
        ({"ref_mel": torch.full((1, 9, 80), torch.nan)}, "not finite"),
        ({"bos_token": 320}, "bos_token 320"),
        ({"bos_token": None}, "'Chelsie'"),
        ({"cond": None}, "'Chelsie'"),
    ],
)
def test_a_voice_that_does_not_fit_is_named(
    checkpoint: Path, config: FlowConfig, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    raw = torch.load(checkpoint / "spk_dict.pt", weights_only=True)
    raw["Chelsie"] |= change
    torch.save(raw, tmp_path / "spk_dict.pt")
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, config)
    assert words in str(caught.value) and "spk_dict.pt" in str(caught.value)


def test_missing_or_damaged_voices(checkpoint: Path, config: FlowConfig, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"spk_dict\.pt is missing"):
        read(tmp_path, config)
    for content in (b"", b"no voices", (checkpoint / "spk_dict.pt").read_bytes()[:200]):
        (tmp_path / "spk_dict.pt").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"spk_dict\.pt is damaged"):
            read(tmp_path, config)


def test_a_file_that_would_run_code_is_refused(checkpoint: Path, config: FlowConfig, tmp_path: Path) -> None:
    torch.save({"Chelsie": Path("anything")}, tmp_path / "spk_dict.pt")
    with pytest.raises(CheckpointError, match="more than tensors"):
        read(tmp_path, config)
