"""Encoders of sound and pictures: equal to the reference, and blocks alone equal blocks together."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from legato.families.qwen2_5_omni.audio_tower import AudioTower, load_audio_tower
from legato.families.qwen2_5_omni.parts import ThinkerConfig
from legato.families.qwen2_5_omni.vision_tower import VisionTower, layout_of, load_vision_tower
from legato.families.qwen2_5_omni.weights import Tensors
from legato.nn.layers import freeze

from .media_files import noise

CLIPS = {431: 11, 200: 12, 3: 13, 77: 14}
"""Mel frames and the seed of their noise."""
PICTURES = {(1, 8, 12): 21, (1, 2, 2): 22, (3, 4, 4): 23, (1, 20, 6): 24, (1, 18, 12): 28}
"""Patches in time, down and across, and the seed of their noise."""


@pytest.fixture(scope="module")
def ear(tensors: Tensors, thinker_config: ThinkerConfig) -> AudioTower:
    net = load_audio_tower(tensors, thinker_config.audio, torch.float32)
    freeze(net)
    return net


@pytest.fixture(scope="module")
def eye(tensors: Tensors, thinker_config: ThinkerConfig) -> VisionTower:
    net = load_vision_tower(tensors, thinker_config.vision, torch.float32)
    freeze(net)
    return net


def heard(ear: AudioTower, mel: Tensor) -> Tensor:
    """A clip [frames, bins], block by block."""
    return torch.cat([ear(block[None])[0] for block in mel.split(ear.config.block_frames)])


@pytest.mark.parametrize("frames", CLIPS)
def test_sound_is_the_references(ear: AudioTower, gold: dict[str, Tensor], frames: int) -> None:
    mel = (noise(CLIPS[frames], 1, 128, frames) * 0.5)[0].t()
    rows = heard(ear, mel)
    assert len(rows) == ear.config.tokens(frames) == len(gold[f"audio.{frames}"])
    assert (rows - gold[f"audio.{frames}"]).abs().max() < 1e-5


def test_rows_of_every_length(ear: AudioTower) -> None:
    for frames in (1, 2, 3, 4, 5, 6, 7, 8, 199, 200):
        assert ear(torch.zeros(1, frames, 128)).shape[1] == ear.config.tokens(frames)


@pytest.mark.parametrize("grid", PICTURES)
def test_pictures_are_the_references(eye: VisionTower, gold: dict[str, Tensor], grid: tuple[int, int, int]) -> None:
    times, down, across = grid
    pixels = noise(PICTURES[grid], times * down * across, 1176)
    alone = [eye(part[None], down // 2, across // 2)[0] for part in pixels.chunk(times)]
    assert (torch.cat(alone) - gold["vision.{}x{}x{}".format(*grid)]).abs().max() < 1e-5


def test_windows_hold_every_cell_once(thinker_config: ThinkerConfig) -> None:
    for rows in range(1, 10):
        for columns in range(1, 10):
            layout = layout_of(rows, columns, thinker_config.vision, torch.device("cpu"))
            assert sorted(layout.order.tolist()) == list(range(rows * columns))
            assert layout.order[layout.back].tolist() == list(range(rows * columns))
            assert sum(count * size for count, size in layout.windows) == 4 * rows * columns
