"""One tiny checkpoint for all tests, and what the reference made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from legato.conversation import Chat, MediaEncoder, Writer
from legato.families.qwen2_5_omni.audio_tower import load_audio_tower
from legato.families.qwen2_5_omni.chat import OmniChat
from legato.families.qwen2_5_omni.config import read_config
from legato.families.qwen2_5_omni.media import OmniEncoder
from legato.families.qwen2_5_omni.parts import ThinkerConfig
from legato.families.qwen2_5_omni.pictures import PixelLimits
from legato.families.qwen2_5_omni.thinker import Thinker, load_thinker
from legato.families.qwen2_5_omni.tokenizer import TextTokenizer
from legato.families.qwen2_5_omni.vision_tower import load_vision_tower
from legato.families.qwen2_5_omni.weights import Tensors
from legato.nn.layers import freeze
from legato.protocols import Step

from .chatting import VOICES, Dialogue, Spoken, dialogue_of
from .drive import step_of
from .media_files import noise
from .tiny import IDS, build

DATA = Path(__file__).parent / "data"
ROW_TILE = 4
NAMES = ("text", "audio", "image", "video", "avideo")
"""Golden prompts."""


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("qwen") / "tiny")


@pytest.fixture(scope="session")
def tensors(checkpoint: Path) -> Tensors:
    return Tensors(checkpoint, ("thinker.", "talker.", "token2wav."))


@pytest.fixture(scope="session")
def thinker_config(checkpoint: Path) -> ThinkerConfig:
    return read_config(checkpoint).thinker


@pytest.fixture(scope="session")
def thinker(tensors: Tensors, thinker_config: ThinkerConfig) -> Thinker:
    net = load_thinker(tensors, thinker_config, torch.float32)
    net.freeze(ROW_TILE)
    return net


@pytest.fixture(scope="session")
def gold() -> dict[str, Tensor]:
    """What transformers computes from the tiny checkpoint (data/README.md)."""
    return load_file(DATA / "thinker.safetensors")


@pytest.fixture(scope="session")
def gold_media() -> dict[str, Tensor]:
    """What transformers makes of sounds and pictures."""
    return load_file(DATA / "media.safetensors")


@pytest.fixture(scope="session")
def prompts(thinker: Thinker, tensors: Tensors, gold: dict[str, Tensor]) -> dict[str, Step]:
    """The golden prompts, their media encoded by our towers from the seeds that the reference was given."""
    ear = load_audio_tower(tensors, thinker.config.audio, torch.float32)
    eye = load_vision_tower(tensors, thinker.config.vision, torch.float32)

    def heard(seed: int, frames: int) -> Tensor:
        mel = (noise(seed, 1, 128, frames) * 0.5)[0].t()
        return torch.cat([ear(block[None])[0] for block in mel.split(200)])

    def seen(seed: int, times: int, down: int, across: int) -> Tensor:
        pixels = noise(seed, times * down * across, 1176)
        return torch.cat([eye(part[None], down // 2, across // 2)[0] for part in pixels.chunk(times)])

    with torch.inference_mode():
        features = {
            "text": {},
            "audio": {IDS.audio: heard(15, 131)},
            "image": {IDS.image: seen(25, 1, 4, 10)},
            "video": {IDS.video: seen(27, 2, 8, 4)},
            "avideo": {IDS.audio: heard(16, 431), IDS.video: seen(26, 5, 4, 4)},
        }
    return {name: step_of(thinker, gold, name, features[name]) for name in NAMES}


@pytest.fixture(scope="session")
def encoder(tensors: Tensors, thinker: Thinker) -> OmniEncoder:
    ear = load_audio_tower(tensors, thinker.config.audio, torch.float32)
    eye = load_vision_tower(tensors, thinker.config.vision, torch.float32)
    for net in (ear, eye):
        freeze(net)
    return OmniEncoder(ear, eye, PixelLimits())


@pytest.fixture(scope="session")
def chat(checkpoint: Path, thinker: Thinker) -> OmniChat:
    """A chat whose talker only takes what it is given."""
    reader = TextTokenizer(checkpoint / "tokenizer.json", thinker.config.ids)
    return OmniChat(thinker.config, reader, PixelLimits(), Spoken(), VOICES, "Chelsie")


@pytest.fixture(scope="session")
def writer(thinker: Thinker, encoder: OmniEncoder, chat: OmniChat) -> Writer:
    media: MediaEncoder = encoder
    talks: Chat = chat
    return Writer(thinker, media, talks)


@pytest.fixture
def dialogue(writer: Writer, chat: OmniChat) -> Dialogue:
    return dialogue_of(writer, chat)
