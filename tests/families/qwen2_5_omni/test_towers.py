"""Encoders of sound and pictures: equal to the reference, and blocks alone equal blocks together."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from legato.families.qwen2_5_omni.audio_tower import AudioTower, load_audio_tower
from legato.families.qwen2_5_omni.parts import ThinkerConfig
from legato.families.qwen2_5_omni.vision_tower import VisionTower, _attend, layout_of, load_vision_tower
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


def test_pictures_alone_are_pictures_together(eye: VisionTower) -> None:
    pixels = noise(31, 3, 8 * 12, 1176)
    together = eye(pixels, 4, 6)
    assert all(torch.equal(eye(pixels[i : i + 1], 4, 6)[0], together[i]) for i in range(3))


def test_attention_never_holds_all_scores_at_once() -> None:
    """A photo has 61,204 patches: their scores are 30 GB, far more than is asked for here."""
    patches, windows = 3000, ((1, 2900), (5, 20))
    q, k, v = (noise(seed, 2, patches, 2, 16) for seed in (1, 2, 3))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        mixed = _attend(q, k, v, windows)
    assert max(event.cpu_memory_usage for event in seen.events()) < 2900 * 2900 * 4 // 2
    for start, size in ((0, 2900), *((2900 + 20 * i, 20) for i in range(5))):
        a, b, c = (t[:, start : start + size].transpose(1, 2) for t in (q, k, v))
        wanted = (a @ b.transpose(2, 3) / 4).softmax(-1) @ c
        assert (mixed[:, start : start + size] - wanted.transpose(1, 2)).abs().max() < 1e-5


def test_windows_hold_every_cell_once(thinker_config: ThinkerConfig) -> None:
    for rows in range(1, 10):
        for columns in range(1, 10):
            layout = layout_of(rows, columns, thinker_config.vision, torch.device("cpu"))
            assert sorted(layout.order.tolist()) == list(range(rows * columns))
            assert layout.order[layout.back].tolist() == list(range(rows * columns))
            assert sum(count * size for count, size in layout.windows) == 4 * rows * columns
