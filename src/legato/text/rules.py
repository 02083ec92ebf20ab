"""A rule of the normaliser: a pattern, what is said in its place, and the option that switches it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Group = Literal[
    "abbreviations",
    "capitals",
    "dates",
    "emails",
    "fractions",
    "money",
    "numbers",
    "ordinals",
    "percent",
    "phones",
    "ranges",
    "roman",
    "symbols",
    "tags",
    "times",
    "units",
    "urls",
]


@dataclass(frozen=True)
class Rule:
    """Replaces every match of `pattern` by what `read` says; `read` may give the match back unread.

    Patterns are linear: each repetition is bounded, or stops at a character that it cannot be tried from again.
    """

    group: Group
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str]], str]


def rule(group: Group, pattern: str, read: Callable[[re.Match[str]], str] | str) -> Rule:
    """A rule from its pattern's source; a string `read` is said as it stands."""
    return Rule(group, re.compile(pattern), (lambda match: read) if isinstance(read, str) else read)


def apply_rules(rules: Iterable[Rule], text: str, switches: Mapping[str, object]) -> str:
    """Apply the rules that are switched on, one after the other."""
    for each in rules:
        if switches[each.group]:
            text = each.pattern.sub(each.read, text)
    return text


def one_of(words: Iterable[str]) -> str:
    """A pattern for any of the words, the longest first."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
