"""A prompt in pieces: ids, where they stand, what stands for them in a prefix cache, and which rows of media they take.

The pieces are a pure function of text and sizes of media; no feature is needed to lay them out.
"""

from __future__ import annotations

from dataclasses import dataclass

from legato.conversation import MediaBlock
from legato.protocols import Place

from .media import Film, Medium, Picture, Sound, row_keys
from .parts import ThinkerConfig
from .places import Places
from .tokenizer import TextTokenizer


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive ids of the prompt: text, or rows of `block` from `start` on."""

    ids: tuple[int, ...]
    places: tuple[Place, ...]
    keys: tuple[int, ...]
    block: MediaBlock | None = None
    start: int = 0


class Pieces:
    """Takes what a prompt says, in order. `length` counts ids; text waits until something else comes after it, because
    letters on either side of a border between parts may share an id."""

    def __init__(self, config: ThinkerConfig, tokenizer: TextTokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.places = Places(config.positions_per_second, config.seconds_per_chunk)
        self.length = 0
        self._letters = ""
        self._pieces: list[Piece] = []
        self._blocks: list[MediaBlock] = []

    def count(self) -> int:
        """Ids so far, text that waits included."""
        self._flush()
        return self.length

    def take(self) -> list[Piece]:
        """Pieces since the last call."""
        self._flush()
        out, self._pieces = self._pieces, []
        return out

    def take_blocks(self) -> list[MediaBlock]:
        """Blocks of media since the last call, each once."""
        out, self._blocks = self._blocks, []
        return list(dict.fromkeys(out))

    def open_turn(self, role: str) -> None:
        """What comes before anything that one side says."""
        self.special(self.tokenizer.start)
        self.text(f"{role}\n")

    def close_turn(self) -> None:
        self.special(self.tokenizer.end)
        self.text("\n")

    def text(self, text: str) -> None:
        self._letters += text

    def special(self, id: int) -> None:
        """An id that no text stands for."""
        self._flush()
        self._add_ids((id,))

    def medium(self, medium: Medium) -> None:
        """A whole medium, with the ids that begin and end it."""
        ids = self.config.ids
        if isinstance(medium, Sound):
            self.special(ids.audio_start)
            for block in medium.blocks:
                self.sound_rows(block)
            self.special(ids.audio_end)
        elif isinstance(medium, Picture):
            self.special(ids.vision_start)
            self._rows(medium.block, 0, self.places.film(medium.grid))
            self.special(ids.vision_end)
        elif medium.sound is not None:
            self._film_with_sound(medium, medium.sound)
        else:
            self.special(ids.vision_start)
            places = self.places.film(medium.grid)
            for index, block in enumerate(medium.blocks):
                self._rows(block, 0, places[index * block.weight : (index + 1) * block.weight])
            self.special(ids.vision_end)

    def _film_with_sound(self, film: Film, sound: Sound) -> None:
        ids = self.config.ids
        self._flush()
        self._piece((ids.vision_start, ids.audio_start), tuple(self.places.open_film()))
        for turn in self.places.film_with_sound(film.grid, sound.rows):
            at = turn.start
            for block, first, stop in _spans(film.blocks if turn.kind == "video" else sound.blocks, at, turn.stop):
                count = stop - first
                self._rows(block, first, list(turn.places[at - turn.start : at - turn.start + count]))
                at += count
        self._piece((ids.audio_end, ids.vision_end), tuple(self.places.close_film()))

    def open_live(self) -> None:
        """Sound follows, block by block."""
        self.special(self.config.ids.audio_start)

    def sound_rows(self, block: MediaBlock) -> None:
        """Rows of one block of sound."""
        self._rows(block, 0, self.places.text(block.weight))

    def close_live(self) -> None:
        """The sound has ended, and with it what the user says; the reply follows."""
        self.special(self.config.ids.audio_end)
        self.close_turn()
        self.open_turn("assistant")

    def _flush(self) -> None:
        letters, self._letters = self._letters, ""
        if letters:
            self._add_ids(tuple(self.tokenizer.encode(letters)))

    def _add_ids(self, ids: tuple[int, ...]) -> None:
        self._piece(ids, tuple(self.places.text(len(ids))))

    def _piece(self, ids: tuple[int, ...], places: tuple[Place, ...]) -> None:
        self._pieces.append(Piece(ids, places, ids))
        self.length += len(ids)

    def _rows(self, block: MediaBlock, start: int, places: list[Place]) -> None:
        """Rows of a block from `start` on, as many as there are places."""
        self._flush()
        media_id = self.config.vocabulary
        keys = row_keys(block, start, start + len(places))
        self._pieces.append(Piece((media_id,) * len(places), tuple(places), keys, block, start))
        self._blocks.append(block)
        self.length += len(places)


def _spans(blocks: tuple[MediaBlock, ...], start: int, stop: int) -> list[tuple[MediaBlock, int, int]]:
    """Rows [start, stop) of all blocks in a row, as rows of each block."""
    out, first = [], 0
    for block in blocks:
        a, b = max(start, first) - first, min(stop, first + block.weight) - first
        if a < b:
            out.append((block, a, b))
        first += block.weight
    return out
