"""Written text into words that can be spoken, in English, Chinese and both mixed. Shared by the families' frontends.

Steps that hold for any language come first (characters, HTML, Markdown, emoji), then the rules of each stretch's
language (english.py, chinese.py), then the spacing. Every step is linear in the text and takes any text.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Literal

from .borders import is_wrapped
from .characters import decode_entities, drop_controls, drop_invisible, fold_variants
from .chinese import CHINESE_RULES
from .emojis import drop_emojis, name_emojis
from .english import ENGLISH_RULES
from .languages import Language, base_language, language_spans
from .marks import Mark, pieces
from .markup import strip_html, strip_markdown
from .rules import Rule, apply_rules
from .scripts import CJK, is_cjk

_RULES: dict[Language, tuple[Rule, ...]] = {"en": ENGLISH_RULES, "zh": CHINESE_RULES, "other": ()}

_SPACES = re.compile(r"[ \t]+")
_SPACE_BEFORE = re.compile(r" +([,.;:!?)]+(?= |$)|[，。！？；：、）」』》])")
_SPACE_AFTER = re.compile(rf"(?<=[，。！？；：、（「『《]) +|(?<=\() +|(?<=[{CJK}]) +(?=[（「『《])")
_PAUSES = frozenset(".,;:!?…。，；：！？、—-")


@dataclass(frozen=True)
class NormalizeOptions:
    """What is rewritten. Everything is by default; a group that is off leaves its text as it is written."""

    abbreviations: bool = True  # Dr. Smith, e.g., vs., No. 5
    capitals: bool = True  # acronyms spelled, shouted words lowered
    dates: bool = True  # 2024-05-03, 5/3/2024, May 3rd, the 1990s, 2024年
    emails: bool = True
    emoji: Literal["drop", "name", "keep"] = "drop"
    fractions: bool = True  # 3/4
    html: bool = True  # tags and entities
    markdown: bool = True
    money: bool = True  # $3.50, 5 EUR, ¥100
    numbers: bool = True  # cardinals, decimals, negatives, years, versions
    ordinals: bool = True  # 1st
    percent: bool = True
    phones: bool = True
    ranges: bool = True  # 3-5, 16:9
    roman: bool = True  # Chapter IV, Louis XIV
    spacing: bool = True  # white space is one space, a line's end ends a sentence
    symbols: bool = True  # & + = → …
    tags: bool = True  # #hashtags and @mentions
    times: bool = True  # 14:05, 3 pm
    unicode: bool = True  # zero-width characters removed, full-width and styled forms made plain
    units: bool = True  # 5 km/h, 20 °C
    urls: bool = True

    @classmethod
    def none(cls) -> NormalizeOptions:
        """Everything off: only control characters are removed."""
        switches: dict[str, bool] = {name: False for name, value in asdict(cls()).items() if value is True}
        return cls(emoji="keep", **switches)


def normalize(text: str, language: str | None = None, options: NormalizeOptions = NormalizeOptions()) -> str:
    """The text as it is spoken, in words.

    `language` is that of the text as a whole ("en", "zh-CN", …); when None it is told by the letters. Numbers within
    Chinese are read in Chinese, and within English in English. In any other language, what would need its words
    (numbers, dates, symbols, …) stays as it is written. Text that is plain words already comes back unchanged.
    """
    if options.html:
        text = decode_entities(strip_html(text))
    text = drop_controls(text)
    if options.unicode:
        text = fold_variants(text)
    base = base_language(text, language)
    if options.emoji != "keep":
        text = drop_emojis(text) if options.emoji == "drop" else name_emojis(text, "zh" if base == "zh" else "en")
    if options.unicode:
        text = drop_invisible(text)
    if options.markdown:
        text = strip_markdown(text)
    if options.spacing:
        text = _join_lines(text)
    switches = asdict(options)
    text = "".join(apply_rules(_RULES[spoken], span, switches) for spoken, span in language_spans(text, base))
    return _tidy(text) if options.spacing else text


def speakable(text: str) -> bool:
    """Whether anything in `text` has a sound: a letter, a digit or an ideograph."""
    return any(char.isalnum() for char in text)


def _join_lines(text: str) -> str:
    """One line: a line break that the author meant ends a sentence, one from typesetting is a space."""
    joined: list[str] = []
    width = 0  # of the line before; 0 when that is blank
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped and joined:
            joined.append(" " if width and is_wrapped(width, stripped[0]) else _stop_after(joined[-1]))
        if stripped:
            joined.append(stripped)
        width = len(line) if stripped else 0
    return "".join(joined)


def _stop_after(line: str) -> str:
    if line.rstrip("\"'”’)）」』》")[-1:] in _PAUSES:
        return " "
    return "。" if is_cjk(line[-1]) else ". "


def _tidy(text: str) -> str:
    """One space between words and none before punctuation."""
    text = _SPACES.sub(" ", text)
    return _SPACE_AFTER.sub("", _SPACE_BEFORE.sub(r"\1", text)).strip()


def normalize_prose(text: str, language: str | None = None) -> str:
    """`normalize`, but for pronunciations written into the text, {行|hang2}: those are the model's to read."""
    return "".join(str(part) if isinstance(part, Mark) else normalize(part, language) for part in pieces(text))
