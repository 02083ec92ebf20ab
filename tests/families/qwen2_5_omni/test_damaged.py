"""Files damaged at random: each is read or refused with a RequestError, nothing else."""

from __future__ import annotations

import random

import pytest

from legato.errors import RequestError
from legato.families.qwen2_5_omni.media import MediaReader
from legato.families.qwen2_5_omni.parts import ThinkerConfig
from legato.families.qwen2_5_omni.pictures import PixelLimits
from legato.types import Part, PartKind

from .media_files import film_file, picture_file, pixels, sine, sound_file

KINDS: tuple[PartKind, ...] = ("audio", "image", "video")
LIMITS = PixelLimits(least=28 * 28, film_least=28 * 28)
HEADER_BYTES = 200


def files() -> list[tuple[PartKind, bytes]]:
    picture, film = pixels(1, 64, 80, 3).numpy(), pixels(2, 5, 48, 64, 3).numpy()
    return [
        *(("audio", sound_file(sine(0.6, 24000), 24000, kind)) for kind in ("WAV", "FLAC", "OGG", "MP3")),
        *(("image", picture_file(picture, kind)) for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP")),
        ("video", film_file(film, 4, sine(1.0))),
    ]


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Cut off, with wrong bytes anywhere or in its header, or with a stretch replaced by another."""
    out = bytearray(content)
    how = chance.randrange(4)
    if how == 0:
        return bytes(out[: chance.randrange(len(out) + 1)])
    if how == 3:
        start = chance.randrange(len(out))
        out[start : start + chance.randrange(100)] = chance.randbytes(chance.randrange(60))
        return bytes(out)
    for _ in range(chance.choice((1, 3, 20))):
        out[chance.randrange(len(out) if how == 1 else min(HEADER_BYTES, len(out)))] = chance.randrange(256)
    return bytes(out)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_or_refused(thinker_config: ThinkerConfig, seed: int) -> None:
    chance, reader, known = random.Random(seed), MediaReader(thinker_config, LIMITS), files()
    read = refused = 0
    for _ in range(150):
        kind, content = chance.choice(known)
        if chance.random() < 0.1:
            kind = chance.choice(KINDS)
        part = Part(kind, damaged(content, chance))
        try:
            reader.read(part, "it", audio_in_video=chance.random() < 0.5)
            read += 1
        except RequestError:
            refused += 1
    assert read > 20 and refused > 20
