"""How GLM-TTS's text front reads symbols within Chinese: tables only."""

from __future__ import annotations

MARKS = "。？！；：、.?!;:，,"
"""Punctuation that the model was trained with."""

OPENERS_AND_CLOSERS = "()（）【】「」`《》『』{}[]"
"""Dropped; what they enclose is read."""

VARIANTS = {"噢": "哦", "欸": "诶"}
"""Interjections written the way the model knows them."""

GREEK_AND_SHAPES = {
    "α": "阿尔法",
    "β": "贝塔",
    "γΓ": "伽玛",
    "δΔ△": "德尔塔",
    "ε": "艾普西龙",
    "ζ": "捷塔",
    "η": "依塔",
    "θΘ": "西塔",
    "ι": "艾欧塔",
    "κ": "喀帕",
    "λΛ": "拉姆达",
    "μ": "缪",
    "ν": "拗",
    "ξΞ": "克西",
    "ο": "欧米克伦",
    "πΠ": "派",
    "ρ": "肉",
    "ςσΣ": "西格玛",
    "τ": "套",
    "υ": "宇普西龙",
    "φΦ": "服艾",
    "χ": "器",
    "ψΨ": "普赛",
    "ωΩ": "欧米伽",
    "□": "方框",
}
MATHEMATICS = {
    ">": "大于",
    "<": "小于",
    "∈": "属于",
    "∉⊄⊈": "不属于",
    "∪": "并",
    "∩": "交",
    "⊥": "垂直",
    "∥": "平行",
    "≠": "不等于",
    "∵": "因为",
    "∴": "所以",
    "∅": "空集",
    "⊂": "真包含于",
    "⊃": "包含",
    "⊆": "包含于",
    "⊇": "真包含",
    "⊅⊉": "非超集",
}
OTHERS = {"†": "，", "²": "平方", "³": "立方", "/": "每", "~～": "到"}
CIRCLED = dict(zip("①②③④⑤⑥⑦⑧⑨⑩", "一二三四五六七八九十", strict=True))

SPOKEN = str.maketrans(
    {sign: word for table in (GREEK_AND_SHAPES, MATHEMATICS, OTHERS) for signs, word in table.items() for sign in signs}
    | CIRCLED
)
"""Every sign above to its word, for str.translate."""
