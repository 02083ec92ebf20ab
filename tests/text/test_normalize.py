"""What is written comes out as what is said."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hibari.g2p.normalize import normalize as normalize_for_g2p
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spoken_en import SPOKEN_EN
from spoken_zh import SPOKEN_ZH

from legato.text.chinese import CHINESE_RULES
from legato.text.english import ENGLISH_RULES
from legato.text.normalize import NormalizeOptions, normalize, speakable

# The machine may be busy: no test is about time.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates and unassigned characters too
TELLING_TEXT = st.text("0123456789 .,:;-–/%$€¥°'\"#@&*_`~|<>[]()+=^\nabcIVXSTkmAMP年月日个点中文，。：")
WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1).filter(lambda word: word != "vs")
WORDS = st.lists(WORD, min_size=1).map(" ".join)


@pytest.mark.parametrize(("written", "spoken"), [*SPOKEN_EN, *SPOKEN_ZH])
def test_written_to_spoken(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize("spoken", [spoken for _, spoken in [*SPOKEN_EN, *SPOKEN_ZH]])
def test_what_is_spoken_stays(spoken: str) -> None:
    assert normalize(spoken) == spoken


@pytest.mark.parametrize("spoken", [spoken for _, spoken in SPOKEN_EN])
def test_g2p_has_nothing_left_to_rewrite(spoken: str) -> None:
    assert normalize_for_g2p(spoken) == spoken


SWITCHES = {
    "abbreviations": "Dr. Smith",
    "capitals": "the FBI",
    "dates": "on 3 May",
    "emails": "a@b.com",
    "fractions": "1/2",
    "html": "<b>x</b>",
    "markdown": "[x](y)",
    "money": "$5",
    "numbers": "5 dogs",
    "ordinals": "1st",
    "percent": "占5%",
    "phones": "555-1234",
    "ranges": "3-5",
    "roman": "Louis XIV",
    "spacing": "a  b",
    "symbols": "a & b",
    "tags": "#tag",
    "times": "3 pm",
    "unicode": "\uff21bc",
    "units": "5 km",
    "urls": "https://a.com/b",
}


@pytest.mark.parametrize("switch", [field.name for field in fields(NormalizeOptions) if field.name != "emoji"])
def test_every_switch_has_an_effect(switch: str) -> None:
    written = SWITCHES[switch]
    off = replace(NormalizeOptions(), **{switch: False})
    only = replace(NormalizeOptions.none(), **{switch: True})
    assert normalize(written, options=off) != normalize(written)
    assert normalize(written, options=only) != written


def test_every_rule_has_a_switch() -> None:
    switches = {field.name for field in fields(NormalizeOptions)}
    assert {rule.group for rule in (*ENGLISH_RULES, *CHINESE_RULES)} <= switches


@pytest.mark.parametrize(
    ("emoji", "language", "spoken"),
    [
        ("drop", None, "Well done!"),
        ("name", None, "Well done thumbs up!"),
        ("name", "zh", "Well done 拇指向上!"),
        ("keep", None, "Well done 👍!"),
    ],
)
def test_emoji_are_dropped_named_or_kept(emoji: str, language: str | None, spoken: str) -> None:
    options = replace(NormalizeOptions(), emoji=emoji)
    assert normalize("Well done 👍!", language, options) == spoken


@pytest.mark.parametrize(
    ("language", "spoken"),
    [
        ("en", "three"),
        ("en-GB", "three"),
        ("zh", "三"),
        ("zh-CN", "三"),
        ("Chinese", "三"),
        (None, "three"),
        ("fr", "3"),
    ],
)
def test_the_language_of_the_whole_decides_on_a_bare_number(language: str | None, spoken: str) -> None:
    assert normalize("3", language) == spoken


@pytest.mark.parametrize("written", ["3つください", "3개 주세요", "東京タワーは333mです"])
def test_other_languages_keep_their_numbers(written: str) -> None:
    assert normalize(written) == written


@pytest.mark.parametrize(
    ("text", "has_sound"),
    [
        ("Hi", True),
        ("5", True),
        ("你", True),
        ("é", True),
        ("", False),
        (" \n", False),
        ("...", False),
        ("—！？", False),
    ],
)
def test_speakable(text: str, has_sound: bool) -> None:
    assert speakable(text) is has_sound


@unhurried
@given(ANY_TEXT, st.sampled_from([None, "en", "zh", "fr"]))
def test_any_text_is_taken(text: str, language: str | None) -> None:
    spoken = normalize(text, language)
    assert not any(ord(char) < 32 or 0xD800 <= ord(char) < 0xE000 for char in spoken)


@unhurried
@given(ANY_TEXT)
def test_with_everything_off_only_controls_go(text: str) -> None:
    kept = normalize(text, options=NormalizeOptions.none())
    remaining = iter(text)
    assert all(char in remaining for char in kept)
    assert all(char.isprintable() is False for char in set(text) - set(kept))


@unhurried
@given(TELLING_TEXT, st.sampled_from(["en", "zh"]))
def test_no_digit_is_left(text: str, language: str) -> None:
    assert not any(char.isdecimal() for char in normalize(text, language))


@unhurried
@given(WORDS)
def test_plain_words_stay(text: str) -> None:
    assert normalize(text) == text


@pytest.mark.parametrize(
    "piece", ["1", "😀", "*", "[", "(", "<", "1,", "1:", "$", "a.", "http://", "1 ", "`", "#", "AB "]
)
def test_long_hostile_text_gives_text_in_proportion(piece: str) -> None:
    few, many = (len(normalize(piece * count)) for count in (1_000, 10_000))
    assert many <= 11 * few + 10
