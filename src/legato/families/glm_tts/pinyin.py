"""Pinyin as people write it → the model's phonemes, and pronunciations written into the text: {行|hang2}.

A phoneme token is an initial (SH) or a final with its tone (ANG4). Finals are written in full: liu2 is L IOU2, wen2 is
UEN2, ju1 is J V1; the vowel of zi is II, that of zhi III. Tones are 1 to 5, 5 (or none) being the neutral one.
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

FIRST_PLACE, PLACES = 0xE000, 0x1900
"""Characters of Unicode's private use area: each stands for one character whose pronunciation is given."""

_INLINE = re.compile(r"\{([^{}|]+)\|([^{}|]*)\}")
_PRIVATE = re.compile("[\ue000-\uf8ff]")


def phonemes_of(syllable: str) -> tuple[str, ...]:
    """Phoneme names of a pinyin syllable: "hang2" → ("H", "ANG2"). Raises RequestError when it is none."""
    match = _SYLLABLE.fullmatch(syllable.strip().lower())
    split = _split(match[1].replace("u:", "v").replace("ü", "v")) if match else None
    if match is None or split is None:
        raise RequestError(f"{syllable!r} is not a pinyin syllable with its tone, such as hang2 or lü4", "input")
    initial, final = split
    name = f"{final}{match[2] or 5}".upper()
    return (initial.upper(), name) if initial else (name,)


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


def tokens(names: tuple[str, ...]) -> str:
    """Phoneme names as the tokenizer's added tokens: ("H", "ANG2") → "<|H|><|ANG2|>"."""
    return "".join(f"<|{name}|>" for name in names)


@dataclass(frozen=True)
class Marked:
    """A text in which each character with a given pronunciation is a private character.

    `said` maps these to their phoneme names, `written` to their marks.
    """

    text: str
    said: dict[str, tuple[str, ...]]
    written: dict[str, str]

    def spoken(self, text: str) -> str:
        """A text made from this one, with phoneme tokens for the private characters."""
        return _PRIVATE.sub(lambda match: tokens(self.said.get(match[0], ())), text)

    def restored(self, text: str) -> str:
        """A text made from this one, with the marks as they were written."""
        return _PRIVATE.sub(lambda match: self.written.get(match[0], ""), text)


def read_marks(text: str) -> Marked:
    """Take `{characters|pinyin pinyin …}` out of a text: one syllable for each character, spaces between as you like.

    Raises RequestError naming the mark when syllables and characters do not match or a syllable is none.
    """
    said: dict[str, tuple[str, ...]] = {}
    written: dict[str, str] = {}

    def place(match: re.Match[str]) -> str:
        syllables = re.findall(r"[^\s\d]+[0-9]?", match[2])
        if len(syllables) != len(match[1]) or "".join(syllables) != "".join(match[2].split()):
            raise RequestError(
                f"{match[0]} should give one syllable for each of its {len(match[1])} characters, such as {{行|hang2}}",
                "input",
            )
        places = [chr(FIRST_PLACE + len(said) + index) for index in range(len(syllables))]
        if len(said) + len(places) > PLACES:
            raise RequestError(f"at most {PLACES} characters of a text can have their pronunciation given", "input")
        for at, char, syllable in zip(places, match[1], syllables, strict=True):
            said[at], written[at] = phonemes_of(syllable), f"{{{char}|{syllable}}}"
        return "".join(places)

    return Marked(_INLINE.sub(place, _PRIVATE.sub("", text)), said, written)
