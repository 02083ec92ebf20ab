"""Where a text may be cut: looks at one gap between two characters and says how good a border it is. Keeps no state.

Every answer is final: it never changes when more text arrives. `None` means that the text seen so far does not tell.
"""

from __future__ import annotations

from enum import IntEnum

from .abbreviations import BEFORE_NUMBER, NEVER_LAST, SENTENCE_STARTERS, SOMETIMES_LAST
from .scripts import is_cjk
from .tables import words

LOOKAHEAD = 32  # characters behind a gap that may be asked for, which bounds what an undecided gap costs
LONGEST_WORD = 12  # characters of a word that are looked at: enough for every word in the tables
WRAPPED_WIDTH = range(50, 121)  # width of a line that an editor, not the author, may have broken

CJK_ENDS = frozenset("。！？；｡")
CJK_CLAUSES = frozenset("，、：—")
LATIN_ENDS = frozenset(".!?;")
LATIN_CLAUSES = frozenset(",:")
DASHES = frozenset("-–")
MARKS = CJK_ENDS | CJK_CLAUSES | LATIN_ENDS | LATIN_CLAUSES | DASHES | {"…"}
CLOSERS = frozenset("\"'”’»)]}」』）】》〉〕｣*_`~")
OPENERS = frozenset("\"'“‘«([{「『（【《〈〔｢*_`")

# Words that begin a clause: the space before them is a better cut than another.
CLAUSE_STARTERS = frozenset(
    words(
        "after although and as because before but if nor or since so than that though until when where whereas "
        "which while who whose with without"
    )
)


class Border(IntEnum):
    """How good a cut is, worst first."""

    NONE = 0
    IDEOGRAPH = 1  # beside an ideograph: perhaps inside a word
    SPACE = 2
    CLAUSE_WORD = 3  # a space before "and", "which", …
    CLAUSE = 4
    SENTENCE = 5


def border_at(text: list[str], run: int, at: int, column: int, final: bool) -> Border | None:
    """The border between text[at - 1] and text[at]; there is one before it.

    `run` is where the marks and closers that end at the gap begin (`at` when there are none), `column` is the gap's
    place in its line, and `final` says that no more text will come.
    """
    char = text[at]
    in_run = run < at
    if char in MARKS or (in_run and char in CLOSERS):
        return Border.NONE
    after_marks = _after_marks(text, run, at, final) if in_run else Border.NONE
    if after_marks is None or after_marks is Border.SENTENCE:
        return after_marks
    if char == "\n" and (after_line := _line_break(text, at, column, final)) is not Border.NONE:
        return after_line
    if after_marks is Border.CLAUSE or text[at - 1] == ".":
        return after_marks
    return _space(text, at, final) if char.isspace() else _ideograph(text[at - 1], char)


def is_wrapped(width: int, next_char: str) -> bool:
    """Whether a single line break after a line of `width` characters is only typesetting, not the author's."""
    if next_char.islower():
        return True
    return width in WRAPPED_WIDTH and (next_char.isalpha() or next_char in "\"'“‘(") and not is_cjk(next_char)


def _line_break(text: list[str], at: int, column: int, final: bool) -> Border | None:
    for index in range(at + 1, min(at + LOOKAHEAD, len(text))):
        if text[index] == "\n":
            return Border.SENTENCE
        if not text[index].isspace():
            return Border.NONE if is_wrapped(column, text[index]) else Border.SENTENCE
    return Border.SENTENCE if final or at + LOOKAHEAD <= len(text) else None


def _ideograph(before: str, after: str) -> Border:
    if before.isdigit() or after.isdigit():
        return Border.NONE
    return Border.IDEOGRAPH if is_cjk(before) or is_cjk(after) else Border.NONE


def _space(text: list[str], at: int, final: bool) -> Border | None:
    """A space is no border beside a number: "5 km", "10 000" and "May 3" stay whole."""
    word = _next_word(text, at, final)
    if word is None:
        return None
    if word[:1].isdigit() or text[at - 1].isdigit():
        return Border.NONE
    return Border.CLAUSE_WORD if word.lower() in CLAUSE_STARTERS else Border.SPACE


def _after_marks(text: list[str], run: int, at: int, final: bool) -> Border | None:
    last = at - 1
    while text[last] not in MARKS:
        last -= 1
    mark, char = text[last], text[at]
    if mark in CJK_ENDS:
        return Border.SENTENCE
    if mark in CJK_CLAUSES:
        return Border.CLAUSE
    if not (char.isspace() or is_cjk(char)):
        return Border.NONE
    if mark in LATIN_CLAUSES:
        return Border.CLAUSE
    if mark in DASHES:
        return Border.CLAUSE if last > run or (run and text[run - 1].isspace()) else Border.NONE
    if mark == ";" and _ends_entity(text, last):
        return Border.NONE
    if mark == "…" or text[run : run + 2] == [".", "."]:
        return _unless_lower(text, at, final)
    if last < at - 1 and (after_quote := _unless_lower(text, at, final)) is not Border.SENTENCE:
        return after_quote
    return _after_stop(text, run, at, final) if mark == "." else Border.SENTENCE


def _unless_lower(text: list[str], at: int, final: bool) -> Border | None:
    """After "…" or a closing quote a small letter goes on with the sentence: `"Stop!" he said.`"""
    char = _next_char(text, at, final)
    if char is None:
        return None
    return Border.CLAUSE if char.islower() else Border.SENTENCE


def _after_stop(text: list[str], stop: int, at: int, final: bool) -> Border | None:
    word = _word_before(text, stop)
    if word in NEVER_LAST:
        return Border.NONE
    if word.isdigit() and _numbers_item(text, stop - len(word)):
        return Border.NONE
    if word in BEFORE_NUMBER:
        return _before_number(text, at, final)
    if word in SOMETIMES_LAST or _is_initials(word):
        return _before_starter(text, word, at, final)
    return Border.SENTENCE


def _before_starter(text: list[str], word: str, at: int, final: bool) -> Border | None:
    """After such a stop, "U.S. Army" goes on and "U.S. The army" does not."""
    if is_cjk(text[at]):
        return Border.SENTENCE
    following = _next_word(text, at, final)
    if following is None:
        return None
    if not following:
        return Border.SENTENCE
    starts = following[0].isupper() and (word == "etc" or following.lower() in SENTENCE_STARTERS)
    return Border.SENTENCE if starts else Border.NONE


def _before_number(text: list[str], at: int, final: bool) -> Border | None:
    """After such a stop, "Vol. 5" and "Vol. II" go on and "No. I refuse" does not."""
    following = _next_word(text, at, final)
    if following is None:
        return None
    is_roman = len(following) > 1 and set(following) <= set("IVXLC")
    return Border.NONE if following[:1].isdigit() or is_roman else Border.SENTENCE


def _is_initials(word: str) -> bool:
    """A letter ("J"), or letters with stops between them ("u.s")."""
    return all(len(part) == 1 and part.isalpha() for part in word.split("."))


def _numbers_item(text: list[str], start: int) -> bool:
    """Whether the number that begins at `start` counts an item ("3. Wash"): nothing said before it, or a colon."""
    before = start - 1
    while before >= 0 and text[before].isspace():
        before -= 1
    return (before >= 0 and text[before] in ":：") or not any(char.isalnum() for char in text[:start])


def _ends_entity(text: list[str], semicolon: int) -> bool:
    """Whether the semicolon closes an HTML entity such as &amp; rather than a clause."""
    for index in range(semicolon - 1, max(semicolon - LONGEST_WORD, -1), -1):
        if text[index] == "&":
            return True
        if not (text[index].isalnum() or text[index] == "#"):
            return False
    return False


def _word_before(text: list[str], stop: int) -> str:
    """The word that ends at `stop`, in lower case, with the stops inside it."""
    start = stop
    while start > max(0, stop - LONGEST_WORD) and (text[start - 1].isalnum() or text[start - 1] == "."):
        if is_cjk(text[start - 1]):
            break
        start -= 1
    return "".join(text[start:stop]).lower()


def _next_char(text: list[str], at: int, final: bool) -> str | None:
    """The first character at or after `at` that is neither white space nor an opening quote; "" when there is none."""
    for index in range(at, min(at + LOOKAHEAD, len(text))):
        if not text[index].isspace() and text[index] not in OPENERS:
            return text[index]
    return "" if final or at + LOOKAHEAD <= len(text) else None


def _next_word(text: list[str], at: int, final: bool) -> str | None:
    """The first word at or after `at`, or as much of it as any table needs; "" when there is none."""
    start = at
    while start < len(text) and start < at + LOOKAHEAD and (text[start].isspace() or text[start] in OPENERS):
        start += 1
    stop = start
    while stop < len(text) and stop < start + LONGEST_WORD and text[stop].isalnum():
        stop += 1
    if stop == len(text) and not final and stop < start + LONGEST_WORD and start < at + LOOKAHEAD:
        return None
    return "".join(text[start:stop])
