"""Speak an LLM's answer while it is still being written: the engine takes an iterator of text pieces."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import legato


def language_model() -> Iterator[str]:
    """Stands in for any source of tokens."""
    yield from [
        "Certainly.",
        "The",
        "museum",
        "opens",
        "at",
        "nine.",
        "I",
        "would",
        "go",
        "early,",
        "before",
        "it",
        "gets",
        "crowded.",
    ]


def main() -> None:
    with legato.load() as engine:
        pieces = (f"{word} " for word in language_model())
        for chunk in engine.stream(pieces, seed=7):
            print(f"{chunk.start_sample / chunk.sample_rate_hz:6.2f} s  +{chunk.duration_s:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
