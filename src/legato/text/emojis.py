"""Emoji: dropped, or said by name."""

from __future__ import annotations

import emoji

# Counted among the emoji, but plain text to most readers: symbols.py has words for them.
_SYMBOLS = frozenset("©®™↔")
_KEYCAPS = frozenset("0123456789#*")


def drop_emojis(text: str) -> str:
    """A space in place of every emoji; a keycap leaves its digit."""
    return emoji.replace_emoji(text, lambda chars, _: _plain(chars) or " ")


def name_emojis(text: str, language: str) -> str:
    """The name of every emoji in its place: 👍 -> thumbs up. `language` is "en" or "zh"."""
    return emoji.replace_emoji(text, lambda chars, _: _plain(chars) or _name(chars, language))


def _plain(chars: str) -> str:
    return chars[0] if chars[0] in _SYMBOLS or chars[0] in _KEYCAPS else ""


def _name(chars: str, language: str) -> str:
    return emoji.demojize(chars, delimiters=(" ", " "), language=language).replace("_", " ")
