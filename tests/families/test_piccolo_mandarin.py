"""Mandarin becomes phonemes of the one alphabet: tones, special finals, punctuation, English in between."""

from __future__ import annotations

import pytest

from legato.families.piccolo import WEIGHTS
from legato.families.piccolo.config import read_config
from legato.families.piccolo.g2p import Phonemes
from legato.families.piccolo.mandarin import FINALS, INITIALS, Mandarin, has_han


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
