"""Parts of a message → blocks for the encoders, and the encoders as the engine drives them.

What is read in the callers' threads is numpy's and Pillow's work (see mel.py); tensors are made where it is encoded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from legato.conversation import MediaBlock
from legato.errors import CheckpointError, RequestError
from legato.types import Part

from .audio_tower import AudioTower
from .mel import log_mel_blocks
from .parts import AudioConfig, ThinkerConfig
from .pictures import FILM_HZ, PixelLimits, Pixels, patches, read_film, read_picture
from .places import Grid
from .sounds import PARAM, at_16_khz, has_sound, read_sound
from .vision_tower import VisionTower

AUDIO, VISION = "audio", "vision"
KEY_BYTES, KEY_BIT = 8, 2**62
"""Keys of media rows are numbers of 63 bits whose highest is set, so that none is an id of a vocabulary."""


@dataclass(frozen=True, eq=False)
class Sound:
    """A clip in blocks of two seconds; `rows` in all."""

    blocks: tuple[MediaBlock, ...]

    @property
    def rows(self) -> int:
        return sum(block.weight for block in self.blocks)


@dataclass(frozen=True, eq=False)
class Film:
    """A film, a block for every picture in time, perhaps with its own sound."""

    blocks: tuple[MediaBlock, ...]
    grid: Grid
    sound: Sound | None


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture, which is one block."""

    block: MediaBlock
    grid: Grid


Medium = Sound | Picture | Film


def row_keys(block: MediaBlock, start: int, stop: int) -> tuple[int, ...]:
    """What stands for rows [start, stop) of a block in a prefix cache."""
    digests = (hashlib.sha256(f"{block.key}:{row}".encode()).digest() for row in range(start, stop))
    return tuple(int.from_bytes(d[:KEY_BYTES], "big") % KEY_BIT + KEY_BIT for d in digests)


def sound_block(mel: np.ndarray, audio: AudioConfig) -> MediaBlock:
    """A block of log-mel float32 [frames, bins]."""
    return MediaBlock(_key(AUDIO, mel), AUDIO, mel, audio.tokens(len(mel)))


def _vision_block(pixels: Pixels) -> MediaBlock:
    return MediaBlock(_key(VISION, pixels.frames), VISION, pixels, pixels.rows * pixels.columns)


def _key(kind: str, content: np.ndarray) -> str:
    known = hashlib.sha256(f"{kind}:{list(content.shape)}:".encode())
    known.update(content.tobytes())
    return known.hexdigest()


class MediaReader:
    """Reads the media of messages. Needs no net and may run in any thread."""

    def __init__(self, config: ThinkerConfig, limits: PixelLimits) -> None:
        self.config, self.limits = config, limits

    def read(self, part: Part, name: str, *, audio_in_video: bool) -> Medium:
        """A medium of a message. Raises RequestError naming the part and what was found in it."""
        if part.kind == "audio":
            return self.sound(self._wave(part, name), name)
        content = _file(part, name)
        if part.kind == "image":
            pixels = read_picture(content, self.config.vision, self.limits, name)
            return Picture(_vision_block(pixels), Grid(1, pixels.rows, pixels.columns))
        return self._film(content, name, audio_in_video)

    def sound(self, wave: np.ndarray, name: str) -> Sound:
        """A clip float32 [n] at 16 kHz. Raises RequestError when it is too short to be heard."""
        audio = self.config.audio
        blocks = (sound_block(mel, audio) for mel in log_mel_blocks(wave, audio.mel_bins, audio.block_frames))
        sound = Sound(tuple(block for block in blocks if block.weight))
        if not sound.blocks:
            raise RequestError(f"{name} is too short: {len(wave)} samples at 16 kHz", PARAM)
        return sound

    def _wave(self, part: Part, name: str) -> np.ndarray:
        if isinstance(part.content, np.ndarray):
            return at_16_khz(part.content, part.sample_rate_hz, name)
        return read_sound(_file(part, name), name)

    def _film(self, content: bytes | Path, name: str, audio_in_video: bool) -> Film:
        if audio_in_video and not has_sound(content, name):
            raise RequestError(f"{name} has no sound, but audio_in_video asks for the sound of every video", PARAM)
        pictures = read_film(content, self.config.vision, self.limits, name)
        patch_seconds = self.config.vision.patch_frames / FILM_HZ
        grid = Grid(len(pictures), pictures[0].rows, pictures[0].columns, patch_seconds)
        sound = self.sound(read_sound(content, name), name) if audio_in_video else None
        return Film(tuple(map(_vision_block, pictures)), grid, sound)


def _file(part: Part, name: str) -> bytes | Path:
    if isinstance(part.content, (bytes, Path)):
        return part.content
    raise RequestError(f"{name} must be the bytes of a file or a path, not {type(part.content).__name__}", PARAM)


def read_pixel_limits(folder: Path) -> PixelLimits:
    """Limits and normalisation from preprocessor_config.json, as far as it is there and names them.

    Raises CheckpointError when it cannot be read.
    """
    path, limits = folder / "preprocessor_config.json", PixelLimits()
    if not path.is_file():
        return limits
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        mean, std = (
            tuple(map(float, raw.get(k) or d)) for k, d in (("image_mean", limits.mean), ("image_std", limits.std))
        )
        return replace(
            limits,
            least=int(raw.get("min_pixels") or limits.least),
            most=int(raw.get("max_pixels") or limits.most),
            mean=(mean[0], mean[1], mean[2]),
            std=(std[0], std[1], std[2]),
        )
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


class OmniEncoder:
    """The encoders of sound and pictures, as a MediaEncoder.

    Blocks come one by one unless `together`; then those of one size share a product, whose last bits depend on
    how many they are.
    """

    def __init__(self, ear: AudioTower, eye: VisionTower, limits: PixelLimits, *, together: bool = False) -> None:
        self.ear, self.eye, self.limits, self.together = ear, eye, limits, together

    @torch.inference_mode()
    def encode(self, blocks: Seq[MediaBlock]) -> list[Tensor]:
        """Features [weight, width] of each block."""
        features: dict[MediaBlock, Tensor] = {}
        for group in self._groups(blocks):
            features.update(zip(group, self._encode(group), strict=True))
        return [features[block] for block in blocks]

    def _groups(self, blocks: Seq[MediaBlock]) -> list[list[MediaBlock]]:
        """Blocks that share a product."""
        if not self.together:
            return [[block] for block in blocks]
        groups: dict[tuple[int, ...], list[MediaBlock]] = {}
        for block in blocks:
            size = block.content.frames.shape if block.kind == VISION else block.content.shape
            groups.setdefault(tuple(size), []).append(block)
        return list(groups.values())

    def _encode(self, blocks: Seq[MediaBlock]) -> Tensor:
        """Features [B, weight, width] of blocks of one kind and size."""
        if blocks[0].kind == AUDIO:
            mels = torch.from_numpy(np.stack([block.content for block in blocks]))
            heard: Tensor = self.ear(mels.to(self.ear.conv1.weight.device))
            return heard
        pixels: Pixels = blocks[0].content
        rows = torch.stack([patches(block.content, self.eye.config, self.limits) for block in blocks])
        seen: Tensor = self.eye(rows.to(self.eye.patches.weight.device), pixels.rows, pixels.columns)
        return seen
