"""Pinyin as people write it → initial, final in full, tone: "liu2" is l iou 2, "wen" is uen 5, "ju1" is j v 1.

The vowel of zi is ii, that of zhi iii. Tones are 1 to 5, 5 (or none) being the neutral one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from legato.errors import RequestError

_INITIALS = ("zh", "ch", "sh", *"bpmfdtnlgkhjqxrzcs")
_FINAL_NAMES = (
    "a ai an ang ao e ei en eng er i ia ian iang iao ie in ing io iong iou o ong ou "
    "u ua uai uan uang uei uen ueng uo v van ve vn ii iii"
)
_FINALS = frozenset(_FINAL_NAMES.split())
_SYLLABLE = re.compile(r"([a-zü:]+?)([1-5]?)")
_Y_FINALS = {
    "yi": "i",
    "ya": "ia",
    "ye": "ie",
    "yao": "iao",
    "you": "iou",
    "yan": "ian",
    "yin": "in",
    "yang": "iang",
    "ying": "ing",
    "yong": "iong",
    "yo": "io",
    "yu": "v",
    "yue": "ve",
    "yuan": "van",
    "yun": "vn",
}
_W_FINALS = {
    "wu": "u",
    "wa": "ua",
    "wo": "uo",
    "wai": "uai",
    "wei": "uei",
    "wan": "uan",
    "wen": "uen",
    "wang": "uang",
    "weng": "ueng",
}
_SHORT = {"iu": "iou", "ui": "uei", "un": "uen", "ue": "ve", "v": "v", "vn": "vn", "van": "van"}
_ROUNDED = {"u": "v", "uan": "van", "un": "vn", "ue": "ve"}
"""After j, q, x a written u is ü."""


@dataclass(frozen=True)
class Syllable:
    """Lower case, ü as v; `initial` may be empty."""

    initial: str
    final: str
    tone: int


def read_syllable(written: str) -> Syllable:
    """A pinyin syllable with its tone. Raises RequestError when it is none."""
    match = _SYLLABLE.fullmatch(written.strip().lower())
    split = _split(match[1].replace("u:", "v").replace("ü", "v")) if match else None
    if match is None or split is None:
        raise RequestError(f"{written!r} is not a pinyin syllable with its tone, such as hang2 or lü4", "input")
    return Syllable(*split, int(match[2] or 5))


def syllables_of(mark: str, written: str, said: str) -> list[str]:
    """The syllables that a mark says, one for each character; spaces between them as its author likes.

    Raises RequestError naming the mark when they do not match.
    """
    syllables = re.findall(r"[^\s\d]+[0-9]?", said)
    if len(syllables) != len(written) or "".join(syllables) != "".join(said.split()):
        raise RequestError(
            f"{mark} should give one syllable for each of its {len(written)} characters, such as {{行|hang2}}", "input"
        )
    return syllables


def _split(letters: str) -> tuple[str, str] | None:
    """Initial and final in full; None when the letters are no syllable."""
    whole = _Y_FINALS.get(letters) or _W_FINALS.get(letters)
    if whole:
        return "", whole
    initial = next((i for i in _INITIALS if letters.startswith(i)), "")
    final = letters[len(initial) :]
    if initial in ("j", "q", "x"):
        final = _ROUNDED.get(final, final)
    final = _SHORT.get(final, final)
    if final == "i" and initial in ("zh", "ch", "sh", "r"):
        final = "iii"
    elif final == "i" and initial in ("z", "c", "s"):
        final = "ii"
    allowed = final in _FINALS and (initial or final[0] in "aeo")
    return (initial, final) if allowed else None
