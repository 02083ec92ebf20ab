"""Characters: those that make no sound are removed, and variants of a character are folded into the plain one."""

from __future__ import annotations

import html
import re
import unicodedata

# Controls (but for tab and line breaks) and lone surrogates: never text.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
# Zero width: soft hyphen, joiners, direction marks, byte order mark, variation selectors (some belong to emoji).
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_LINE_BREAKS = re.compile("\r\n?|[\x0c\x85\u2028\u2029]")
_SPACES = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
# Full-width ASCII (but for the punctuation of Chinese), ligatures, squared units, circled and styled letters.
_VARIANTS = re.compile(
    "[\uff02-\uff07\uff0a\uff0b\uff0d-\uff19\uff1c-\uff1e\uff20-\uff5d\uffe0-\uffe6\ufb00-\ufb06\u3371-\u33ff"
    "\u2100-\u2106\u2109-\u2113\u2115\u2116\u2119-\u211d\u2124\u2126-\u212d\u2460-\u249b\u24b6-\u24e9\U0001d400-\U0001d7ff]"
)
_FRACTIONS = re.compile("(\\d?)([\u00bc-\u00be\u2150-\u215e])")
_SUBSCRIPTS = re.compile("[\u2080-\u2089]")
_POWER = re.compile(r"(?<=\d)[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]{1,20}")
_APOSTROPHES = re.compile(r"(?<=[^\W\d_])[’ʼ](?=[^\W\d_])")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")

# Folded otherwise than Unicode's compatibility forms do.
_FOLDS = str.maketrans(
    {"\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2012": "–", "\u2015": "—", "～": "~"}
    | {"㎡": "m²", "㎥": "m³", "㎢": "km²", "№": "#", "⁄": "/"}
)


def drop_controls(text: str) -> str:
    """The text without control characters and lone surrogates."""
    return _CONTROLS.sub("", text)


def decode_entities(text: str) -> str:
    """HTML entities as the characters that they stand for."""
    return _ENTITY.sub(lambda match: html.unescape(match.group()), text)


def drop_invisible(text: str) -> str:
    """The text without characters that have no width."""
    return _INVISIBLE.sub("", text)


def fold_variants(text: str) -> str:
    """Full-width, styled, circled and squared forms as plain characters; every line break \\n, every space a space."""
    text = _LINE_BREAKS.sub("\n", text)
    text = _SPACES.sub(" ", text).translate(_FOLDS)
    text = _SUBSCRIPTS.sub(lambda match: str(unicodedata.digit(match.group())), text)
    text = _POWER.sub(_plain_power, text)
    text = _FRACTIONS.sub(_plain_fraction, text)
    text = _VARIANTS.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    return _APOSTROPHES.sub("'", text)


def _plain_fraction(match: re.Match[str]) -> str:
    whole, fraction = match.groups()
    plain = unicodedata.normalize("NFKC", fraction).replace("\u2044", "/")
    return f"{whole} {plain}" if whole else plain


def _plain_power(match: re.Match[str]) -> str:
    """10⁻⁶ -> 10^-6; squares and cubes have words of their own."""
    power = match.group()
    return power if power in "²³" else "^" + unicodedata.normalize("NFKC", power).translate(_FOLDS)
