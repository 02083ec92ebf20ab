"""Writing systems: which characters are Chinese, Japanese or Korean."""

from __future__ import annotations

# Character ranges, written to stand inside a regular expression's [...].
HAN = "\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
CJK = HAN + KANA + HANGUL

_FIRST_CJK = "\u1100"
_CJK_SPANS = (
    ("\u1100", "\u11ff"),
    ("\u3007", "\u3007"),
    ("\u3041", "\u30ff"),
    ("\u3131", "\u318e"),
    ("\u31f0", "\u31ff"),
    ("\u3400", "\u4dbf"),
    ("\u4e00", "\u9fff"),
    ("\uac00", "\ud7a3"),
    ("\uf900", "\ufaff"),
    ("\uff66", "\uff9f"),
    ("\U00020000", "\U0003ffff"),
)


def is_cjk(char: str) -> bool:
    """Whether `char` is an ideograph, a kana or a hangul syllable: roughly a syllable of speech on its own."""
    if char < _FIRST_CJK:
        return False
    return any(first <= char <= last for first, last in _CJK_SPANS)
