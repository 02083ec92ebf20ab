"""Mandarin → phoneme characters with tones, in the alphabet that piccolo's English phonemes come in (Kokoro's).

Words are cut by jieba and read by pypinyin; a syllable is its initial, its final and a tone arrow behind the vowel. Not
normalisation: digits and symbols must have become words before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from legato.errors import UnsupportedFeature
from legato.text.pinyin import read_syllable

TONES = {"1": "→", "2": "↗", "3": "↓", "4": "↘", "5": ""}

INITIALS = {
    "": "", "b": "p", "p": "pʰ", "m": "m", "f": "f", "d": "t", "t": "tʰ", "n": "n", "l": "l", "g": "k", "k": "kʰ",
    "h": "x", "j": "ʨ", "q": "ʨʰ", "x": "ɕ", "zh": "ꭧ", "ch": "ꭧʰ", "sh": "ʂ", "r": "ɻ", "z": "ʦ", "c": "ʦʰ", "s": "s",
}  # fmt: skip
"""Pinyin initial → phonemes."""

FINALS = {
    "a": "a*", "ai": "ai*", "an": "a*n", "ang": "a*ŋ", "ao": "au*", "e": "ɤ*", "ei": "ei*", "en": "ə*n", "eng": "ə*ŋ",
    "er": "ɚ*", "i": "i*", "ia": "ja*", "ian": "jɛ*n", "iang": "ja*ŋ", "iao": "jau*", "ie": "je*", "in": "i*n",
    "ing": "i*ŋ", "io": "jɔ*", "iong": "jʊ*ŋ", "iou": "jou*", "o": "wo*", "ong": "ʊ*ŋ", "ou": "ou*", "u": "u*",
    "ua": "wa*", "uai": "wai*", "uan": "wa*n", "uang": "wa*ŋ", "uei": "wei*", "uen": "wə*n", "ueng": "wə*ŋ",
    "uo": "wo*", "ü": "y*", "üan": "ɥɛ*n", "üe": "ɥe*", "ün": "y*n", "ê": "ɛ*",
    "m": "m*", "n": "n*", "ng": "ŋ*", "hm": "hm*", "hng": "hŋ*",
}  # fmt: skip
"""Pinyin final, written out in full → phonemes; the tone goes where the star is."""

APICAL = ("z", "c", "s", "zh", "ch", "sh", "r")
"""Initials after which "i" is no [i] but a buzz of the initial's own place."""

PUNCTUATION = str.maketrans(
    {
        "，": ", ", "、": ", ", "。": ". ", "．": ". ", "！": "! ", "？": "? ", "：": ": ", "；": "; ", "（": " (",
        "）": ") ", "《": " “", "》": "” ", "「": " “", "」": "” ", "【": " “", "】": "” ", "“": " “", "”": "” ",
    }
)  # fmt: skip

HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_RUNS = re.compile(f"[{HAN}]+|[^{HAN}]+")
_HAN = re.compile(f"[{HAN}]")
_SPACES = re.compile(r"\s+")


def has_han(text: str) -> bool:
    """Whether there is any Chinese character in it."""
    return _HAN.search(text) is not None


class Mandarin:
    """Reads Chinese text; whatever stands between the characters is read by `foreign`.

    Raises UnsupportedFeature when the libraries are not installed.
    """

    def __init__(self, foreign: Callable[[str], str]) -> None:
        self._foreign = foreign
        self._cut, self._pinyin, self._split = _libraries()

    def __call__(self, text: str) -> str:
        """Phoneme characters of one utterance, a space between words."""
        parts = [
            self._words(run) if has_han(run) else self._between(run)
            for run in _RUNS.findall(text.translate(PUNCTUATION).strip())
        ]
        return _SPACES.sub(" ", "".join(parts)).strip()

    def _words(self, run: str) -> str:
        return " ".join("".join(map(self.syllable, self._pinyin(word))) for word in self._cut(run))

    def _between(self, run: str) -> str:
        return f" {self._foreign(run)} " if any(c.isalpha() for c in run) else run

    def syllable(self, pinyin: str) -> str:
        """Phonemes of one syllable ("zhong1"); a character without a reading gives nothing."""
        if not pinyin or pinyin[-1] not in TONES:
            return ""
        initial, final = self._split(pinyin)
        return _sound(initial, final, TONES[pinyin[-1]])


def spelled(pinyin: str) -> str:
    """Phonemes of a syllable as an author writes it ("lü4", "lv4", "zi"). Raises RequestError when it is none."""
    syllable = read_syllable(pinyin)
    final = "i" if syllable.final in ("ii", "iii") else syllable.final.replace("v", "ü")
    return _sound(syllable.initial, final, TONES[str(syllable.tone)])


def _sound(initial: str, final: str, tone: str) -> str:
    if final == "i" and initial in APICAL:
        sound = "ɨ*"
    elif final == "o" and not initial:
        sound = "ɔ*"
    else:
        sound = FINALS.get(final, "")
    return INITIALS[initial] + sound.replace("*", tone)


def _libraries() -> tuple[Any, Any, Callable[[str], tuple[str, str]]]:
    """Cutting into words, reading a word, and splitting a syllable into initial and final."""
    try:
        import jieba
        from pypinyin import Style, lazy_pinyin
        from pypinyin.contrib.tone_convert import to_finals, to_initials
    except ImportError as error:
        raise UnsupportedFeature(
            f"Chinese needs the package {error.name}: pip install jieba pypinyin", "input"
        ) from error
    jieba.setLogLevel(logging.ERROR)

    def read(word: str) -> list[str]:
        syllables: list[str] = lazy_pinyin(word, style=Style.TONE3, neutral_tone_with_five=True, errors="ignore")
        return syllables

    def split(pinyin: str) -> tuple[str, str]:
        plain = pinyin[:-1]
        if plain in ("m", "n", "ng", "hm", "hng"):
            return "", plain
        return to_initials(plain, strict=True), to_finals(plain, strict=True, v_to_u=True)

    return jieba.lcut, read, split
