"""Normalising, cutting and phonemes, against the release's code on the same number rules and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legato.errors import ConfigError, RequestError
from legato.families.glm_tts.phonemes import Phonemes, one_reading, read_replacements, read_safe
from legato.families.glm_tts.pinyin import phonemes_of, read_marks
from legato.families.glm_tts.text_front import DIFFERENCES, TextFront
from legato.families.glm_tts.text_split import split_text

DATA = Path(__file__).parent / "data_frontend"


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


TEXTS, PHONEMES = load("reference_texts.json"), load("reference_phonemes.json")


@pytest.fixture(scope="module")
def front() -> TextFront:
    pytest.importorskip("wetext")
    return TextFront()


# --- normalising ---


def test_enough_texts() -> None:
    assert len(TEXTS["texts"]) >= 60


@pytest.mark.parametrize(("text", "expected"), TEXTS["texts"].items())
def test_text_is_normalised_as_the_release_does(text: str, expected: str, front: TextFront) -> None:
    assert front.normalize(text) == expected


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("", ""),
        ("   ", ""),
        ("……！", ""),
        ("😀", ""),
        ("你\ud800好", "你好。"),
        ("约3*10^120000米", "约三乘十的十二万次方米。"),
        ("约2*10^3和5*10^-0.5", "约二乘十的三次方和五乘十的负零点五次方。"),
    ],
)
def test_where_we_differ_on_purpose(text: str, ours: str, front: TextFront) -> None:
    assert front.normalize(text) == ours
    assert DIFFERENCES


def test_digits_left_in_english_are_read() -> None:
    class Unread:
        def chinese(self, text: str) -> str:
            return text

        def english(self, text: str) -> str:
            return text

    assert TextFront(Unread()).normalize("Room 234, 2*3") == "room two hundred thirty four, two multiply three."


@pytest.mark.parametrize("text", TEXTS["texts"])
def test_normalising_twice_changes_nothing_but_marks(text: str, front: TextFront) -> None:
    once = front.normalize(text)
    twice = front.normalize(once)
    assert [c for c in twice if c.isalnum()] == [c for c in once if c.isalnum()]


def test_texts_that_break_the_number_rules_are_still_read(front: TextFront) -> None:
    class Broken:
        def normalize(self, text: str) -> str:
            raise AssertionError

    reader = front._numbers
    whole = TextFront(reader)
    reader_en, reader._en = reader._en, Broken()  # type: ignore[attr-defined]
    try:
        assert whole.normalize("I have 3 apples") == "i have three apples."
    finally:
        reader._en = reader_en  # type: ignore[attr-defined]


def test_missing_number_rules_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wetext", None)
    with pytest.raises(ConfigError, match=r"pip install 'legato-speech\[glm-tts\]'"):
        TextFront()


# --- cutting ---


@pytest.mark.parametrize(("text", "expected"), TEXTS["splits"].items())
def test_long_text_is_cut_as_the_release_does(text: str, expected: list[str], front: TextFront) -> None:
    pieces = split_text(front.normalize(text))
    assert pieces == expected
    assert "".join(pieces) == front.normalize(text)


def test_long_english_clause_is_cut_where_the_release_stops() -> None:
    text = "characteristically " * 27 + "."
    pieces = split_text(text)
    assert "".join(pieces) == text
    assert len(pieces) == 3
    assert all(piece.startswith("characteristically ") for piece in pieces)


@pytest.mark.parametrize("text", ["", " ", "。", "啊" * 500, "a" * 500, "，" * 200, " 你 好 "])
def test_cutting_loses_nothing(text: str) -> None:
    assert "".join(split_text(text)) == text


# --- phonemes ---

INITIALS = "B P M F D T N L G K H J Q X ZH CH SH R Z C S"
FINALS = (
    "A AI AN ANG AO E EI EN ENG I IA IAN IANG IAO IE II III IN ING IONG IOU O ONG OU "
    "U UA UAI UAN UANG UEI UEN UENG UO V VAN VE VN"
)
ALL_PHONEMES = frozenset(
    (*INITIALS.split(), "ER2", "ER3", "ER4", *(f"{name}{tone}" for name in FINALS.split() for tone in "12345"))
)

PHONEME_DIFFERENCES = {
    "𠮷野家很好吃": "𠮷<|IE3|>家很好吃",  # the release gives up the whole run for one character without an initial
    "花儿会儿儿子女儿": "<|H|><|UA1|><|ER2|>会儿<|ER2|><|Z|><|II5|><|N|><|V3|><|ER2|>",  # ER5 is no token: spelled out
}


@pytest.fixture(scope="module")
def phonemes() -> Phonemes:
    pytest.importorskip("jieba")
    pytest.importorskip("pypinyin")
    return Phonemes(ALL_PHONEMES, PHONEMES["safe"], PHONEMES["replacements"])


@pytest.mark.parametrize(("text", "expected"), PHONEMES["texts"].items())
def test_phonemes_are_those_of_the_release(text: str, expected: str, phonemes: Phonemes) -> None:
    assert phonemes.hybrid(text) == PHONEME_DIFFERENCES.get(text, expected)


def test_default_safe_characters_have_one_reading() -> None:
    pytest.importorskip("pypinyin")
    safe = one_reading()
    assert safe.issuperset("我你他天地山水火木苹果公园")
    assert safe.isdisjoint("行长重乐还都着了发参差")
    plain = Phonemes(ALL_PHONEMES)
    assert plain.hybrid("我们去银行。") == "我们去银<|H|><|ANG2|>。"


def test_user_replacements(tmp_path: Path, phonemes: Phonemes) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(
        '\ufeff{"行家": "hang2 jia1"}\n\n{"弦": "<|X|><|IAN2|>", "朝阳": "朝<|IANG2|>"}\r\n', encoding="utf-8"
    )
    table = read_replacements(file)
    assert table == {"行家": "<|H|><|ANG2|><|J|><|IA1|>", "弦": "<|X|><|IAN2|>", "朝阳": "朝<|IANG2|>"}
    made = Phonemes(ALL_PHONEMES, PHONEMES["safe"], table | {"行": "<|X|><|ING2|>"})
    assert made.hybrid("行家行") == "<|H|><|ANG2|><|J|><|IA1|><|X|><|ING2|>"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not json", "mine.jsonl, line 1: should be like"),
        ('{"a": "hang2"}\n["b"]', "line 2"),
        ('{"行": "hong9"}', "'hong9' is not a pinyin syllable"),
        ('{"行": 3}', "line 1"),
    ],
)
def test_bad_replacements_are_named(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        read_replacements(tmp_path / "mine.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_replacements(tmp_path / "none.jsonl")


def test_replacement_with_an_unknown_phoneme_is_refused() -> None:
    pytest.importorskip("jieba")
    with pytest.raises(ConfigError, match="UAR1"):
        Phonemes(ALL_PHONEMES, "", {"儿": "<|UAR1|>"})


def test_safe_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "safe.json").write_text('["你", "我"]', encoding="utf-8")
    assert read_safe(tmp_path / "safe.json") == {"你", "我"}
    (tmp_path / "safe.json").write_text('{"你": 1}', encoding="utf-8")
    with pytest.raises(ConfigError, match="list of characters"):
        read_safe(tmp_path / "safe.json")


def test_missing_phoneme_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypinyin", None)
    with pytest.raises(ConfigError, match="needs the library pypinyin"):
        Phonemes(ALL_PHONEMES)


# --- pinyin and marks ---


def test_written_pinyin_is_read_as_pypinyin_reads_it() -> None:
    constants = pytest.importorskip("pypinyin.constants")
    convert = pytest.importorskip("pypinyin.contrib.tone_convert")
    from legato.families.glm_tts.phonemes import _names

    syllables = {
        convert.to_tone3(each, neutral_tone_with_five=True)
        for readings in constants.PINYIN_DICT.values()
        for each in readings.split(",")
    }
    unread = set()
    for syllable in syllables:
        final = convert.to_finals_tone3(syllable, strict=True, neutral_tone_with_five=True)
        expected = _names(convert.to_initials(syllable, strict=True), final)
        try:
            assert phonemes_of(syllable) == expected or syllable.startswith("yo")
        except RequestError:
            unread.add(syllable)
    assert len(syllables) > 1500
    assert all(syllable.strip("12345") in ("hm", "hng", "m", "n", "ng", "wong", "ê") for syllable in unread)


@pytest.mark.parametrize(
    ("syllable", "names"),
    [
        ("hang2", ("H", "ANG2")),
        ("lü4", ("L", "V4")),
        ("nu:3", ("N", "V3")),
        ("lve4", ("L", "VE4")),
        ("LIU2", ("L", "IOU2")),
        ("de", ("D", "E5")),
        ("ju1", ("J", "V1")),
        ("zi5", ("Z", "II5")),
        ("er2", ("ER2",)),
    ],
)
def test_pinyin_spellings(syllable: str, names: tuple[str, ...]) -> None:
    assert phonemes_of(syllable) == names


@pytest.mark.parametrize("syllable", ["", "x", "hang6", "hong22", "bing冰", "jia1o", "2", "iou2", "uo1"])
def test_what_is_no_pinyin_is_refused(syllable: str) -> None:
    with pytest.raises(RequestError, match="is not a pinyin syllable"):
        phonemes_of(syllable)


def test_marks_are_taken_out_and_put_back() -> None:
    marked = read_marks("去{银行|yin2 hang2}，{行|xing2}{长城|chang2cheng2}。")
    assert len(marked.text) == 8
    assert marked.spoken(marked.text) == ("去<|IN2|><|H|><|ANG2|>，<|X|><|ING2|><|CH|><|ANG2|><|CH|><|ENG2|>。")
    assert marked.restored(marked.text) == "去{银|yin2}{行|hang2}，{行|xing2}{长|chang2}{城|cheng2}。"
    assert read_marks("{普通} a|b {c}").text == "{普通} a|b {c}"
    assert read_marks("私\ue000用").text == "私用"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{银行|yin2}", "one syllable for each of its 2 characters"),
        ("{行|}", "one syllable for each of its 1 characters"),
        ("{行|hang2 2}", "one syllable"),
        ("{行|hxng2}", "'hxng2' is not a pinyin syllable"),
    ],
)
def test_bad_marks_are_named(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_marks(text)
