"""Pictures and films of a request → pixels of pictures in time, sized as the vision encoder wants them."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import av
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from legato.audio_file import opened, readable
from legato.errors import RequestError

from .parts import VisionConfig
from .sounds import PARAM, extra

IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
MAX_IMAGE_PIXELS = 2**26
MAX_ASPECT = 200
FILM_HZ = 2.0
"""Pictures of a film that are looked at, per second."""

LEAST_FILM_PICTURES, MOST_FILM_PICTURES = 4, 768
SPARE = 1.05
"""How much larger than the least the pictures of a film may always be."""


@dataclass(frozen=True)
class PixelLimits:
    """How many pixels a picture is made to have at least and at most, and how it is normalised (preprocessor files).

    Pictures of a film share `film_rows` rows of the prompt between them, if that leaves them fewer than their most.
    """

    least: int = 56 * 56
    most: int = 12845056
    film_least: int = 128 * 28 * 28
    film_most: int = 768 * 28 * 28
    film_rows: int = 24576
    mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True, eq=False)
class Pixels:
    """One picture in time: uint8 [patch_frames, height, width, 3], of rows × columns cells."""

    frames: np.ndarray
    rows: int
    columns: int


def read_picture(content: bytes | Path, vision: VisionConfig, limits: PixelLimits, name: str) -> Pixels:
    """A picture file. Raises RequestError when it is damaged, of another format, or too large or narrow."""
    try:
        data = content if isinstance(content, bytes) else content.read_bytes()
    except OSError as error:
        raise RequestError(f"{name} cannot be opened: {error.strerror}", PARAM) from error
    pillow, operations = extra("PIL.Image"), extra("PIL.ImageOps")
    try:
        image = pillow.open(BytesIO(data), formats=IMAGE_FORMATS)
        _check_pixels(image.width, image.height, name)
        pixels = np.array(operations.exif_transpose(image).convert("RGB"))
    except pillow.DecompressionBombError as error:
        raise RequestError(f"{name} has too many pixels; at most {MAX_IMAGE_PIXELS} are accepted", PARAM) from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise RequestError(f"{name} is damaged or not a picture ({', '.join(IMAGE_FORMATS)})", PARAM) from error
    size = fitted(pixels.shape[0], pixels.shape[1], vision.cell_pixels, limits.least, limits.most, name)
    return _together([_sized(pixels, size)], vision)[0]


def _check_pixels(width: int, height: int, name: str) -> None:
    if width * height > MAX_IMAGE_PIXELS:
        raise RequestError(f"{name} has {width} × {height} pixels; at most {MAX_IMAGE_PIXELS} are accepted", PARAM)


def read_film(content: bytes | Path, vision: VisionConfig, limits: PixelLimits, name: str) -> list[Pixels]:
    """Pictures in time of a video file, FILM_HZ of its pictures a second, `vision.patch_frames` in each.

    Raises RequestError when it is damaged, holds no pictures, or is too long for its share of the prompt.
    """
    with opened(content, name, PARAM) as container:
        count, picture_hz = _count(container, _most_seconds(limits, vision), name)
    wanted = chosen(count, picture_hz, vision.patch_frames)
    most = _share(limits, len(wanted), vision)
    with opened(content, name, PARAM) as container:
        stream = container.streams.video[0]
        size = fitted(stream.height, stream.width, vision.cell_pixels, limits.film_least, most, name)
        return _together(_decode(container, wanted, size), vision)


def _most_seconds(limits: PixelLimits, vision: VisionConfig) -> float:
    """The longest film whose pictures all find room when they are as small as they may be."""
    least_rows = limits.film_least * SPARE // vision.cell_pixels**2
    return limits.film_rows // least_rows * vision.patch_frames / FILM_HZ


def _count(container: av.container.InputContainer, most_seconds: float, name: str) -> tuple[int, float]:
    """Pictures in a film, and how many there are in a second."""
    if not readable(container.streams.video):
        raise RequestError(f"{name} holds no pictures that can be read", PARAM)
    stream = container.streams.video[0]
    rate = float(stream.average_rate or stream.guessed_rate or 0)
    if rate <= 0:
        raise RequestError(f"{name} does not say how many pictures a second it has", PARAM)
    count = 0
    for frame in container.decode(stream):
        count += 1
        _check_pixels(frame.width, frame.height, name)
        if count > most_seconds * rate:
            raise RequestError(f"{name} is longer than {most_seconds:g} s, for which there is room", PARAM)
    if not count:
        raise RequestError(f"{name} holds no pictures", PARAM)
    return count, rate


def chosen(count: int, picture_hz: float, patch_frames: int) -> list[int]:
    """Which of a film's pictures are looked at: FILM_HZ a second, within bounds, a multiple of `patch_frames` if there
    are as many."""
    most = min(MOST_FILM_PICTURES, count) // patch_frames * patch_frames
    wanted = min(max(count / picture_hz * FILM_HZ, LEAST_FILM_PICTURES), most, count)
    number = math.floor(wanted / patch_frames) * patch_frames
    return torch.arange(0, count, count / number).int().tolist() if number else list(range(count))


def _decode(container: av.container.InputContainer, wanted: Seq[int], size: tuple[int, int]) -> list[np.ndarray]:
    """Those pictures of a film, resized."""
    last, pictures = max(wanted), {}
    of_use = set(wanted)
    for index, frame in enumerate(container.decode(container.streams.video[0])):
        if index in of_use:
            pictures[index] = _sized(frame.to_ndarray(format="rgb24"), size)
        if index >= last:
            break
    return [pictures[index] for index in wanted]


def _share(limits: PixelLimits, pictures: int, vision: VisionConfig) -> int:
    """Pixels each of so many pictures may have."""
    share = limits.film_rows * vision.cell_pixels**2 * vision.patch_frames // pictures
    return max(min(limits.film_most, share), int(limits.film_least * SPARE))


def fitted(height: int, width: int, cell: int, least: int, most: int, name: str) -> tuple[int, int]:
    """Height and width near the given ones, whole cells, with a number of pixels between `least` and `most`."""
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise RequestError(f"{name} is {width} × {height} pixels: one side is over {MAX_ASPECT} × the other", PARAM)
    high, wide = round(height / cell) * cell, round(width / cell) * cell
    if high * wide > most:
        shrink = math.sqrt(height * width / most)
        high = max(cell, math.floor(height / shrink / cell) * cell)
        wide = max(cell, math.floor(width / shrink / cell) * cell)
    elif high * wide < least:
        grow = math.sqrt(least / (height * width))
        high, wide = math.ceil(height * grow / cell) * cell, math.ceil(width * grow / cell) * cell
    return high, wide


def _sized(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A picture uint8 [H, W, 3] resized. torch's resizing of bytes uses one thread, so it may run in any."""
    if picture.shape[:2] == size:
        return picture
    planes = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)[None]
    resized = F.interpolate(planes, size=list(size), mode="bicubic", antialias=True)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())


def _together(pictures: list[np.ndarray], vision: VisionConfig) -> list[Pixels]:
    """Pictures uint8 [height, width, 3] of one size put together in time; the last one repeats where one lacks."""
    pictures = [*pictures, *pictures[-1:] * (-len(pictures) % vision.patch_frames)]
    rows, columns = (side // vision.cell_pixels for side in pictures[0].shape[:2])
    groups = (pictures[at : at + vision.patch_frames] for at in range(0, len(pictures), vision.patch_frames))
    return [Pixels(np.stack(group), rows, columns) for group in groups]


def patches(pixels: Pixels, vision: VisionConfig, limits: PixelLimits) -> Tensor:
    """Normalised patches float32 [patches, 3 × patch_frames × side²], those of a cell one behind the other."""
    mean, std = (torch.tensor(numbers)[:, None, None] * 255.0 for numbers in (limits.mean, limits.std))
    frames = torch.from_numpy(pixels.frames).permute(0, 3, 1, 2).float().sub_(mean).div_(std)
    side, merge = vision.patch_pixels, vision.merge
    parted = frames.view(len(frames), 3, pixels.rows, merge, side, pixels.columns, merge, side)
    return parted.permute(2, 5, 3, 6, 1, 0, 4, 7).reshape(pixels.rows * pixels.columns * merge**2, -1)
