"""Pronunciations that an author writes into a text: {行|hang2}, {Qatar|/kˈʌtɚ/}. Reading them is the model's part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MARK = re.compile(r"\{([^{}|]+)\|([^{}|]*)\}")

LONGEST_WRITTEN, LONGEST_MARK = 24, 120
"""Characters after an opening brace in which a "|", and then the closing brace, may keep a mark together."""


@dataclass(frozen=True)
class Mark:
    """Characters as `written`, and how they are `said`."""

    written: str
    said: str

    def __str__(self) -> str:
        return f"{{{self.written}|{self.said}}}"


def pieces(text: str) -> Iterator[str | Mark]:
    """The text's parts in order: what is plain, and the marks between."""
    start = 0
    for match in MARK.finditer(text):
        if match.start() > start:
            yield text[start : match.start()]
        yield Mark(match[1], match[2])
        start = match.end()
    if start < len(text):
        yield text[start:]


def as_written(text: str) -> str:
    """The text as its reader would see it, without what the marks say."""
    return MARK.sub(r"\1", text)
