"""Signs said in words, and signs that make no sound removed."""

from __future__ import annotations

from .rules import Rule, one_of, rule
from .scripts import CJK

# Sign -> words; in English set off by spaces.
SIGNS_EN = {
    "&": "and",
    "=": "equals",
    "+": "plus",
    "×": "times",
    "✕": "times",
    "÷": "divided by",
    "±": "plus or minus",
    "≈": "approximately",
    "≠": "is not equal to",
    "≤": "less than or equal to",
    "≥": "greater than or equal to",
    "<": "less than",
    ">": "greater than",
    "→": "to",
    "⇒": "to",
    "←": "from",
    "↔": "to and from",
    "√": "square root of",
    "∞": "infinity",
    "π": "pi",
    "∑": "sum of",
    "%": "percent",
    "‰": "per mille",
    "°C": "degrees Celsius",
    "°F": "degrees Fahrenheit",
    "°": "degrees",
    "$": "dollars",
    "£": "pounds",
    "€": "euros",
    "¥": "yen",
    "¢": "cents",
    "§": "section",
    "¶": "paragraph",
    "©": "copyright",
    "@": "at",
    "#": "hash",
    "^": "to the power of",
    "²": "squared",
    "³": "cubed",
}

SIGNS_ZH = {
    "&": "和",
    "=": "等于",
    "+": "加",
    "×": "乘以",
    "÷": "除以",
    "±": "正负",
    "≈": "约等于",
    "≠": "不等于",
    "≤": "小于等于",
    "≥": "大于等于",
    "<": "小于",
    ">": "大于",
    "→": "到",
    "⇒": "到",
    "←": "从",
    "√": "根号",
    "∞": "无穷大",
    "%": "百分号",
    "°C": "摄氏度",
    "°F": "华氏度",
    "°": "度",
    "$": "美元",
    "£": "英镑",
    "€": "欧元",
    "¥": "元",
    "§": "第",
    "©": "版权",
    "@": "艾特",
    "#": "井号",
    "²": "平方",
    "³": "立方",
}

# Soundless: brackets that are no parentheses, trade marks, bullets, boxes, arrows and other pictures.
_SILENT = (
    r"[\\/_|{}\[\]®™•‣·◦※†‡¬¦¨`^~*"
    "\u2190-\u21ff\u2300-\u23ff\u2400-\u25ff\u2600-\u27bf\u2900-\u29ff\u2b00-\u2bff\ue000-\uf8ff\ufffd]"
)


def sign_rules(signs: dict[str, str], space: str) -> tuple[Rule, ...]:
    """Rules that say every sign, set off by `space`, and remove the silent ones."""
    return (
        rule("symbols", rf"\s?({one_of(signs)})\s?", lambda match: f"{space}{signs[match.group(1)]}{space}"),
        rule("symbols", _SILENT, " "),
    )


# Signs that depend on what is beside them. These come before the rules for numbers …
OPERATORS_EN = (
    rule("symbols", r"(?<![^\W\d_])([CFJ])#(?!\w)", lambda match: f"{match.group(1)} sharp"),
    rule("symbols", r"(?<![^\W\d_])([A-Za-z])\+\+(?!\w)", lambda match: f"{match.group(1)} plus plus"),
    rule("symbols", r"(?<![\w&#])#\s?(?=\d)", "number "),
    rule("symbols", r"(?<![\w~])[~≈]\s?(?=[\d$£€])", "about "),
    rule("symbols", r"(?<=\d)\s?\*\s?(?=\d)", " times "),
    rule("symbols", r"(?<=\d)\s/\s(?=\d)", " divided by "),
    rule("symbols", r"(?<=\d)\s?-\s?(?=\d{1,18}\s?=)", " minus "),
    rule("symbols", r"(?<=\d)\s?x\s?(?=\d)", " by "),
    rule("symbols", r"(?<=\d)x(?!\w)", " times"),
    rule("symbols", r"[-=]+>", " to "),
)

# … and these after them.
SLASHES_EN = (
    rule("symbols", r"(?<!\w)w/o(?!\w)", "without"),
    rule("symbols", r"(?<!\w)w/(?=\s)", "with"),
    rule("symbols", r"(?<!\w)and/or(?!\w)", "and or"),
    rule("symbols", r"(?<=\w)\s?/\s?(?=\w)", " slash "),
)

OPERATORS_ZH = (
    rule("symbols", r"(?<![^\W\d_])([A-Za-z])\+\+", lambda match: f"{match.group(1)}加加"),
    rule("symbols", r"(?<![A-Za-z\d~])[~≈]\s?(?=[\d$£€¥])", "约"),
    rule("symbols", rf"(?<=[{CJK}])\s?/\s?(?=[{CJK}])", "、"),
    rule("symbols", r"(?<=\d)\s?[*x×]\s?(?=\d)", "乘"),
    rule("symbols", r"(?<=\d)\s?-\s?(?=\d{1,18}\s?=)", "减"),
    rule("symbols", r"[-=]+>", "到"),
)
