"""Word tables written as running text, so that they stay readable."""

from __future__ import annotations


def words(text: str) -> tuple[str, ...]:
    """The words of `text`, which are separated by white space."""
    return tuple(text.split())
