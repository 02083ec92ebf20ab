"""Text in pieces goes in, utterances come out: the same ones whatever the pieces, and nothing lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import legato.text.utterances as utterances
from legato.errors import ConfigError
from legato.text.borders import LONGEST_WORD, LOOKAHEAD
from legato.text.scripts import is_cjk
from legato.text.utterances import UtteranceSplitter

# The machine may be busy: no test is about time.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SNIPPETS = (
    *"aZ9 .,;:!?…-—–'\")(*&\n\t。，！？；：”「」（…中文\u200b😀",
    *("Hello ", "and ", "Mr. ", "U.S. ", "e.g. ", "No. ", "etc. ", "3.14 ", "1. ", "...", "?!", "http://a.b/c?d=e, "),
    *("The ", "the ", "你好", "……", "。”", "\r\n", "\n\n", "- ", "p.m. ", "&amp; ", "x" * 30),
)
TEXTS = st.lists(st.sampled_from(SNIPPETS), max_size=120).map("".join) | st.text()
SIZES = st.tuples(st.integers(1, 40), st.integers(12, 90)).map(lambda sizes: (min(sizes), max(*sizes, 12)))


def split(text: str, first_chars: int = 60, max_chars: int = 200) -> list[str]:
    splitter = UtteranceSplitter(first_chars, max_chars)
    return splitter.push(text) + splitter.finish()


def spoken_length(text: str) -> int:
    return sum(3 if is_cjk(char) else 1 for char in text)


# An utterance of some length in front, so that what follows is not the opening any more.
OPENING = "This is how the text begins today. "


@pytest.mark.parametrize(
    "sentences",
    [
        ["Hello there, my friend.", "How are you doing today?", "I am very well, thank you!"],
        ["He said that to Mr. Smith and Dr. Jones.", "They did not believe it at all."],
        ["The value of pi is 3.14159, roughly.", "Version 2.0.1 is out as of today."],
        ["Visit https://a.b/c?d=e.f for all details.", "Then write to x.y@z.com at once."],
        ["We like fruit, e.g. apples, i.e. the red ones.", "Others like pears, etc. and so on."],
        ["He has lived in the U.S. Army base for years.", "He came to live in the U.S.", "The army called twice."],
        ["J. K. Rowling wrote this very long book.", "Nobody knows why she wrote it all."],
        ["All he needs is vitamin C.", "The doctor said as much."],
        ["They sell apples, pears, etc.", "Nobody ever buys any of them."],
        ["It is No. 5 of the list, see Vol. II of it.", "She was asked and said no.", "I was not asked at all."],
        ["We will meet at 3 p.m. Monday in the office.", "We will meet there at 3 p.m.", "The office is open."],
        ["Wait... what did you just say to her?", "I said nothing of the kind… nothing at all."],
        ['"Stop right there!" he said to the two.', '"I will not stop." She left the old house.'],
        ["(This is in brackets, as you see.)", "**And this sentence is in bold type.**", "This one is not."],
        ["Tom &amp; Jerry are both in this one.", "He came on Monday; she came on Sunday."],
        ["Do these in turn: 1. Wash all the dishes.", "2. Dry them all with a clean cloth."],
        ["What is all of this supposed to be?!", "I really do not know at all!!!"],
        ["这是第一句话，比较长一点。", "这是第二句话，也不短！", "这是第三句话吗？"],
        ["他说：“这是什么东西？”", "她说：「我也不知道。」", "然后他们就一起走了……", "好吧，我们也走吧；"],
        ["我用Python 3.11写代码。", "版本3.5比较老旧一些！"],
        ["这个价格是3.50元，不算贵。", "See you tomorrow, my friend.", "好的，那就明天再见吧。"],
    ],
)
def test_sentences(sentences: list[str]) -> None:
    assert split(OPENING + " ".join(sentences)) == [OPENING.strip(), *sentences]


@pytest.mark.parametrize(
    "lines",
    [
        ["# A heading that is long enough", "And then the text itself begins"],
        ["- the first item of this list", "- the second item of this list"],
        ["3. Wash the dishes with warm water", "4. Dry them all with a clean cloth"],
        ["这是第一行，没有句号，但是很长", "这是第二行，也没有句号，一样很长"],
        ["A line\nthat was wrapped by somebody", "\nAfter a blank line: a new paragraph"],
        ["It was in a letter that a certain lady had written to\nElizabeth Bennet", "\nThe end of this long story"],
        ["the stop comes first on this line.", "the line break only after it."],
    ],
)
def test_lines(lines: list[str]) -> None:
    assert split(OPENING + "\n" + "\n".join(lines)) == [OPENING.strip(), *(line.strip() for line in lines)]


@pytest.mark.parametrize(
    ("text", "utterances"),
    [
        ("", []),
        (" \n\t ", []),
        ("Hi", ["Hi"]),
        ("...", ["..."]),
        ("*** Hello. I am here.", ["*** Hello.", "I am here."]),
        ("Hi. Yes. I know. " + OPENING, ["Hi.", "Yes.", "I know.", OPENING.strip()]),
        (OPENING + "Hi. Yes. I know. No. " + OPENING, [OPENING.strip(), "Hi. Yes. I know. No.", OPENING.strip()]),
        (OPENING + "I do. " + "A " * 98 + "end.", [OPENING.strip(), "I do.", "A " * 98 + "end."]),
        ("好的。我知道了。", ["好的。", "我知道了。"]),
    ],
)
def test_short_sentences_are_joined_but_never_in_the_opening(text: str, utterances: list[str]) -> None:
    assert split(text) == utterances


@pytest.mark.parametrize(
    "utterances",
    [
        ["This sentence, as anyone can hear,", "is a long one, and it has clauses."],
        ["This one is rather long as well", "and has no commas to be cut at."],
        ["A sentence of which no word ever begins any clause is cut at", "a space."],
        ["None of these sixty letters at all is to be cut", "inside 12 345 678."],
        ["The address is http://example.com/" + "a" * 60, "as you know."],
        ["今天天气非常好，我们一起去公园散步吧，", "然后再去吃饭，你觉得怎么样？"],
    ],
)
def test_a_long_first_sentence_is_cut_early(utterances: list[str]) -> None:
    space = "" if is_cjk(utterances[0][0]) else " "
    assert split(space.join(utterances)) == utterances


def test_after_a_very_short_first_utterance_the_next_is_cut_early_too() -> None:
    assert split("Hi. This sentence, as anyone can hear, is a long one, and it has clauses.")[:2] == [
        "Hi.",
        "This sentence, as anyone can hear,",
    ]


@pytest.mark.parametrize(
    ("text", "utterances"),
    [
        ("one two three, four five six seven", ["one two three,", "four five six seven"]),
        ("one two three four and five six seven", ["one two three four", "and five six seven"]),
        ("one two three four five six seven", ["one two three four", "five six seven"]),
        ("onetwothreefourfivesixseven", ["onetwothreefourfives", "ixseven"]),
        ("一二三四五六七八九", ["一二三四五六", "七八九"]),
        ("a, onetwothreefourfivesixseven", ["a, onetwothreefourfi", "vesixseven"]),
    ],
)
def test_an_overlong_sentence_is_cut_at_the_best_place(text: str, utterances: list[str]) -> None:
    assert split("Hi there. " + text, first_chars=5, max_chars=20)[-2:] == utterances


@pytest.mark.parametrize(
    ("text", "released_at"),
    [
        ("I see. ", 7),  # the space tells that it was no decimal point
        ("I see.\n", 7),
        ('"I see." She', 10),  # her capital tells that it was not: "I see," she said
        ("Pi is 3.14. ", 12),
        ("In the U.S. The end", 16),  # the space after The
        ("我知道。好", 5),  # the next ideograph tells that no closing quote follows
        ("我知道。”好", 6),
    ],
)
def test_an_utterance_is_released_as_soon_as_it_is_certain(text: str, released_at: int) -> None:
    splitter = UtteranceSplitter()
    releases = [bool(splitter.push(char)) for char in text]
    assert releases.index(True) + 1 == released_at


def test_finish_leaves_the_splitter_as_new() -> None:
    splitter = UtteranceSplitter()
    text = OPENING + "Yes. " + OPENING
    assert splitter.push(text) + splitter.finish() == splitter.push(text) + splitter.finish()


@pytest.mark.parametrize(("first_chars", "max_chars"), [(0, 200), (201, 200), (1, 11)])
def test_impossible_sizes_are_refused(first_chars: int, max_chars: int) -> None:
    with pytest.raises(ConfigError, match="_chars is"):
        UtteranceSplitter(first_chars, max_chars)


@unhurried
@given(TEXTS, SIZES, st.data())
def test_the_pieces_do_not_matter(text: str, sizes: tuple[int, int], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    pieces = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
    splitter = UtteranceSplitter(*sizes)
    in_pieces = [utterance for piece in pieces for utterance in splitter.push(piece)] + splitter.finish()
    assert in_pieces == split(text, *sizes)


@unhurried
@given(TEXTS, SIZES)
def test_nothing_is_lost_but_white_space_at_the_cuts(text: str, sizes: tuple[int, int]) -> None:
    rest = text
    for utterance in split(text, *sizes):
        rest = rest.lstrip()
        assert utterance.strip() == utterance != ""
        assert rest.startswith(utterance)
        rest = rest[len(utterance) :]
    assert not rest.strip()


@unhurried
@given(TEXTS, SIZES)
def test_no_utterance_is_too_long(text: str, sizes: tuple[int, int]) -> None:
    assert all(spoken_length(utterance) <= sizes[1] for utterance in split(text, *sizes))


@unhurried
@given(TEXTS, SIZES)
def test_little_is_held_back(text: str, sizes: tuple[int, int]) -> None:
    splitter = UtteranceSplitter(*sizes)
    for char in text:
        splitter.push(char)
        assert len(splitter.pending) <= sizes[1] + LOOKAHEAD + LONGEST_WORD


@pytest.mark.parametrize(
    "piece",
    ["a", "中", " ", ".", "*", "\n", "a ", "a. ", "U.S. ", "1. ", "1, ", "Hi. ", '."', "。", "Mr. ", "a," + "b" * 150],
)
def test_work_grows_with_the_text_only(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    border_at = utterances.border_at

    def counted(*args: object) -> object:
        nonlocal looked_at
        looked_at += 1
        return border_at(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(utterances, "border_at", counted)
    text = (piece * 20_000)[:20_000]
    split(text)
    assert looked_at <= 4 * len(text)
