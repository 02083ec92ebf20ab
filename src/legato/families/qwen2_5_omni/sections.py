"""Tables of a settings file whose values are checked as they are taken: what is wrong is named by its whole path.

What the values mean is not here (config.py).
"""

from __future__ import annotations

from typing import Any

LARGEST = 1e12
"""No number of a model is larger."""


class Section:
    """A table in the file that knows its own path.

    Raises KeyError with the path of what is not there, ValueError with the path, the value and what is possible.
    """

    def __init__(self, raw: Any, path: str) -> None:
        if raw is None:
            raise KeyError(path)
        if not isinstance(raw, dict):
            raise ValueError(f"{path or 'it'} = {raw!r:.60} must be a table of keys and values")
        self.raw, self.path = raw, path

    def at(self, key: str) -> str:
        """The whole path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def section(self, key: str) -> Section:
        return Section(self.raw.get(key), self.at(key))

    def has(self, key: str) -> bool:
        return self.raw.get(key) is not None

    def get(self, *spellings: str) -> Any:
        """The value under the first spelling that is there."""
        return self.raw[self.found(*spellings)]

    def found(self, *spellings: str) -> str:
        """The first spelling that is there."""
        for key in spellings:
            if self.has(key):
                return key
        raise KeyError(self.at(" or ".join(spellings)))

    def refuse(self, key: str, possible: str) -> ValueError:
        """The error for a value that is there and cannot be."""
        return ValueError(f"{self.at(key)} = {self.raw[key]!r:.60} must be {possible}")

    def size(self, *spellings: str) -> int:
        """A whole number of at least 1."""
        key = self.found(*spellings)
        if not _whole(self.raw[key], 1):
            raise self.refuse(key, "a whole number of at least 1")
        size: int = self.raw[key]
        return size

    def id(self, *spellings: str, of: int) -> int:
        """An id of a vocabulary of so many."""
        key = self.found(*spellings)
        if not _whole(self.raw[key], 0, of - 1):
            raise self.refuse(key, f"an id from 0 to {of - 1}")
        id: int = self.raw[key]
        return id

    def number(self, *spellings: str) -> float:
        """A number above 0."""
        key = self.found(*spellings)
        value = self.raw[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LARGEST:
            raise self.refuse(key, "a number above 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false; `default` where it is not there."""
        value = self.raw[key] if self.has(key) else default
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def wholes(self, key: str, least: int = 1, most: float = LARGEST) -> tuple[int, ...]:
        """A list of whole numbers within bounds, both included."""
        value = self.get(key)
        if not isinstance(value, list) or not all(_whole(v, least, most) for v in value):
            raise self.refuse(key, f"a list of whole numbers {_bounds(least, most)}")
        return tuple(value)

    def lists(self, key: str, count: int) -> tuple[tuple[int, ...], ...]:
        """So many lists of whole numbers of at least 1."""
        value = self.get(key)
        rows = value if isinstance(value, list) and all(isinstance(row, list) and row for row in value) else []
        if len(rows) != count or not all(_whole(v, 1) for row in rows for v in row):
            raise self.refuse(key, f"{count} lists of whole numbers of at least 1")
        return tuple(map(tuple, rows))


def _whole(value: Any, least: int, most: float = LARGEST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _bounds(least: int, most: float) -> str:
    return f"of at least {least}" if most == LARGEST else f"from {least} to {most:g}"
