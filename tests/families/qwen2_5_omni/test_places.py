"""Places of 400 random layouts, equal to the reference's, and only from what came before."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from legato.families.qwen2_5_omni.places import Grid, Places

from .conftest import DATA

LAYOUTS: list[Any] = json.loads((DATA / "places.json").read_text(encoding="utf-8"))
TEXT, AUDIO, IMAGE, VIDEO = range(4)
Row = tuple[tuple[int, ...], int]
"""A place, and the kind of id that stands there."""


def sound_rows(mel_frames: int) -> int:
    return ((mel_frames - 1) // 2 + 1 - 2) // 2 + 1


def add(places: Places, piece: list[Any]) -> list[Row]:
    kind, *sizes = piece

    def text(count: int) -> list[Row]:
        return [(place, TEXT) for place in places.text(count)]

    if kind == "text":
        return text(sizes[0])
    if kind == "audio":
        return [*text(1), *[(place, AUDIO) for place in places.text(sound_rows(sizes[0]))], *text(1)]
    if kind == "image":
        rows = places.text(1), places.film(Grid(1, sizes[0] // 2, sizes[1] // 2)), places.text(1)
        return [(p, k) for part, k in zip(rows, (TEXT, IMAGE, TEXT), strict=True) for p in part]
    grid = Grid(sizes[0], sizes[1] // 2, sizes[2] // 2, sizes[3])
    if kind == "video":
        rows = places.text(1), places.film(grid), places.text(1)
        return [(p, k) for part, k in zip(rows, (TEXT, VIDEO, TEXT), strict=True) for p in part]
    out: list[Row] = [(place, TEXT) for place in places.open_film()]
    for turn in places.film_with_sound(grid, sound_rows(sizes[4])):
        out += [(place, VIDEO if turn.kind == "video" else AUDIO) for place in turn.places]
    return out + [(place, TEXT) for place in places.close_film()]


def digest(rows: list[Row]) -> str:
    both = [[place for place, _ in rows], [kind for _, kind in rows]]
    return hashlib.sha256(json.dumps(both).encode()).hexdigest()[:16]


def test_four_hundred_layouts() -> None:
    assert len(LAYOUTS) == 400
    further = 0
    for pieces, count, decode_from, wanted in LAYOUTS:
        places = Places(positions_per_second=25, seconds_per_chunk=2)
        rows = [row for piece in pieces for row in add(places, piece)]
        assert len(rows) == count
        assert digest(rows) == wanted, pieces
        furthest = max(axis for place, _ in rows for axis in place)
        assert furthest + 1 == decode_from
        further += furthest >= places.next_place
    assert further, "in some the reply starts further on than text in the prompt would"


@pytest.mark.parametrize("change", [("chunk_positions", 49), ("positions_per_second", 24)])
def test_other_rules_give_other_places(change: tuple[str, int]) -> None:
    wrong = 0
    for pieces, _, _, wanted in LAYOUTS[:100]:
        places = Places(positions_per_second=25, seconds_per_chunk=2)
        setattr(places, *change)
        wrong += digest([row for piece in pieces for row in add(places, piece)]) != wanted
    assert wrong > 10
