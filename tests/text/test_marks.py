"""Pronunciations written into a text stay whole, whatever the text goes through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato.text.marks import MARK, Mark, as_written, pieces
from legato.text.normalize import normalize_prose
from legato.text.utterances import UtteranceSplitter

MARKS = st.sampled_from(
    ["{银行|yin2 hang2}", "{Qatar|/kˈʌtɚ/}", "{New York|/nˌu jˈɔɹk/}", "{重庆大学|chong2 qing4 da4 xue2}"]
)


def cut(text: str, **options: int) -> list[str]:
    splitter = UtteranceSplitter(**options)
    return [*splitter.push(text), *splitter.finish()]


def test_pieces_put_together_are_the_text() -> None:
    text = "我去{银行|yin2 hang2}, then {Qatar|/kˈʌtɚ/}."
    assert [str(piece) for piece in pieces(text)] == ["我去", "{银行|yin2 hang2}", ", then ", "{Qatar|/kˈʌtɚ/}", "."]
    assert list(pieces("{行|hang2}")) == [Mark("行", "hang2")]
    assert as_written(text) == "我去银行, then Qatar."


def test_marks_are_not_normalised() -> None:
    assert normalize_prose("{行|hang2}有3个", "zh") == "{行|hang2}有三个"


@given(st.lists(st.one_of(MARKS, st.text("ab 好，,", min_size=1, max_size=12)), max_size=20), st.integers(100, 200))
def test_no_cut_goes_through_a_mark(parts: list[str], max_chars: int) -> None:
    """Unless one mark alone is too long for an utterance."""
    text = "".join(parts)
    cuts = cut(text, first_chars=60, max_chars=max_chars)
    assert sum((MARK.findall(piece) for piece in cuts), []) == MARK.findall(text)


@pytest.mark.parametrize("text", ["a { b. Then more.", "{ never closed, but long enough to be cut anyway. And so on."])
def test_a_lone_brace_changes_no_sentence(text: str) -> None:
    assert [piece.replace("{", "(") for piece in cut(text)] == cut(text.replace("{", "("))
