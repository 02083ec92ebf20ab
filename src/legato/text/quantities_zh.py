"""Chinese quantities: money, units, percentages, fractions, ranges and plain numbers."""

from __future__ import annotations

import re
from decimal import Decimal

from .numbers_zh import cardinal, decimal, digits
from .rules import one_of, rule
from .scripts import HAN
from .tables import words
from .units import CURRENCIES_ZH, MAGNITUDES, UNITS_ZH

_NUMBER = r"(?:(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,18})(?:\.\d{1,18})?)"
_START = r"(?<![A-Za-z\d./-])(?<!\d[,:：])"
_SIGNED = rf"([-+])?({_NUMBER})"
_RANGE = rf"{_SIGNED}(?:\s?[-–—~]\s?({_NUMBER}))?"
_SIGNS = {"-": "负", "+": "正"}
_SIGN_CURRENCIES = one_of(written for written in CURRENCIES_ZH if not written.isalpha())
_CURRENCIES = one_of(CURRENCIES_ZH)
_SCALE = r"(?:(k|K|mn|m|M|bn|b|B)(?![A-Za-z])|([十百千万亿]{1,3}))?"
_UNIT = one_of(UNITS_ZH).replace("µ", "[µμ]")

# Before these a bare 2 is 两, not 二.
_MEASURES = words(
    "个 只 本 张 件 条 位 名 次 天 周 年 小时 分钟 秒 块 元 米 公里 千米 公斤 斤 克 种 倍 家 台 辆 部 杯 瓶 "
    "点 口 双 层 座 把 首 封 段 句 篇 场 门 间 套 份 项 组 对 支 根 颗 粒 片 头 匹 架 艘 遍 趟 顿 岁 人 国 "
    "边 者 百 千 万 亿 美元 欧元"
)
_MEASURE = re.compile(f"(?!年级|点\\d|人称|元[素旦])(?:{one_of(_MEASURES)})")


def _quantity(sign: str | None, low: str, high: str | None) -> str:
    return _SIGNS.get(sign or "", "") + _counted(low) + (f"到{_counted(high)}" if high else "")


def _counted(written: str) -> str:
    return "两" if written == "2" else decimal(written)


def _amount(written: str) -> str:
    """Without the zeros that only fill up the cents: 12.50 -> 十二点五."""
    return _counted(written.rstrip("0").rstrip(".") if "." in written else written)


def _money(match: re.Match[str]) -> str:
    sign, currency, low, high, letters, characters = match.groups()
    return _SIGNS.get(sign or "", "") + _scaled(low, high, letters, characters) + CURRENCIES_ZH[currency]


def _money_after(match: re.Match[str]) -> str:
    sign, low, high, letters, characters, currency = match.groups()
    return _SIGNS.get(sign or "", "") + _scaled(low, high, letters, characters) + CURRENCIES_ZH[currency]


def _scaled(low: str, high: str | None, letters: str | None, characters: str | None) -> str:
    scale = MAGNITUDES[letters.lower()] if letters else 1
    spoken = [_amount(_multiplied(each, scale)) for each in (low, high) if each]
    return "到".join(spoken) + (characters or "")


def _multiplied(written: str, scale: int) -> str:
    return written if scale == 1 else f"{Decimal(written.replace(',', '')) * scale:f}"


def _percent(match: re.Match[str]) -> str:
    sign, low, high, mark = match.groups()
    parts = "百分之" if mark == "%" else "千分之"
    return _SIGNS.get(sign or "", "") + parts + decimal(low) + (f"到{parts}{decimal(high)}" if high else "")


def _degrees(match: re.Match[str]) -> str:
    sign, low, high, unit = match.groups()
    spoken = _quantity(None, low, high) + UNITS_ZH[unit]
    return f"零下{spoken}" if sign == "-" else spoken


def _unit(match: re.Match[str]) -> str:
    sign, low, high, unit = match.groups()
    return _quantity(sign, low, high) + UNITS_ZH[unit.replace("μ", "µ")]


def _magnitude(match: re.Match[str]) -> str:
    number, letters = match.groups()
    if number in ("4", "8") and letters == "K":
        return f"{decimal(number)}K"
    return decimal(_multiplied(number, MAGNITUDES[letters.lower()]))


def _fraction(match: re.Match[str]) -> str:
    top, bottom = match.groups()
    return f"{cardinal(int(bottom))}分之{cardinal(int(top))}"


def _range(match: re.Match[str]) -> str:
    low, high = match.groups()
    first = _counted(low) if _MEASURE.match(match.string, match.end()) else decimal(low)
    return f"{first}到{decimal(high)}"


def _version(match: re.Match[str]) -> str:
    parts = match.group().split(".")
    return "点".join(cardinal(int(part)) if len(part) < 3 and part[0] != "0" else digits(part) for part in parts)


def _number(match: re.Match[str]) -> str:
    sign, written = match.groups()
    return _SIGNS.get(sign or "", "") + decimal(written)


# Spaces between a number and ideographs are typesetting.
SPACING_RULES = (rule("numbers", rf"(?<=[{HAN}])[ ](?=[-+]?[\d$€£¥])|(?<=[\d%])[ ](?=[{HAN}])", ""),)

QUANTITY_RULES = (
    rule("ranges", r"(?<=[百千万亿年月日号点分元角%])\s?[-–~]\s?(?=\d)", "到"),
    rule(
        "money",
        rf"(?:(?<![\w)])([-+]))?({_SIGN_CURRENCIES})\s?({_NUMBER})(?:\s?[-–—~]\s?({_NUMBER}))?{_SCALE}(?!\d)",
        _money,
    ),
    rule("money", rf"{_START}{_RANGE}{_SCALE}\s?({_CURRENCIES})(?![A-Za-z])", _money_after),
    rule("percent", rf"{_START}{_RANGE}\s?([%‰])", _percent),
    rule("units", rf"{_START}{_RANGE}\s?(°[CF]?)(?![A-Za-z])", _degrees),
    rule("numbers", rf"{_START}({_NUMBER})(k|K|M|B)(?![A-Za-z])", _magnitude),
    rule("units", rf"{_START}{_RANGE}\s?({_UNIT})(?![A-Za-z\d/²³])", _unit),
    rule("fractions", r"(?<![A-Za-z\d./-])(\d{1,3})/([1-9]\d{0,2})(?![A-Za-z\d/-]|\.\d)", _fraction),
    rule("numbers", r"(?<![\d.])\d{1,6}(?:\.\d{1,6}){2,6}(?!\d|\.\d)", _version),
    rule("ranges", rf"{_START}({_NUMBER})\s?[-–—~]\s?({_NUMBER})(?![A-Za-z\d-]|[.,]\d)", _range),
    rule(
        "ranges",
        r"(?<![A-Za-z\d.,:：])(\d{1,4})[:：](\d{1,4})(?![\d:：])",
        lambda m: "比".join(map(decimal, m.groups())),
    ),
    rule("numbers", rf"(?<![A-Za-z\d.,第])2(?={_MEASURE.pattern})", "两"),
    rule("numbers", rf"{_START}{_SIGNED}(?!\d|[.,]\d)", _number),
    rule("numbers", r"(?:(?<=[A-Za-z])-)?(\d+(?:\.\d+)?)", lambda match: decimal(match.group(1))),
)
