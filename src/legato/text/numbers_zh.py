"""Chinese numbers in words."""

from __future__ import annotations

DIGITS = "零一二三四五六七八九"
PLACES = ["", "十", "百", "千"]
MYRIADS = ["", "万", "亿", "万亿", "亿亿"]
LONGEST_CARDINAL = 9  # digits; a longer number without separators is an identifier, …
LONGEST_ROUND = 16  # … unless it ends in thousands and is no longer than this


def cardinal(number: int) -> str:
    """12045 -> 一万二千零四十五. 二 in front of 百, 千, 万, 亿 is 两. Beyond the named scales: digit by digit."""
    if number < 0:
        return "负" + cardinal(-number)
    if number == 0:
        return DIGITS[0]
    if number >= 10000 ** len(MYRIADS):
        return digits(str(number))
    words = ""
    for myriad in MYRIADS:
        number, section = divmod(number, 10000)
        if section:
            follows_gap = number > 0 and section < 1000
            words = ("零" if follows_gap else "") + _section(section) + myriad + words
        elif words and not words.startswith("零"):
            words = "零" + words
    words = words.lstrip("零")
    words = words[1:] if words.startswith("一十") else words
    return "两" + words[1:] if words[0] == "二" and words[1:2] in tuple("百千万亿") else words


def digits(text: str, telephone: bool = False) -> str:
    """ "2024" -> 二零二四; on the telephone 1 is 幺. Whatever is not a digit is left out."""
    spoken = "".join(DIGITS[int(char)] for char in text if char.isdecimal())
    return spoken.replace("一", "幺") if telephone else spoken


def decimal(text: str) -> str:
    """A number as written, with thousands commas and a point: "1,234.50" -> 一千二百三十四点五零.

    Without commas, a leading zero or many digits mean that it is no quantity: digit by digit, then.
    """
    whole, _, fraction = text.replace(",", "").partition(".")
    tail = f"点{digits(fraction)}" if fraction else ""
    if "," not in text and _is_code(whole):
        return digits(whole) + tail
    return cardinal(int(whole or "0")) + tail


def _is_code(whole: str) -> bool:
    if len(whole) > 1 and whole[0] == "0":
        return True
    longest = LONGEST_ROUND if whole.endswith("000") else LONGEST_CARDINAL
    return len(whole) > longest


def _section(number: int) -> str:
    """A number from 1 to 9999."""
    words = ""
    for place in PLACES:
        number, digit = divmod(number, 10)
        if digit:
            words = DIGITS[digit] + place + words
        elif words and not words.startswith("零"):
            words = "零" + words
    return words.lstrip("零")
