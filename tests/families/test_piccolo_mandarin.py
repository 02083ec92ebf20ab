"""Mandarin becomes phonemes of the one alphabet: tones, special finals, punctuation, English in between."""

from __future__ import annotations

import pytest

from legato.errors import RequestError
from legato.families.piccolo import WEIGHTS
from legato.families.piccolo.config import read_config
from legato.families.piccolo.g2p import Phonemes
from legato.families.piccolo.mandarin import FINALS, INITIALS, Mandarin, has_han, spelled


@pytest.fixture(scope="module")
def mandarin() -> Mandarin:
    return Mandarin(lambda run: f"<{run.strip()}>")


@pytest.mark.parametrize(
    ("pinyin", "phonemes"),
    [
        ("ma1", "ma→"),
        ("ma2", "ma↗"),
        ("ma3", "ma↓"),
        ("ma4", "ma↘"),
        ("ma5", "ma"),
        ("zhong1", "ꭧʊ→ŋ"),
        ("shi4", "ʂɨ↘"),
        ("zi5", "ʦɨ"),
        ("xi1", "ɕi→"),
        ("qu4", "ʨʰy↘"),
        ("nü3", "ny↓"),
        ("lüe4", "lɥe↘"),
        ("yuan2", "ɥɛ↗n"),
        ("jun1", "ʨy→n"),
        ("liu4", "ljou↘"),
        ("gui4", "kwei↘"),
        ("lun2", "lwə↗n"),
        ("wen2", "wə↗n"),
        ("yi1", "i→"),
        ("wu3", "u↓"),
        ("er4", "ɚ↘"),
        ("bo1", "pwo→"),
        ("o1", "ɔ→"),
        ("ng2", "ŋ↗"),
        ("", ""),
        ("?", ""),
    ],
)
def test_syllables(mandarin: Mandarin, pinyin: str, phonemes: str) -> None:
    assert mandarin.syllable(pinyin) == phonemes


def test_words_are_apart_and_punctuation_stays(mandarin: Mandarin) -> None:
    assert mandarin("你好，世界！") == "ni↓xau↓, ʂɨ↘ʨje↘!"


def test_readings_follow_the_word(mandarin: Mandarin) -> None:
    assert mandarin("银行") == "i↗nxa↗ŋ"
    assert mandarin("行走") == "ɕi↗ŋʦou↓"


def test_english_in_between_is_read_as_english(mandarin: Mandarin) -> None:
    assert mandarin("打开WiFi吧。") == "ta↓kʰai→ <WiFi> pa."


def test_every_phoneme_is_in_the_inventory(mandarin: Mandarin) -> None:
    known = read_config(WEIGHTS / "config.json").phonemes
    used = set("".join([*INITIALS.values(), *FINALS.values()])) - {"*"} | set("→↗↓↘ɨ")
    assert used <= known.keys()


def test_one_reader_for_both_languages() -> None:
    read = Phonemes()
    assert read("Hello.") == read.english("Hello.")
    assert read.english("coffee").strip() in read("我喝coffee。")
    assert not has_han("Hello, café")


def test_no_sentence_of_the_evaluation_loses_a_symbol() -> None:
    """Whatever is read is in the inventory, so nothing is dropped on the way to ids."""
    from pathlib import Path

    known, read = read_config(WEIGHTS / "config.json").phonemes, Phonemes()
    folder = Path(__file__).parents[2] / "recipes" / "piccolo"
    for name in ("zh", "mixed"):
        for sentence in (folder / f"sentences_{name}.txt").read_text(encoding="utf-8").splitlines():
            assert set(read(sentence)) <= known.keys(), sentence


# --- pronunciations written into the text ---


@pytest.fixture(scope="module")
def read() -> Phonemes:
    return Phonemes()


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("{Qatar|/kˈʌtɚ/}.", "kˈʌtɚ."),
        ("{Qatar| /kˈʌtɚ/ }, {Lü|/ly/}!", "kˈʌtɚ, ly!"),
        ("{行|hang2}", "xa↗ŋ"),
        ("{银行|yin2hang2}，走。", "i↗nxa↗ŋ, ʦou↓."),
        ("{女|nv3}{女|nü3}{子|zi}{是|shi4}", "ny↓ ny↓ ʦɨ ʂɨ↘"),
    ],
)
def test_marks_say_what_they_say(read: Phonemes, text: str, phonemes: str) -> None:
    assert read(text) == phonemes


@pytest.mark.parametrize(
    "syllable", ["ma1", "lü4", "zhi1", "zi5", "yuan2", "jun1", "liu4", "wen2", "o1", "er4", "yue4"]
)
def test_a_mark_and_the_dictionary_spell_alike(mandarin: Mandarin, syllable: str) -> None:
    assert spelled(syllable) == mandarin.syllable(syllable)


def test_around_a_mark_the_text_is_read_as_ever(read: Phonemes) -> None:
    assert read("他在{银行|yin2 hang2}里。") == read("他在银行里。")
    assert read("She saw {Qatar|/kˈʌtɚ/} there.") == read("She saw Qatar there.").replace(read("Qatar"), "kˈʌtɚ")


@pytest.mark.parametrize("text", ["{行|hang2 zou3}", "{行|xyz9}", "{行|}", "{行|//}"])
def test_marks_that_cannot_be_followed_are_named(read: Phonemes, text: str) -> None:
    with pytest.raises(RequestError, match="pinyin|one syllable"):
        read(text)
