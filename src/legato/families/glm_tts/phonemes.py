"""Phoneme mode: text in which characters that could be misread are replaced by phonemes.

`乐队` → `<|VE4|>队`. First the user's replacements (longest first), then, in what is left, every run of Chinese is cut
into words (jieba), read (pypinyin), and each character that is not on the safe list becomes its phonemes. Safe are by
default the characters that are read alike in nearly all of pypinyin's words; the release's own list is used if given.

A replacement hides its characters from the word cutter, as in the release. Unlike there, phonemes that the tokenizer
does not have are not spelled out letter by letter: the character stays.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from legato.errors import ConfigError, RequestError
from legato.text.scripts import HAN

from .pinyin import phonemes_of, tokens
from .tokenizer import Tokenizer

SAFE_SHARE = 0.97
"""A character is safe when this share of its occurrences in pypinyin's words has one reading."""

READ_AS = str.maketrans("嗯呣", "恩母")
"""Characters that pypinyin gives no vowel."""

RELEASE_SAFE, RELEASE_REPLACEMENTS = "G2P_able_1word.json", "G2P_replace_dict.jsonl"
_TOKEN = re.compile(r"<\|([A-Z]+[1-5]?)\|>")
_HAN = re.compile(f"[{HAN}\u2e80-\u2eff]")


class Phonemes:
    """Text → hybrid text. Holds tables, nothing of any text."""

    def __init__(
        self,
        known: Collection[str],
        safe: Collection[str] | None = None,
        replacements: Mapping[str, str] | None = None,
    ) -> None:
        """`known` are the tokenizer's phonemes ("ANG4"); `safe` characters stay; `replacements` give hybrid text.

        Raises ConfigError when pypinyin or jieba is not installed, or a replacement uses a phoneme that is not known.
        """
        self._jieba, self._pypinyin = _libraries()
        self._known = frozenset(known)
        self._safe = frozenset(one_reading() if safe is None else safe)
        self._replacements = dict(replacements or {})
        for written, said in self._replacements.items():
            wrong = [name for name in _TOKEN.findall(said) if name not in self._known]
            if wrong or not written:
                raise ConfigError(f"the replacement of {written!r} by {said!r} uses {wrong}, which the model lacks")
        keys = sorted(self._replacements, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, keys)) or "(?!)")

    def hybrid(self, text: str) -> str:
        """The text with phonemes in it."""
        done, start = [], 0
        for match in self._pattern.finditer(text):
            done += [self._plain(text[start : match.start()]), self._replacements[match[0]]]
            start = match.end()
        return "".join((*done, self._plain(text[start:])))

    def _plain(self, text: str) -> str:
        runs = groupby(text, key=lambda char: _HAN.match(char) is not None)
        return "".join(self._chinese(run) if han else run for han, run in ((h, "".join(chars)) for h, chars in runs))

    def _chinese(self, run: str) -> str:
        readings = self._readings(run.translate(READ_AS))
        return "".join(map(self._said, run, readings))

    def _said(self, char: str, reading: tuple[str, ...]) -> str:
        if char in self._safe or not reading or not self._known.issuperset(reading):
            return char
        return tokens(reading)

    def _readings(self, run: str) -> Iterator[tuple[str, ...]]:
        """Phoneme names of each character of a Chinese run; () where pypinyin has none."""
        style = self._pypinyin.Style
        for word, _ in self._jieba.lcut(run):
            initials, finals = (self._syllables(word, s) for s in (style.INITIALS, style.FINALS_TONE3))
            if len(initials) != len(word) or len(finals) != len(word):
                yield from (() for _ in word)
                continue
            for initial, final in zip(initials, finals, strict=True):
                yield _names(initial, final)

    def _syllables(self, word: str, style: Any) -> list[str]:
        found = self._pypinyin.pinyin(word, neutral_tone_with_five=True, strict=True, style=style)
        return [each[0] for each in found]


def _names(initial: str, final: str) -> tuple[str, ...]:
    if not final:
        return ()
    if final.startswith("i") and initial in ("zh", "ch", "sh", "r"):
        final = f"ii{final}"
    elif final.startswith("i") and initial in ("z", "c", "s"):
        final = f"i{final}"
    return tuple(part.upper() for part in (initial, final) if part)


def _libraries() -> tuple[Any, Any]:
    """jieba's tagger and pypinyin."""
    try:
        import jieba.posseg
        import pypinyin
    except ImportError as error:
        raise ConfigError(
            f"phoneme mode needs the library {error.name}, which is not installed: pip install 'legato-speech[glm-tts]'"
        ) from error
    jieba.setLogLevel(logging.WARNING)
    return jieba.posseg, pypinyin


def known_phonemes(tokenizer: Tokenizer) -> frozenset[str]:
    """Names of the tokenizer's phonemes: `ANG4` for `<|ANG4|>`."""
    matches = (_TOKEN.fullmatch(text) for text in tokenizer.added)
    return frozenset(match[1] for match in matches if match)


@lru_cache(1)
def one_reading() -> frozenset[str]:
    """Characters that nearly all of pypinyin's words read alike, and those with one reading that are in no word."""
    from pypinyin.constants import PHRASES_DICT, PINYIN_DICT

    uses: dict[str, Counter[str]] = {}
    for word, readings in PHRASES_DICT.items():
        for char, reading in zip(word, readings, strict=False):
            uses.setdefault(char, Counter())[reading[0]] += 1
    alike = {char for char, count in uses.items() if count.most_common(1)[0][1] >= SAFE_SHARE * count.total()}
    single = {chr(code) for code, readings in PINYIN_DICT.items() if "," not in readings}
    return frozenset(alike | (single - uses.keys()))


# --- tables ---


def read_safe(path: Path) -> frozenset[str]:
    """A JSON list of characters, as the release's G2P_able_1word.json. Raises ConfigError."""
    try:
        chars = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a list of characters: {error}") from error
    if not isinstance(chars, list) or not all(isinstance(char, str) for char in chars):
        raise ConfigError(f"{path} should hold a JSON list of characters")
    return frozenset(chars)


def read_replacements(path: Path) -> dict[str, str]:
    """One JSON object a line, text to what is said: pinyin ("hang2 jia1") or hybrid text ("<|X|><|IAN2|>").

    Raises ConfigError naming the line.
    """
    table: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            table |= _entries(line, f"{path}, line {number}")
    return table


def _entries(line: str, place: str) -> dict[str, str]:
    try:
        entries = json.loads(line)
        return {written: _hybrid(said) for written, said in entries.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f'{place}: should be like {{"行家": "hang2 jia1"}} ({error})') from error
    except RequestError as error:
        raise ConfigError(f"{place}: {error}") from error


def _hybrid(said: str) -> str:
    if "<|" in said:
        return said
    return "".join(tokens(phonemes_of(syllable)) for syllable in said.split())
