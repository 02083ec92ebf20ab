"""Text → phoneme characters of piccolo's alphabet: English, Mandarin, and the two in one sentence."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from .mandarin import Mandarin, has_han

_END_MARKS = (".", "!", "?")


class Phonemes:
    """Reads one utterance. English is read by the g2p of hibari-tts (misaki's conventions)."""

    def __init__(self) -> None:
        from hibari.g2p import G2P

        self._g2p: Any = G2P()

    def __call__(self, text: str) -> str:
        return self._mandarin(text) if has_han(text) else self.english(text)

    def english(self, text: str) -> str:
        """The g2p takes the stop after a final "A.P.I." for part of the word; it is given back here."""
        phonemes, mark = str(self._g2p(text)), text.rstrip()[-1:]
        return phonemes + mark if mark in _END_MARKS and not phonemes.endswith(mark) else phonemes

    @cached_property
    def _mandarin(self) -> Mandarin:
        return Mandarin(lambda run: str(self._g2p(run.strip())))
