"""The release's cut of a text into pieces: after a mark once 30 characters are there, and never more than 60.

A Chinese character counts 1, an English word 0.7 for each syllable, anything else 1.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

from .text_symbols import MARKS

LEAST_LENGTH, MOST_LENGTH = 30, 60
SYLLABLE_LENGTH = 0.7
WORD_MARKS = "'-"
VOWELS = frozenset("iuɑɔɛɜəʌɪʊæAIWYOQᵊᵻaoeɐ")
"""Of the phonemes that hibari writes; capitals are diphthongs."""

CACHED_WORDS = 8192


def split_text(text: str, least: int = LEAST_LENGTH, most: int = MOST_LENGTH) -> list[str]:
    """The pieces of a normalised text; joined they are the text."""
    return ["".join(part) for sentence in _sentences(_units(text), least) for part in _cut(sentence, most)]


def _units(text: str) -> list[str]:
    """Chinese characters, words, other characters one by one; white space belongs to the unit before it."""
    units: list[str] = []
    in_word = False
    for char in text:
        ideograph = "CJK" in (name := unicodedata.name(char, "")) or "IDEOGRAPH" in name
        of_word = not ideograph and (char.isalpha() or (in_word and char in WORD_MARKS))
        if (of_word and in_word) or (char.isspace() and units):
            units[-1] += char
        else:
            units.append(char)
        in_word = of_word
    return units


def _sentences(units: list[str], least: int) -> list[list[str]]:
    """Cut after a mark wherever `least` has come together; what is left over is a piece, however short."""
    sentences: list[list[str]] = [[]]
    length = 0.0
    for unit in units:
        sentences[-1].append(unit)
        length += _length(unit)
        if unit.strip() and unit.strip() in MARKS and length >= least:
            sentences.append([])
            length = 0.0
    return [sentence for sentence in sentences if sentence]


def _cut(sentence: list[str], most: int) -> list[list[str]]:
    """A sentence longer than `most` is cut after so many units, or one later if that is a mark.

    A sentence of fewer, longer units (English words) is cut in front of the unit that goes beyond `most`.
    """
    parts = []
    while sum(map(_length, sentence)) > most:
        at = most if len(sentence) > most else _units_within(sentence, most)
        if at < len(sentence) and sentence[at].strip() in MARKS:
            at += 1
        parts.append(sentence[:at])
        sentence = sentence[at:]
    return [*parts, sentence] if sentence else parts


def _units_within(sentence: list[str], most: int) -> int:
    length = 0.0
    for index, unit in enumerate(sentence):
        length += _length(unit)
        if length > most:
            return max(1, index)
    return len(sentence)


def _length(unit: str) -> float:
    word = unit.strip()
    if word.isalpha() and word.isascii():
        return _syllables(word) * SYLLABLE_LENGTH
    return 1.0


@lru_cache(CACHED_WORDS)
def _syllables(word: str) -> int:
    """Vowels of an English word as it is pronounced; at least 1."""
    return max(1, sum(char in VOWELS for char in str(_g2p()(word))))


@lru_cache(1)
def _g2p() -> Any:
    from hibari.g2p import G2P

    return G2P()
