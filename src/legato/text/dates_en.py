"""English dates, times of day and telephone numbers."""

from __future__ import annotations

import re

from .numbers_en import cardinal, digits, ordinal, plural, year
from .rules import one_of, rule
from .tables import words

MONTHS = words("January February March April May June July August September October November December")
_MONTH_NUMBERS = {name[:3].lower(): number for number, name in enumerate(MONTHS, 1)}
_SHORT_MONTHS = [name[:3] for name in MONTHS if name != "May"] + ["Sept"]
# The stop of "Jan." goes with it when the date goes on.
_MONTH = rf"(?:{one_of(MONTHS)}|(?:{one_of(_SHORT_MONTHS)})(?:\.(?=,?\s?\d))?)"
_WEEKDAYS = {
    "Mon": "Monday",
    "Tue": "Tuesday",
    "Tues": "Tuesday",
    "Wed": "Wednesday",
    "Thu": "Thursday",
    "Thurs": "Thursday",
    "Fri": "Friday",
    "Sat": "Saturday",
    "Sun": "Sunday",
}
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_NO_MORE_DIGITS = r"(?![\w:%/]|[.,]\d)"

_CLOCK = r"([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d)(?:\.\d{1,6})?Z?)?"
_HALF = r"([AaPp])(?:\.[Mm]\b|[Mm]\b)(\.?)"
_PHONE_START = r"(?<![\w.,/:+-])"
_PHONE_END = r"(?![\w-]|[.,/]\d)"


def _month_name(written: str) -> str:
    return MONTHS[_MONTH_NUMBERS[written[:3].lower()] - 1]


def _date(month: int, day: int, written_year: str, otherwise: str) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return otherwise
    return f"{MONTHS[month - 1]} {ordinal(day)}, {year(int(written_year))}"


def _iso_date(match: re.Match[str]) -> str:
    written_year, _, month, day, time_follows = match.groups()
    return _date(int(month), int(day), written_year, match.group()) + (" at " if time_follows else "")


def _slashed_date(match: re.Match[str]) -> str:
    """Month first, as in America, unless it cannot be a month."""
    first, second, written_year = match.groups()
    month, day = (int(first), int(second)) if int(first) <= 12 else (int(second), int(first))
    if len(written_year) == 2:
        written_year = ("19" if int(written_year) > 50 else "20") + written_year
    return _date(month, day, written_year, match.group())


def _days(first: str, last: str | None) -> str | None:
    if not all(1 <= int(day) <= 31 for day in (first, last or first)):
        return None
    return ordinal(int(first)) + (f" to {ordinal(int(last))}" if last else "")


def _month_first(match: re.Match[str]) -> str:
    month, first, last, written_year = match.groups()
    days = _days(first, last)
    if days is None:
        return match.group()
    return f"{_month_name(month)} {days}" + (f", {year(int(written_year))}" if written_year else "")


def _day_first(match: re.Match[str]) -> str:
    article, first, last, month, written_year = match.groups()
    days = _days(first, last)
    if days is None:
        return match.group()
    return f"{article or 'the'} {days} of {_month_name(month)}" + (
        f", {year(int(written_year))}" if written_year else ""
    )


def _month_and_year(match: re.Match[str]) -> str:
    return f"{_month_name(match.group(1))} {year(int(match.group(2)))}"


def _decade(match: re.Match[str]) -> str:
    written = match.group(1)
    return plural(year(int(written)) if len(written) == 4 else cardinal(int(written)))


def _time(match: re.Match[str]) -> str:
    hour, minute, second, half, stop = match.groups()
    words = cardinal(int(hour))
    if int(minute):
        words += f" {'oh ' if int(minute) < 10 else ''}{cardinal(int(minute))}"
    elif not half and not second:
        words += " o'clock"
    if second:
        words += f" and {cardinal(int(second))} second{'s' if int(second) != 1 else ''}"
    return words + (_half(half, stop) if half else "")


def _hour(match: re.Match[str]) -> str:
    first, last, half, stop = match.groups()
    if not all(1 <= int(hour) <= 12 for hour in (first, last or first)):
        return match.group()
    return cardinal(int(first)) + (f" to {cardinal(int(last))}" if last else "") + _half(half, stop)


def _half(letter: str, stop: str) -> str:
    """Spelled with a stop between the letters, like every acronym; a last stop may end the sentence too and stays."""
    return f" {letter.upper()}.M{stop}"


def _telephone(match: re.Match[str]) -> str:
    """Digit by digit, the groups set off by commas."""
    written = match.group()
    groups = (digits(group) for group in re.findall(r"\d+", written))
    return ("plus " if written.startswith("+") else "") + ", ".join(groups)


DATE_RULES = (
    rule("dates", r"(?<![\w/.-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:(T)(?=\d\d:)|(?![\w/-]|\.\d))", _iso_date),
    rule("dates", r"(?<![\w/.-])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\w/-]|\.\d)", _slashed_date),
    rule(
        "dates",
        rf"\b({_MONTH})\s{_DAY}(?:\s?[-–]\s?{_DAY})?(?:,?\s(\d{{4}}))?{_NO_MORE_DIGITS}",
        _month_first,
    ),
    rule(
        "dates",
        rf"(?<![\w.,/:$£€-])(?:([Tt]he)\s)?{_DAY}(?:\s?[-–]\s?{_DAY})?\s(?:of\s)?({_MONTH})\b(?:,?\s(\d{{4}}){_NO_MORE_DIGITS})?",
        _day_first,
    ),
    rule("dates", rf"\b({_MONTH}),?\s(\d{{4}}){_NO_MORE_DIGITS}", _month_and_year),
    rule("dates", r"(?<![\w.,])['’]?(\d0|[12]\d\d0)['’]?s\b", _decade),
    rule("dates", rf"\b({one_of(_WEEKDAYS)})(?:\.(?=,?\s[A-Z\d])|(?=,\s))", lambda match: _WEEKDAYS[match.group(1)]),
)

TIME_RULES = (
    rule("times", r"(?<=:[0-5]\d)\s?[-–]\s?(?=\d{1,2}:[0-5]\d)", " to "),
    rule("times", rf"(?<![\w:.])(?<!\d,){_CLOCK}(?:\s?{_HALF})?(?![\w:])(?!\.\d)", _time),
    rule("times", rf"(?<![\w:.,])(\d{{1,2}})(?:\s?[-–]\s?(\d{{1,2}}))?\s?{_HALF}(?!\w)", _hour),
)

PHONE_RULES = (
    rule("phones", rf"{_PHONE_START}(?:\+?1[\s.-]?)?\(\d{{3}}\)\s?\d{{3}}[\s.-]\d{{4}}{_PHONE_END}", _telephone),
    rule("phones", rf"{_PHONE_START}(?:\+?1[\s.-])?\d{{3}}([.-])\d{{3}}\1\d{{4}}{_PHONE_END}", _telephone),
    rule("phones", rf"(?<!\w)\+\d{{1,3}}(?:[\s-]?\(?\d{{2,5}}\)?){{1,5}}{_PHONE_END}", _telephone),
    rule("phones", rf"{_PHONE_START}\d{{3}}-\d{{4}}{_PHONE_END}", _telephone),
)
