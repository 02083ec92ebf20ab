"""Text that arrives piece by piece, cut into utterances: the unit of synthesis, about a sentence each.

Characters are looked at one by one, so where the pieces are cut cannot matter. At most an utterance and a short
look-ahead are kept, and a character is looked at again only when the utterance before it was cut short.
"""

from __future__ import annotations

from dataclasses import dataclass

from legato.errors import ConfigError

from .borders import CLOSERS, MARKS, Border, border_at
from .marks import LONGEST_MARK, LONGEST_WRITTEN
from .scripts import is_cjk

FIRST_CHARS = 60
MAX_CHARS = 200
MIN_MAX_CHARS = 12
CJK_LENGTH = 3  # an ideograph is a syllable, about as long to say as three Latin letters
OPENING_LENGTH = 25  # until this much is out, nothing is held back and no utterance is long
SHORT_LENGTH = 20  # a later sentence shorter than this is said together with the next one
LEAST_SHARE = 4  # a cut inside a sentence leaves at least max_chars / LEAST_SHARE in front of it


@dataclass(frozen=True)
class _Candidate:
    """A place where the utterance may end: before character `at`, after `length` of speech."""

    at: int
    length: int
    border: Border


class UtteranceSplitter:
    """Cuts one request's text into utterances of at most `max_chars`, the first ones of about `first_chars`.

    Lengths are speakable: an ideograph counts 3, every other character 1. The utterances depend on the text alone,
    never on how it was cut into pieces, and together they are the text without the white space at the cuts. Each is
    released as soon as no later text can change it.

    - A sentence is an utterance. From the second on, one under 20 is joined with the next if both fit, and what holds
      no letter or digit is joined with the next however early it comes.
    - A sentence over `max_chars` is cut at its last clause border, or before a word such as "and", or at a space, or
      between ideographs, or else at `max_chars`.
    - A pronunciation mark, {行|hang2}, is not cut, unless a sentence ends in it.
    - Until 25 are out, so that sound starts early, sentences are released however short they are, and one over
      `first_chars` is cut at its first clause border after 25, or else at a space (before "and", "which", … if it can
      be). Only when there is no such place below `first_chars` does it go on to the next one.
    """

    def __init__(self, first_chars: int = FIRST_CHARS, max_chars: int = MAX_CHARS) -> None:
        if max_chars < MIN_MAX_CHARS:
            raise ConfigError(f"max_chars is {max_chars}; it must be at least {MIN_MAX_CHARS}")
        if not 1 <= first_chars <= max_chars:
            raise ConfigError(f"first_chars is {first_chars}; it must be from 1 to max_chars ({max_chars})")
        self._first_chars = first_chars
        self._max_chars = max_chars
        self._opening_length = min(OPENING_LENGTH, first_chars)
        self._released_length = 0
        self._begin([], column=0)

    @property
    def pending(self) -> str:
        """The text that is not released yet."""
        return "".join(self._text)

    def push(self, piece: str) -> list[str]:
        """Take the next piece of the text; give the utterances that are complete."""
        released: list[str] = []
        for char in piece:
            self._text.append(char)
            released += self._scan(final=False)
        return released

    def finish(self) -> list[str]:
        """End the text; give the rest. The splitter is then as new."""
        released = self._scan(final=True)
        rest = self.pending.strip()
        self._released_length = 0
        self._begin([], column=0)
        return [*released, rest] if rest else released

    def _begin(self, text: list[str], column: int) -> None:
        """Start an utterance; `text` is what is already known of it and behind it."""
        self._text = text
        self._at = 0  # everything before this has been looked at
        self._run = 0  # where the marks and closers that end at `_at` begin; `_at` when there are none
        self._length = 0  # speakable length of text[:_at]
        self._column = column  # place of `_at` in its line
        self._voiced = False  # text[:_at] holds a letter or a digit
        self._mark: int | None = None  # where a pronunciation mark, {行|hang2}, that is not closed may have begun
        self._said = False  # its "|" has been seen
        self._candidates: list[_Candidate] = []

    def _scan(self, final: bool) -> list[str]:
        released: list[str] = []
        while self._at < len(self._text):
            if self._at == 0:
                self._start()
                continue
            border = border_at(self._text, self._run, self._at, self._column, final)
            if border is None:
                break
            cut = self._cut(border)
            if cut is None:
                self._advance()
            else:
                released.append(self._release(cut))
        return released

    def _start(self) -> None:
        """Drop white space in front of the utterance, or take its first character."""
        if self._text[0].isspace():
            self._column = 0 if self._text[0] == "\n" else self._column + 1
            del self._text[0]
        else:
            self._advance()

    def _cut(self, border: Border) -> _Candidate | None:
        """Where the utterance ends, if the character at hand settles it."""
        here = _Candidate(self._at, self._length, border)
        if border is Border.SENTENCE and self._voiced and (self._opening or self._length >= SHORT_LENGTH):
            return here
        if border is not Border.NONE and not self._in_mark:
            self._candidates.append(here)
        length = self._length + _length(self._text[self._at])
        if self._opening and length > self._first_chars and (early := self._early_cut()):
            return early
        return self._latest_cut(here) if length > self._max_chars else None

    @property
    def _in_mark(self) -> bool:
        if self._mark is None:
            return False
        return self._at - self._mark <= (LONGEST_MARK if self._said else LONGEST_WRITTEN)

    @property
    def _opening(self) -> bool:
        return self._released_length < self._opening_length

    def _early_cut(self) -> _Candidate | None:
        """The first clause border, or else the last and best space; nothing shorter than the opening."""
        fit = [c for c in self._candidates if c.length >= self._opening_length and c.border >= Border.SPACE]
        clauses = [c for c in fit if c.border >= Border.CLAUSE]
        if clauses:
            return clauses[0]
        return max(fit, key=lambda c: (c.border, c.at), default=None)

    def _latest_cut(self, here: _Candidate) -> _Candidate:
        """The last candidate of the best kind; `here`, perhaps inside a word, when there is none."""
        least = self._max_chars // LEAST_SHARE
        fit = [c for c in self._candidates if c.length >= least or c.border is Border.SENTENCE]
        return max(fit, key=lambda c: (c.border, c.at), default=here)

    def _release(self, cut: _Candidate) -> str:
        utterance, rest = self._text[: cut.at], self._text[cut.at :]
        breaks = [index for index, char in enumerate(utterance) if char == "\n"]
        column = cut.at - breaks[-1] - 1 if breaks else self._column - self._at + cut.at
        self._released_length += cut.length
        self._begin(rest, column)
        return "".join(utterance).rstrip()

    def _advance(self) -> None:
        char = self._text[self._at]
        if char == "{" and self._at:
            self._candidates.append(_Candidate(self._at, self._length, Border.IDEOGRAPH))
        self._column = 0 if char == "\n" else self._column + 1
        in_run = char in MARKS or (self._run < self._at and char in CLOSERS)
        self._at += 1
        self._run = self._run if in_run else self._at
        self._length += _length(char)
        self._voiced = self._voiced or char.isalnum()
        if char == "{":
            self._mark, self._said = self._at - 1, False
        elif char == "}":
            self._mark = None
        self._said = self._said or char == "|"


def _length(char: str) -> int:
    return CJK_LENGTH if is_cjk(char) else 1
