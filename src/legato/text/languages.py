"""Which language each stretch of a mixed text is read in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Literal

from .scripts import HAN, HANGUL, KANA

Language = Literal["en", "zh", "other"]

_PUNCTUATION = "\u3001-\u303f\uff01-\uff60"
_IDEOGRAPH = re.compile(f"[{HAN}]")
_WIDE_MARK = re.compile(f"[{_PUNCTUATION}]")
_CHINESE = re.compile(f"([{HAN}][{HAN}{_PUNCTUATION}]*)")
_JAPANESE_OR_KOREAN = re.compile(f"[{KANA}{HANGUL}]")
_LATIN_TOKEN = re.compile(rf"(?<![^\s{HAN}{_PUNCTUATION}])[A-Za-z][^\s{HAN}{_PUNCTUATION}]*")
_SMALL_WORD = re.compile(r"(?<![\w/.@'’-])[a-z]+(?![\w/@:-])")
_SENTENCE_WORDS = 2  # small words that make Latin letters within Chinese an English sentence, not a name


def base_language(text: str, language: str | None = None) -> Language:
    """What the text as a whole is in: as `language` (a tag such as "en-GB") says, or else by its letters.

    "other" has no rules of its own: its numbers stay as they are written.
    """
    tag = (language or "auto").lower().replace("_", "-").split("-")[0]
    if tag in ("en", "english"):
        return "en"
    if tag in ("zh", "cmn", "chinese", "mandarin"):
        return "zh"
    if tag != "auto" or _JAPANESE_OR_KOREAN.search(text):
        return "other"
    chinese = 2 * len(_IDEOGRAPH.findall(text)) + len(_WIDE_MARK.findall(text))
    return "zh" if chinese > 2 * len(_LATIN_TOKEN.findall(text)) else "en"


def language_spans(text: str, base: Language) -> list[tuple[Language, str]]:
    """The text in spans of one language each; joined they are the text.

    In a text of base "other" everything is. Otherwise ideographs are read in Chinese, and so is a number glued to one
    (第3, 3个). What else stands between them is read in English when the base is English or when it looks like a
    sentence (two words or more in small letters), and in Chinese when it is but a name or a number.
    """
    if base == "other":
        return [(base, text)]
    spans = groupby(_parts(text, base), key=lambda part: part[0])
    return [(language, "".join(piece for _, piece in parts)) for language, parts in spans]


def _parts(text: str, base: Language) -> Iterator[tuple[Language, str]]:
    pieces = _CHINESE.split(text)
    last = len(pieces) - 1
    for index, piece in enumerate(pieces):
        if index % 2 or (base == "zh" and len(_SMALL_WORD.findall(piece)) < _SENTENCE_WORDS):
            yield "zh", piece
            continue
        start = _glued(piece.split(None, 1)[:1], piece[:1]) if index > 0 else 0
        stop = len(piece) - (_glued(piece.rsplit(None, 1)[-1:], piece[-1:]) if index < last else 0)
        start = min(start, stop)
        yield "zh", piece[:start]
        yield "en", piece[start:stop]
        yield "zh", piece[stop:]


def _glued(token: list[str], edge: str) -> int:
    """The length of the token at the edge of a piece when it touches an ideograph and holds a digit, else 0."""
    if not token or edge.isspace() or not any(char.isdigit() for char in token[0]):
        return 0
    return len(token[0])
