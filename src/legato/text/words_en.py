"""English abbreviations written out, and Roman numerals where they can be nothing else."""

from __future__ import annotations

import re

from .abbreviations import ANYWHERE, BEFORE_NUMBER, INSIDE, TITLES
from .numbers_en import cardinal, ordinal
from .rules import one_of, rule
from .tables import words

_TITLES = {written.capitalize(): spoken for written, spoken in TITLES.items()}
_TITLES_WITHOUT_STOP = ["Mr", "Mrs", "Dr", "Prof"]
_BEFORE_NUMBER = BEFORE_NUMBER | {written.capitalize(): said.capitalize() for written, said in BEFORE_NUMBER.items()}
_ANYWHERE = {
    written if written in ("etc", "et al") else written.capitalize(): said for written, said in ANYWHERE.items()
}

_COUNTED = words(
    "act apollo appendix article book chapter class episode figure gemini grade level mark part phase round "
    "scene section stage table title type unit volume"
)
_BEFORE_CARDINAL = ["World War", "Super Bowl", "Final Fantasy", "Rocky", *_COUNTED, *(w.capitalize() for w in _COUNTED)]
_RULERS = words(
    "Alexander Benedict Catherine Charles Christian Clement Edward Elizabeth Ferdinand Francis Frederick "
    "George Gregory Gustav Henry Innocent Ivan James John Paul Leo Leopold Louis Mary Napoleon Nicholas Otto "
    "Peter Philip Pius Ramesses Ramses Richard Rudolf Umberto Urban Victor Wilhelm William"
)
_ROMAN = r"((?=[IVXLC])C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3}))(?!\w|[.-]\w)"
# Two letters or more that are hardly ever anything else.
_LONE_ROMAN = words("II III VI VII VIII IX XI XII XIII XIV XV XVI XVII XVIII XIX XXI")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def _anywhere(match: re.Match[str]) -> str:
    """The stop stays when it ends the sentence too, which is sure only at the end of the text."""
    ends = not match.string[match.end() : match.end() + 2].strip("\"'”’)")
    return _ANYWHERE[match.group(1)] + ("." if ends else "")


def _roman_value(numeral: str) -> int:
    values = [_ROMAN_VALUES[char] for char in numeral]
    pairs = zip(values, [*values[1:], 0], strict=True)
    return sum(-value if value < following else value for value, following in pairs)


ABBREVIATION_RULES = (
    rule("abbreviations", rf"\b({one_of(_TITLES)})\.\s(?=[A-Z])", lambda match: _TITLES[match.group(1)] + " "),
    rule(
        "abbreviations", rf"\b({one_of(_TITLES_WITHOUT_STOP)})\s(?=[A-Z])", lambda match: _TITLES[match.group(1)] + " "
    ),
    rule(
        "abbreviations",
        rf"\b({one_of(_BEFORE_NUMBER)})\.\s?(?=\d|[IVXLC]{{2,6}}\b)",
        lambda match: _BEFORE_NUMBER[match.group(1)] + " ",
    ),
    rule("abbreviations", rf"(?<![\w.])({one_of(INSIDE)})\.(?!\w)", lambda match: INSIDE[match.group(1)]),
    rule("abbreviations", r"(?<![\w.])vs(?![\w.])", INSIDE["vs"]),
    rule("abbreviations", rf"(?<![\w.])({one_of(_ANYWHERE)})\.(?!\w)", _anywhere),
    rule("abbreviations", r"(?<=[a-z] )St\.(?!\w)", "Street"),
)

ROMAN_RULES = (
    rule(
        "roman",
        rf"\b({one_of(_BEFORE_CARDINAL)})\s{_ROMAN}",
        lambda match: f"{match.group(1)} {cardinal(_roman_value(match.group(2)))}",
    ),
    rule(
        "roman",
        rf"\b({one_of(_RULERS)})\s{_ROMAN}",
        lambda match: f"{match.group(1)} the {ordinal(_roman_value(match.group(2)))}",
    ),
    rule(
        "roman",
        rf"(?<![\w.'’-])({one_of(_LONE_ROMAN)})(?!\w|[.-]\w)",
        lambda match: cardinal(_roman_value(match.group(1))),
    ),
)
