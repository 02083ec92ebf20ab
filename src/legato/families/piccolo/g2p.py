"""Text → phoneme characters of piccolo's alphabet: English, Mandarin, and the two in one sentence.

A pronunciation written into the text is followed: {Qatar|/kˈʌtɚ/} gives phoneme characters between slashes, {行|hang2}
pinyin for each Chinese character.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from legato.text.marks import Mark, as_written, pieces
from legato.text.pinyin import syllables_of

from .mandarin import Mandarin, has_han, spelled

_END_MARKS = (".", "!", "?")
_SPACE_BEFORE = re.compile(r" +(?=[,.;:!?…)”])")


class Phonemes:
    """Reads one utterance. English is read by the g2p of hibari-tts (misaki's conventions)."""

    def __init__(self) -> None:
        from hibari.g2p import G2P

        self._g2p: Any = G2P()

    def __call__(self, text: str) -> str:
        """Phonemes of a text. Raises RequestError when a pronunciation in it cannot be followed."""
        read = self._mandarin if has_han(as_written(text)) else self.english
        parts = list(pieces(text))
        if not any(isinstance(part, Mark) for part in parts):
            return read(text)
        said = (marked(part) if isinstance(part, Mark) else _plain(part, read) for part in parts)
        return _SPACE_BEFORE.sub("", " ".join(said)).strip()

    def english(self, text: str) -> str:
        """The g2p takes the stop after a final "A.P.I." for part of the word; it is given back here."""
        phonemes, mark = str(self._g2p(text)), text.rstrip()[-1:]
        return phonemes + mark if mark in _END_MARKS and not phonemes.endswith(mark) else phonemes

    @cached_property
    def _mandarin(self) -> Mandarin:
        return Mandarin(lambda run: str(self._g2p(run.strip())))


def marked(mark: Mark) -> str:
    """What a mark says, as phoneme characters. Raises RequestError when it is neither /phonemes/ nor pinyin."""
    if spells_phonemes(mark):
        return mark.said.strip()[1:-1]
    return "".join(map(spelled, syllables_of(str(mark), mark.written, mark.said)))


def spells_phonemes(mark: Mark) -> bool:
    """Whether a mark gives phoneme characters (between slashes) rather than pinyin."""
    said = mark.said.strip()
    return len(said) > 2 and said[0] == said[-1] == "/"


def _plain(part: str, read: Any) -> str:
    """A stretch between marks; punctuation alone needs no reader of words."""
    return str(read(part)) if any(c.isalnum() for c in part) or has_han(part) else part.strip()
