"""English numbers in words, American style: no "and", and a hyphen from twenty-one to ninety-nine."""

from __future__ import annotations

from .tables import words

ONES = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
TENS = ["", "", *words("twenty thirty forty fifty sixty seventy eighty ninety")]
SCALES = ["", *words("thousand million billion trillion quadrillion quintillion sextillion septillion")]
ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
LONGEST_CARDINAL = 9  # digits; a longer number without separators is an identifier, …
LONGEST_ROUND = 16  # … unless it ends in thousands and is no longer than this


def cardinal(number: int) -> str:
    """1234 -> one thousand two hundred thirty-four. Beyond the named scales: digit by digit."""
    if number < 0:
        return "minus " + cardinal(-number)
    if number < 1000:
        return _below_thousand(number)
    if number >= 1000 ** len(SCALES):
        return digits(str(number))
    groups: list[str] = []
    for scale in SCALES:
        number, group = divmod(number, 1000)
        if group:
            groups.append(f"{_below_thousand(group)} {scale}".strip())
    return " ".join(reversed(groups))


def ordinal(number: int) -> str:
    """23 -> twenty-third."""
    words = cardinal(number)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    return words[:cut] + _ordinal_word(words[cut:])


def year(number: int) -> str:
    """1984 -> nineteen eighty-four, 1905 -> nineteen oh five, 2007 -> two thousand seven, 1900 -> nineteen hundred."""
    century, rest = divmod(number, 100)
    if not 10 <= century <= 99 or (century % 10 == 0 and rest < 10):
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def digits(text: str) -> str:
    """ "405" -> four zero five. Whatever is not a digit is left out."""
    return " ".join(ONES[int(char)] for char in text if char.isdecimal())


def decimal(text: str) -> str:
    """A number as written, with thousands commas and a point: "1,234.50" -> … thirty-four point five zero.

    Without commas, a leading zero or many digits mean that it is no quantity: digit by digit, then.
    """
    whole, _, fraction = text.replace(",", "").partition(".")
    tail = f" point {digits(fraction)}" if fraction else ""
    if not whole:
        return tail.strip()
    if "," not in text and _is_code(whole):
        return digits(whole) + tail
    return cardinal(int(whole)) + tail


def _is_code(whole: str) -> bool:
    if len(whole) > 1 and whole[0] == "0":
        return True
    longest = LONGEST_ROUND if whole.endswith("000") else LONGEST_CARDINAL
    return len(whole) > longest


def plural(words: str) -> str:
    """nineteen eighty -> nineteen eighties."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith("x") else "s")


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{ONES[hundreds]} hundred"] if hundreds else []
    if rest or not hundreds:
        words.append(_below_hundred(rest))
    return " ".join(words)


def _below_hundred(number: int) -> str:
    if number < 20:
        return ONES[number]
    tens, one = divmod(number, 10)
    return f"{TENS[tens]}-{ONES[one]}" if one else TENS[tens]


def _ordinal_word(word: str) -> str:
    if word in ORDINALS:
        return ORDINALS[word]
    return word[:-1] + "ieth" if word.endswith("y") else word + "th"
