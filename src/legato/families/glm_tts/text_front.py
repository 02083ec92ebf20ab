"""Text → what GLM-TTS was trained to read: numbers in words, few kinds of punctuation, lower case; and its pieces.

The steps and their order are the release's; so are readings that look odd (a hyphen between digits is 减, "minus").
Numbers are read by wetext, the rules of WeTextProcessing without pynini. Where we differ from the release, on purpose:
see `DIFFERENCES`.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import emoji

from legato.errors import ConfigError
from legato.text import numbers_en, numbers_zh
from legato.text.normalize import normalize

from .text_symbols import MARKS, OPENERS_AND_CLOSERS, SPOKEN, VARIANTS

DIFFERENCES = (
    "a long clause of few, long words is cut at a word; the release stops with an IndexError",
    "powers (3*10^120000) are read by the rules of Chinese numbers; the release reads 120000 as 一十万二万, drops the "
    "minus of -0.5 and reads only the first of several",
    "digits that wetext leaves in English are read apart and without and (two hundred thirty four); the release: two "
    "hundred and thirtyfour",
    "an asterisk that wetext leaves between English numbers is a word of its own; the release glues it to them",
    "an empty text is nothing to say; the release makes it a full stop",
    "syllables are counted by the embedded voice's pronunciations, not the CMU dictionary: a cut may fall elsewhere",
)


class NumberReader(Protocol):
    """Reads what is written in digits: dates, money, measures, telephone numbers."""

    def chinese(self, text: str) -> str: ...

    def english(self, text: str) -> str: ...


class WeText:
    """wetext's rules, set as the release sets WeTextProcessing's."""

    def __init__(self) -> None:
        """Raises ConfigError when wetext is not installed."""
        try:
            import wetext
        except ImportError as error:
            raise ConfigError(
                "GLM-TTS reads numbers with the library wetext, which is not installed: "
                "pip install 'legato-speech[glm-tts]'"
            ) from error
        self._zh: Any = wetext.Normalizer(lang="zh", operator="tn", traditional_to_simple=True, full_to_half=True)
        self._en: Any = wetext.Normalizer(lang="en", operator="tn")

    def chinese(self, text: str) -> str:
        return _read(self._zh, text, "zh")

    def english(self, text: str) -> str:
        return _read(self._en, " ".join(text.split()), "en")


def _read(rules: Any, text: str, language: str) -> str:
    """What the rules make of a text. A few texts break wetext 0.1 (it asserts); they are read by our own rules."""
    try:
        return str(rules.normalize(text))
    except (AssertionError, LookupError, RuntimeError, ValueError):
        return normalize(text, language)


class TextFront:
    """Normalises and cuts; holds the number rules, nothing of any text."""

    def __init__(self, numbers: NumberReader | None = None) -> None:
        self._numbers = numbers or WeText()

    def normalize(self, text: str) -> str:
        """The text as the model reads it, with a mark at its end; "" when nothing is there to say."""
        text = _plain(text)
        text = _punctuated(self._chinese(text) if has_chinese(text) else self._english(text))
        return _ended(text) if has_chinese(text) or any(map(str.isalnum, text)) else ""

    def _chinese(self, text: str) -> str:
        text = _POWER.sub(_spoken_power, text)
        text = _BETWEEN_DIGITS.sub("减", text).replace("-", "")
        text = re.sub(f"咯(?=[{re.escape(MARKS)}])", "喽", text)
        for written, said in VARIANTS.items():
            text = text.replace(written, said)
        text = _corrected(self._numbers.chinese(text))
        return _chinese_signs(text).lower()

    def _english(self, text: str) -> str:
        text = self._numbers.english(text.replace("'", "’"))
        text = _without_brackets(text)
        text = _times(text, "0-9", " multiply ").replace("—", " ").replace("’", "'")
        text = re.sub(r"\d+", lambda match: _english_number(match[0]), text)
        text = re.sub(r"[^\w\s.,!?':;]", "", re.sub(r"\s+", " ", text)).lower()
        text = re.sub(r"([.,!?':;])\1+", r"\1", text)
        return re.sub(r"\s*([.,?!':;])\s*", r"\1 ", text).strip()


def has_chinese(text: str) -> bool:
    """Whether there is a Chinese character, or a private one that stands for one (pinyin.py)."""
    return re.search("[\u4e00-\u9fff\ue000-\uf8ff]", text) is not None


# --- before ---

_LINE_ENDS = ".!?;:：。！？；，"


def _plain(text: str) -> str:
    """One line without emojis: every line of the text ends with a mark; "1. " at the start is an item's number."""
    text = text.encode("utf-8", "ignore").decode("utf-8")  # lone surrogates break the number rules
    text = re.sub(r"^(\d+)\. ", r"\1。", text).replace("\\n", "\n")
    lines = [_closed(line) for line in map(str.strip, text.split("\n")) if line]
    text = ("" if has_chinese(text) else " ").join(lines)
    return re.sub("(?<=[a-zA-Z])-(?=[a-zA-Z])", " ", emoji.replace_emoji(text, ""))


def _closed(line: str) -> str:
    if line[-1] in _LINE_ENDS:
        return line
    return line + ("。" if has_chinese(line) else ". ")


_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s*-\s*(?=\d)")
_POWER = re.compile(r"(-?\d+(?:\.\d+)?)[*x×](\d+(?:\.\d+)?)\^(-?\d+(?:\.\d+)?)")


def _spoken_power(match: re.Match[str]) -> str:
    factor, base, exponent = (_chinese_number(part) for part in match.groups())
    return f"{factor}乘{base}的{exponent}次方"


def _chinese_number(text: str) -> str:
    sign = "负" if text.startswith("-") else ""
    whole, _, fraction = text.lstrip("-").partition(".")
    fraction = fraction.rstrip("0")
    said = numbers_zh.cardinal(int(whole))
    return sign + said + (f"点{numbers_zh.digits(fraction)}" if fraction else "")


# --- after the numbers ---


def _corrected(text: str) -> str:
    """A lone 额 is the filler 呃; a tilde ends a sentence; an asterisk between numbers or letters is 乘."""
    text = text.replace("\\", "")
    text = re.sub(r"(?<!\w)额(?!\w)", "呃", text)
    text = re.sub("[~～]+", "。", text)
    return _times(text, "一二三四五六七八九十百千万亿", "乘").strip()


def _times(text: str, digits: str, word: str) -> str:
    """Asterisks between numbers or letters (brackets may stand beside them) said; the others dropped."""
    kinds = f"[{digits}a-zA-Z]"
    between = rf"(?:(?<={kinds})|(?<={kinds}\)))\s*\*\s*(?=\(?{kinds})"
    return re.sub(between, word, text).replace("*", "")


def _without_brackets(text: str, more: str = "") -> str:
    return text.translate(dict.fromkeys(map(ord, OPENERS_AND_CLOSERS + more)))


def _chinese_signs(text: str) -> str:
    """Brackets and quotes dropped, marks reduced to ，。？！, other signs said."""
    text = _without_brackets(text, "‘’").replace(" - ", "，").replace("——", "，")
    text = re.sub("[,:：;；、]+", "，", text)
    text = re.sub("[.…]+", "。", text)
    text = re.sub("[_·'\"“”|]+", "", text)
    return text.translate(SPOKEN)


def _english_number(digits: str) -> str:
    return numbers_en.cardinal(int(digits)).replace("-", " ")


# --- punctuation ---


def _punctuated(text: str) -> str:
    """Spaces only within English, one mark where several stood (the last of them), no exclamation."""
    text = _spaced(text)
    marks = f"[{MARKS}]"
    text = re.sub(rf"({marks})\1+", r"\1", text)
    text = re.sub(rf"{marks}(?={marks})", "", text)
    return text.replace("#", "").replace("！", "。").replace("!", ".")


def _spaced(text: str) -> str:
    """A run of spaces becomes one between two ASCII letters or digits, or after an ASCII mark; elsewhere none."""
    return re.sub(" +(?=(.?))", lambda match: " " if _space_stays(text, match) else "", text, flags=re.DOTALL)


def _space_stays(text: str, match: re.Match[str]) -> bool:
    before = text[match.start() - 1] if match.start() else ""
    return bool(re.match("[a-zA-Z0-9]", match[1]) and re.match("[a-zA-Z0-9.,!?;:]", before))


def _ended(text: str) -> str:
    """A question mark at the end stays; any other mark there, or none, becomes a full stop of the text's script."""
    if text[-1:] in ("？", "?"):
        return text
    return (text[:-1] if text[-1:] in MARKS else text) + ("。" if has_chinese(text) else ".")
