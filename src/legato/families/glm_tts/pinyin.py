"""Pinyin as people write it → the model's phonemes, and pronunciations written into the text: {行|hang2}.

A phoneme token is an initial (SH) or a final with its tone (ANG4), written in full as in `legato.text.pinyin`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from legato.errors import RequestError
from legato.text.marks import MARK
from legato.text.pinyin import read_syllable, syllables_of

FIRST_PLACE, PLACES = 0xE000, 0x1900
"""Characters of Unicode's private use area: each stands for one character whose pronunciation is given."""

_PRIVATE = re.compile("[\ue000-\uf8ff]")


def phonemes_of(written: str) -> tuple[str, ...]:
    """Phoneme names of a pinyin syllable: "hang2" → ("H", "ANG2"). Raises RequestError when it is none."""
    syllable = read_syllable(written)
    name = f"{syllable.final}{syllable.tone}".upper()
    return (syllable.initial.upper(), name) if syllable.initial else (name,)


def tokens(names: tuple[str, ...]) -> str:
    """Phoneme names as the tokenizer's added tokens: ("H", "ANG2") → "<|H|><|ANG2|>"."""
    return "".join(f"<|{name}|>" for name in names)


@dataclass(frozen=True)
class Marked:
    """A text in which each character with a given pronunciation is a private character.

    `said` maps these to their phoneme names, `written` to their marks.
    """

    text: str
    said: dict[str, tuple[str, ...]]
    written: dict[str, str]

    def spoken(self, text: str) -> str:
        """A text made from this one, with phoneme tokens for the private characters."""
        return _PRIVATE.sub(lambda match: tokens(self.said.get(match[0], ())), text)

    def restored(self, text: str) -> str:
        """A text made from this one, with the marks as they were written."""
        return _PRIVATE.sub(lambda match: self.written.get(match[0], ""), text)


def read_marks(text: str) -> Marked:
    """Take `{characters|pinyin pinyin …}` out of a text: one syllable for each character, spaces between as you like.

    Raises RequestError naming the mark when syllables and characters do not match or a syllable is none.
    """
    said: dict[str, tuple[str, ...]] = {}
    written: dict[str, str] = {}

    def place(match: re.Match[str]) -> str:
        syllables = syllables_of(match[0], match[1], match[2])
        places = [chr(FIRST_PLACE + len(said) + index) for index in range(len(syllables))]
        if len(said) + len(places) > PLACES:
            raise RequestError(f"at most {PLACES} characters of a text can have their pronunciation given", "input")
        for at, char, syllable in zip(places, match[1], syllables, strict=True):
            said[at], written[at] = phonemes_of(syllable), f"{{{char}|{syllable}}}"
        return "".join(places)

    return Marked(MARK.sub(place, _PRIVATE.sub("", text)), said, written)
