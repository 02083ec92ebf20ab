"""Where the ids of a prompt stand on the thinker's three axes: time, height, width (TMRoPE, arXiv:2503.20215 §2.2).

An incremental builder: every piece needs only what came before it. A piece begins one behind the furthest place of the
piece before it, which for pictures taller than wide is not the furthest of all.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

import numpy as np

from legato.protocols import Place


@dataclass(frozen=True)
class Grid:
    """Rows of a film: `patches` pictures in time of `rows` × `columns` rows each, `patch_seconds` apart."""

    patches: int
    rows: int
    columns: int
    patch_seconds: float = 1.0

    @property
    def patch_rows(self) -> int:
        """Rows of one picture in time."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Turn:
    """Rows [start, stop) of a film, or of its sound, that stand together while both take turns."""

    kind: Literal["video", "audio"]
    start: int
    stop: int
    places: tuple[Place, ...]


class Places:
    """`next_place` is where text would go on."""

    def __init__(self, positions_per_second: int, seconds_per_chunk: int) -> None:
        self.positions_per_second = positions_per_second
        self.chunk_positions = positions_per_second * seconds_per_chunk
        self.next_place = 0

    def text(self, count: int) -> list[Place]:
        """Ids of text, or rows of sound: one behind the other on all axes."""
        out: list[Place] = [(self.next_place + offset,) * 3 for offset in range(count)]
        self.next_place += count
        return out

    def film(self, grid: Grid) -> list[Place]:
        """Rows of a picture, or of a film without its sound."""
        return self._follow(self._film(grid, self.next_place))

    def open_film(self) -> list[Place]:
        """The two ids that begin a film with its sound; they share a place."""
        return [self.text(1)[0]] * 2

    def film_with_sound(self, grid: Grid, sound_rows: int) -> list[Turn]:
        """Rows of a film and of its sound in turns, the film first. Both begin at the same place."""
        base = self.next_place
        film = self._film(grid, base)
        sound: list[Place] = [(base + offset,) * 3 for offset in range(sound_rows)]
        turns: list[Turn] = []
        film_cuts, sound_cuts = self._cuts(film, base), self._cuts(sound, base)
        for index in range(max(len(film_cuts), len(sound_cuts))):
            if index < len(film_cuts):
                start, stop = film_cuts[index]
                turns.append(Turn("video", start, stop, tuple(self._follow(film[start:stop]))))
            if index < len(sound_cuts):
                start, stop = sound_cuts[index]
                turns.append(Turn("audio", start, stop, tuple(self._follow(sound[start:stop]))))
        return turns

    def close_film(self) -> list[Place]:
        """The two ids that end a film with its sound; they share a place."""
        return self.open_film()

    def _film(self, grid: Grid, base: int) -> list[Place]:
        # Products in float32, one after the other, as the model was trained with.
        seconds = np.arange(grid.patches, dtype=np.float32) * np.float32(grid.patch_seconds)
        times = (seconds * np.float32(self.positions_per_second)).astype(np.int64).tolist()
        return [
            (base + time, base + row, base + column)
            for time in times
            for row in range(grid.rows)
            for column in range(grid.columns)
        ]

    def _follow(self, places: list[Place]) -> list[Place]:
        self.next_place = max(axis for place in places for axis in place) + 1
        return places

    def _cuts(self, places: Seq[Place], base: int) -> list[tuple[int, int]]:
        """Where to cut rows into turns by their time. The border moves on by one turn a cut, however long a gap is."""
        cuts, start, border = [], 0, self.chunk_positions
        for index, place in enumerate(places):
            if place[0] - base >= border:
                cuts.append((start, index))
                start, border = index, border + self.chunk_positions
        return [*cuts, (start, len(places))]
