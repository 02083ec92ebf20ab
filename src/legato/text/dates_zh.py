"""Chinese dates, times of day and telephone numbers."""

from __future__ import annotations

import re

from .numbers_zh import cardinal, digits
from .rules import rule

_CLOCK = r"([01]?\d|2[0-4])[:：]([0-5]\d)(?:[:：]([0-5]\d))?"
_HALF_DAYS = {"a": "上午", "p": "下午"}
_TODAY_OR_PAST = range(
    50, 100
)  # a year of two digits in this range is the year's name: 98年; below it, a length of time


def _full_date(match: re.Match[str]) -> str:
    year, _, month, day, time_follows = match.groups()
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return match.group()
    return f"{digits(year)}年{cardinal(int(month))}月{cardinal(int(day))}日{'，' if time_follows else ''}"


def _named_year(match: re.Match[str]) -> str:
    written = match.group(1)
    if len(written) == 2 and int(written) not in _TODAY_OR_PAST:
        return match.group()
    return digits(written)


def _time(match: re.Match[str]) -> str:
    hour, minute, second, half = match.groups()
    words = _hour(int(hour))
    if int(minute) or second:
        words += ("零" if int(minute) < 10 and int(minute) else "") + f"{cardinal(int(minute))}分"
    if second:
        words += f"{cardinal(int(second))}秒"
    return (_HALF_DAYS[half.lower()] if half else "") + words


def _whole_hour(match: re.Match[str]) -> str:
    hour, half = match.groups()
    if not 1 <= int(hour) <= 12:
        return match.group()
    return _HALF_DAYS[half.lower()] + _hour(int(hour))


def _hour(hour: int) -> str:
    return ("两" if hour == 2 else cardinal(hour)) + "点"


def _minutes(match: re.Match[str]) -> str:
    """点05 is read with its zero, and with 分 whether that is written or not."""
    minute = int(match.group(1))
    return ("零" if minute < 10 else "") + cardinal(minute) + "分"


def _telephone(match: re.Match[str]) -> str:
    groups = (digits(group, telephone=True) for group in re.findall(r"\d+", match.group()))
    return ("加" if match.group().startswith("+") else "") + " ".join(groups)


DATE_RULES = (
    rule("dates", r"(?<![\w/.-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:日|(T)(?=\d\d:)|(?![\w/-]|\.\d))", _full_date),
    rule("dates", r"(?<![\d.])([12]\d{3})\s?[-–~]\s?(?=[12]\d{3}年)", lambda match: digits(match.group(1)) + "到"),
    rule("dates", r"(?<!\d)([12]\d{3}|\d{2})(?=年)(?!年[前后内间来以])", _named_year),
)

TIME_RULES = (
    rule("times", r"(?<=[:：][0-5]\d)\s?[-–~]\s?(?=\d{1,2}[:：][0-5]\d)", "到"),
    rule("times", rf"(?<![\d:：.]){_CLOCK}(?:\s?([AaPp])\.?[Mm](?![A-Za-z])\.?)?(?![\d:：])", _time),
    rule("times", r"(?<![\d:：.])(\d{1,2})\s?([AaPp])\.?[Mm](?![A-Za-z])\.?", _whole_hour),
    rule("times", r"(?<=\d点)([0-5]\d)分?(?!\d)", _minutes),
)

PHONE_RULES = (
    rule("phones", r"(?<![\w.-])(?:\+?86[\s-]?)?1[3-9]\d([\s-]?)\d{4}\1\d{4}(?!\d|[.-]\d)", _telephone),
    rule("phones", r"(?<![\d.-])(?:0\d{2,3}-\d{7,8}|[48]00-?\d{3}-?\d{4})(?!\d|[.-]\d)", _telephone),
    rule("phones", r"(?<=[打拨线话])\d{3,12}(?!\d|[.-]\d)", _telephone),
    rule("phones", r"(?<!\w)\+\d{1,3}(?:[\s-]?\(?\d{2,5}\)?){1,5}(?!\d)", _telephone),
)
