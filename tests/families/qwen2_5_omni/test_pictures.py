"""Pictures and films of a request → what the encoder is fed: equal to the reference, bad input refused."""

from __future__ import annotations

import json
import random
import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from legato.errors import CheckpointError, RequestError
from legato.families.qwen2_5_omni.media import read_pixel_limits
from legato.families.qwen2_5_omni.parts import ThinkerConfig
from legato.families.qwen2_5_omni.pictures import (
    PixelLimits,
    Pixels,
    chosen,
    fitted,
    patches,
    read_film,
    read_picture,
)

from .conftest import DATA
from .media_files import film_file, picture_file, pixels, sine, sound_file

LIMITS = PixelLimits()


@pytest.mark.parametrize(
    ("seed", "size"), [(1, (60, 100)), (2, (300, 41)), (3, (28, 28)), (4, (9, 17)), (5, (112, 112))]
)
def test_pictures_are_the_references(
    gold_media: dict[str, Tensor], thinker_config: ThinkerConfig, seed: int, size: tuple[int, int]
) -> None:
    vision, name = thinker_config.vision, f"image.{size[0]}x{size[1]}"
    picture = read_picture(picture_file(pixels(seed, *size, 3).numpy()), vision, LIMITS, "it")
    assert [1, picture.rows * 2, picture.columns * 2] == gold_media[f"{name}.grid"].tolist()
    assert torch.equal(patches(picture, vision, LIMITS)[::5], gold_media[name])


def test_films_are_the_references(gold_media: dict[str, Tensor], thinker_config: ThinkerConfig) -> None:
    vision = thinker_config.vision
    pictures = pixels(6, 5, 3, 90, 120).permute(0, 2, 3, 1).numpy()
    film = read_film(film_file(pictures, 2), vision, LIMITS, "it")
    rows = torch.cat([patches(part, vision, LIMITS) for part in film])
    wanted = gold_media["film.grid"].tolist()
    assert chosen(5, 2.0, 2) == [0, 1, 2, 3], "a multiple of what is put together"
    assert [film[0].rows * 2, film[0].columns * 2] == wanted[1:]
    whole = len(film) * film[0].rows * film[0].columns * 4
    assert torch.equal(rows[::60], gold_media["film"][: -(-whole // 60)])


def test_pictures_of_a_film_that_are_looked_at() -> None:
    for count, picture_hz, wanted in json.loads((DATA / "film_frames.json").read_text(encoding="utf-8")):
        assert chosen(count, picture_hz, 2) == wanted
    assert chosen(1, 30.0, 2) == [0]


def test_a_single_picture_makes_a_film(thinker_config: ThinkerConfig) -> None:
    film = read_film(film_file(pixels(7, 1, 32, 32, 3).numpy(), 2), thinker_config.vision, LIMITS, "it")
    assert len(film) == 1 and np.array_equal(film[0].frames[0], film[0].frames[1])


def test_long_films_share_their_rows(thinker_config: ThinkerConfig) -> None:
    few, vision = PixelLimits(film_least=4 * 784, film_rows=40), thinker_config.vision
    pictures = pixels(8, 40, 200, 200, 3).numpy()
    film = read_film(film_file(pictures[:20], 2), vision, few, "it")
    assert len(film) == 10 and sum(part.rows * part.columns for part in film) <= 40
    with pytest.raises(RequestError, match="it is longer than 10 s, for which there is room"):
        read_film(film_file(pictures, 2), vision, few, "it")
    roomy = read_film(film_file(pictures, 2), vision, PixelLimits(film_least=4 * 784), "it")
    assert roomy[0].rows * roomy[0].columns == 49, "short films are as they are"


def test_turned_and_paletted_pictures(thinker_config: ThinkerConfig) -> None:
    image = Image.fromarray(pixels(9, 56, 112, 3).numpy())
    exif = Image.Exif()
    exif[0x0112] = 6
    out = BytesIO()
    image.save(out, format="PNG", exif=exif)
    turned = read_picture(out.getvalue(), thinker_config.vision, LIMITS, "it")
    assert (turned.rows, turned.columns) == (4, 2)
    gif = BytesIO()
    image.convert("P").save(gif, format="GIF")
    assert isinstance(read_picture(gif.getvalue(), thinker_config.vision, LIMITS, "it"), Pixels)


def test_pictures_that_are_refused(thinker_config: ThinkerConfig, tmp_path: Path) -> None:
    good = picture_file(pixels(1, 64, 64, 3).numpy())
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    thin = picture_file(np.zeros((1, 300, 3), np.uint8))

    def claiming(side: int) -> bytes:
        header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        return good[:12] + header + struct.pack(">I", zlib.crc32(header)) + good[33:]

    for content, message in (
        (b"", "damaged or not a picture"),
        (good[: len(good) // 2], "damaged or not a picture"),
        (svg, "damaged or not a picture"),
        (thin, "one side is over 200"),
        (claiming(9000), "9000 × 9000 pixels; at most"),
        (claiming(2**16), "too many pixels; at most"),
        (tmp_path / "nothing.png", "cannot be opened"),
    ):
        with pytest.raises(RequestError, match=message):
            read_picture(content, thinker_config.vision, LIMITS, "it")
    for content, message in (
        (sound_file(sine(1), 16000), "no pictures"),
        (good[:200], "cannot be read|no pictures"),
        (b"nothing", "cannot be read"),
    ):
        with pytest.raises(RequestError, match=message):
            read_film(content, thinker_config.vision, LIMITS, "it")


def test_sizes_stay_within_bounds() -> None:
    chance = random.Random(1)
    for _ in range(300):
        height, width = chance.randrange(1, 4000), chance.randrange(1, 4000)
        if max(height, width) > 200 * min(height, width):
            continue
        high, wide = fitted(height, width, 28, LIMITS.least, LIMITS.most, "it")
        assert not high % 28 and not wide % 28 and LIMITS.least <= high * wide <= LIMITS.most


def test_limits_come_from_the_checkpoint(tmp_path: Path) -> None:
    assert read_pixel_limits(tmp_path) == PixelLimits()
    file = tmp_path / "preprocessor_config.json"
    file.write_text('{"min_pixels": 784, "max_pixels": 7840, "image_mean": [0.5, 0.5, 0.5]}', encoding="utf-8")
    limits = read_pixel_limits(tmp_path)
    assert (limits.least, limits.most, limits.mean, limits.std) == (784, 7840, (0.5, 0.5, 0.5), PixelLimits().std)
    file.write_text('{"min_pixels": "many"}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="preprocessor_config.json is damaged"):
        read_pixel_limits(tmp_path)
