"""English quantities: money, units, percentages, fractions, ranges, ordinals and plain numbers."""

from __future__ import annotations

import re

from .numbers_en import cardinal, decimal, digits, ordinal, year
from .rules import one_of, rule
from .tables import words
from .units import CURRENCIES_EN, MAGNITUDE_NAMES, MAGNITUDES, UNITS_EN

_NUMBER = r"(?:(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,18})(?:\.\d{1,18})?|\.\d{1,18})"
_START = r"(?<![\w./-])(?<!\d[,:])"
_END = r"(?!\w|[.,]\d)"
_HIGH = rf"(?:\s?[-–—~]\s?({_NUMBER}))?"
_RANGE = rf"([-+])?({_NUMBER}){_HIGH}"
_SIGNS = {"-": "minus ", "+": "plus "}

_SIGN_CURRENCIES = one_of(written for written in CURRENCIES_EN if not written.isalpha() or written == "元")
_CODE_CURRENCIES = one_of(written for written in CURRENCIES_EN if written.isalpha())
_SCALE = r"(?:(?:\s?(hundred|thousand|million|billion|trillion)|(k|K|mn|m|M|bn|b|B|T))(?![A-Za-z]))?"
_PERIODS = {name: name for name in words("second minute hour day night week month quarter year person user seat")}
_PER = _PERIODS | {"hr": "hour", "h": "hour", "mo": "month", "yr": "year"}
_UNIT = one_of(UNITS_EN).replace("µ", "[µμ]")

_DENOMINATORS = {2: ("half", "halves"), 4: ("quarter", "quarters")}
_SPOKEN_DENOMINATORS = frozenset([*range(2, 11), 12, 16, 20, 32, 50, 64, 100])
_NAMED_FRACTIONS = {"24/7": "twenty-four seven", "9/11": "nine eleven", "50/50": "fifty fifty"}

# After a number from 1100 to 2099: "2048 tokens" counts, "2048 was" is a year.
_COUNTED = re.compile(r"\s(?!as\b|was\b|is\b|has\b|does\b|this\b|its\b|plus\b|alas\b)[a-z]{2,30}s\b")
_YEAR_CUE = re.compile(r"\b(?:in|since|until|till|before|after|during|the|year|circa)\s$", re.IGNORECASE)
_YEARS = range(1100, 2100)
_LONGEST_CUE = 8  # characters
_LONGEST_GLUED = 6  # digits glued to letters that are still a number


def _quantity(sign: str | None, low: str, high: str | None) -> str:
    return _SIGNS.get(sign or "", "") + decimal(low) + (f" to {decimal(high)}" if high else "")


def _is_one(low: str, high: str | None) -> bool:
    return low == "1" and not high


def _money(match: re.Match[str]) -> str:
    sign, currency, low, high, name, letters, per = match.groups()
    spoken_sign = _SIGNS.get(sign or "", "")
    scale = name or (MAGNITUDE_NAMES[MAGNITUDES[letters.lower()]] if letters else "")
    return spoken_sign + _amount(currency, low, high, scale) + (f" per {_PER[per]}" if per else "")


def _money_after(match: re.Match[str]) -> str:
    sign, low, high, name, letters, currency = match.groups()
    scale = name or (MAGNITUDE_NAMES[MAGNITUDES[letters.lower()]] if letters else "")
    return _SIGNS.get(sign or "", "") + _amount(currency, low, high, scale)


def _amount(currency: str, low: str, high: str | None, scale: str) -> str:
    one, many, cent, cents = CURRENCIES_EN[currency]
    if scale:
        return f"{_quantity(None, low, high)} {scale} {many}"
    whole, _, fraction = low.partition(".")
    if high or not cent or len(fraction) not in (1, 2):
        return f"{_quantity(None, low, high)} {one if _is_one(low, high) else many}"
    units, hundredths = int(whole.replace(",", "") or "0"), int(fraction.ljust(2, "0"))
    parts = [f"{decimal(whole)} {one if units == 1 else many}"] if units or not hundredths else []
    parts += [f"{cardinal(hundredths)} {cent if hundredths == 1 else cents}"] if hundredths else []
    return " and ".join(parts)


def _unit(match: re.Match[str]) -> str:
    sign, low, high, written = match.groups()
    one, many = UNITS_EN[written.replace("μ", "µ")]
    return f"{_quantity(sign, low, high)} {one if _is_one(low, high) else many}"


def _feet_and_inches(match: re.Match[str]) -> str:
    feet, inches = match.groups()
    return f"{decimal(feet)} foot {decimal(inches)}"


def _percent(match: re.Match[str]) -> str:
    return _quantity(*match.groups()) + " percent"


def _magnitude(match: re.Match[str]) -> str:
    number, letters = match.groups()
    if number in ("4", "8") and letters == "K":
        return f"{decimal(number)} K"
    return f"{decimal(number)} {MAGNITUDE_NAMES[MAGNITUDES[letters.lower()]]}"


def _fraction(match: re.Match[str]) -> str:
    whole, top, bottom = match.groups()
    if named := _NAMED_FRACTIONS.get(match.group()):
        return named
    count, parts = int(top), int(bottom)
    prefix = f"{decimal(whole)} and " if whole else ""
    if parts not in _SPOKEN_DENOMINATORS:
        return f"{prefix}{cardinal(count)} over {cardinal(parts)}"
    one, many = _DENOMINATORS.get(parts, (ordinal(parts), ordinal(parts) + "s"))
    return f"{prefix}{cardinal(count)} {one if count == 1 else many}"


def _ordinal(match: re.Match[str]) -> str:
    return ordinal(int(match.group(1).replace(",", "")))


def _range(match: re.Match[str]) -> str:
    low, high = match.groups()
    return f"{_plain(low)} to {_plain(high)}"


def _scientific(match: re.Match[str]) -> str:
    number, sign, power = match.groups()
    return f"{decimal(number)} times ten to the power of {_quantity(sign, power, None)}"


def _version(match: re.Match[str]) -> str:
    """Four numbers are an address, with dots; two or three a version, with points."""
    letter, written = match.groups()
    parts = written.split(".")
    joint = " dot " if len(parts) == 4 and not letter else " point "
    spoken = (cardinal(int(part)) if len(part) < 3 and part[0] != "0" else digits(part) for part in parts)
    return ("version " if letter else "") + joint.join(spoken)


def _number(match: re.Match[str]) -> str:
    sign, written = match.groups()
    if sign or not _is_year(written, match):
        return _quantity(sign, written, None)
    return year(int(written))


def _is_year(written: str, match: re.Match[str]) -> bool:
    if not (len(written) == 4 and written.isdecimal() and int(written) in _YEARS):
        return False
    if _YEAR_CUE.search(match.string[max(0, match.start() - _LONGEST_CUE) : match.start()]):
        return True
    return not _COUNTED.match(match.string, match.end())


def _plain(written: str) -> str:
    """A number without context: four digits are said in pairs, as a year is."""
    if len(written) == 4 and written.isdecimal() and written[0] != "0":
        return year(int(written))
    return decimal(written)


def _leftover(match: re.Match[str]) -> str:
    """Digits that no other rule has read, most often glued to letters: MP3, GPT-4, 1080p."""
    written = match.group(1)
    return f" {_plain(written) if len(written) <= _LONGEST_GLUED else digits(written)} "


MONEY_RULES = (
    rule(
        "money",
        rf"(?:(?<![\w)])([-+]))?({_SIGN_CURRENCIES})\s?({_NUMBER})(?:\s?[-–—~]\s?(?:{_SIGN_CURRENCIES})?({_NUMBER}))?"
        rf"{_SCALE}(?:\s?/\s?({one_of(_PER)}))?{_END}",
        _money,
    ),
    rule("money", rf"()\b({_CODE_CURRENCIES})\s?({_NUMBER}){_HIGH}{_SCALE}(?:\s?/\s?({one_of(_PER)}))?{_END}", _money),
    rule("money", rf"{_START}{_RANGE}{_SCALE}\s?({_SIGN_CURRENCIES}|{_CODE_CURRENCIES})(?!\w)", _money_after),
)

UNIT_RULES = (
    rule("percent", rf"{_START}{_RANGE}\s?%", _percent),
    rule("numbers", rf"{_START}({_NUMBER})(k|K|M|mn|B|bn)(?!\w)", _magnitude),
    rule("units", rf"{_START}(\d)['’′](1[01]|\d)(?:\"|”|″|'')", _feet_and_inches),
    rule("units", rf"{_START}{_RANGE}\s?({_UNIT})(?![\w/²³])", _unit),
)

NUMBER_RULES = (
    rule("fractions", r"(?<![\w./-])(?:(\d{1,4})\s)?(\d{1,3})/([1-9]\d{0,2})(?![\w/-]|[.,]\d)", _fraction),
    rule("numbers", rf"{_START}(?:([vV])(?=\d))?(\d{{1,6}}(?:\.\d{{1,6}}){{2,6}}){_END}", _version),
    rule("numbers", rf"{_START}([vV])(\d{{1,6}}(?:\.\d{{1,6}})?){_END}", _version),
    rule("ordinals", r"(?<![\w.,])(\d{1,3}(?:,\d{3}){1,4}|\d{1,12})(?:st|nd|rd|th|ST|ND|RD|TH)\b", _ordinal),
    rule("ranges", rf"{_START}({_NUMBER})\s?[-–—~]\s?({_NUMBER})(?![\w-]|[.,]\d)", _range),
    rule("ranges", r"(?<![\w.,:/-])(\d{1,4}):(\d{1,4})(?![\w:]|[.,]\d)", _range),
    rule("numbers", rf"{_START}({_NUMBER})[eE]([-+])?(\d{{1,3}})(?!\w)", _scientific),
    rule("numbers", rf"{_START}([-+])?({_NUMBER}){_END}", _number),
    rule("numbers", r"(?:(?<=[^\W\d_])-)?(\d+(?:\.\d+)?)", _leftover),
)
