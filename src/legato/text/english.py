"""English: every rule, in the order in which they are applied. A rule may count on those before it having been."""

from __future__ import annotations

from .capitals import capital_rules
from .dates_en import DATE_RULES, PHONE_RULES, TIME_RULES
from .quantities_en import MONEY_RULES, NUMBER_RULES, UNIT_RULES
from .symbols import OPERATORS_EN, SIGNS_EN, SLASHES_EN, sign_rules
from .web import WEB_WORDS_EN, web_rules
from .words_en import ABBREVIATION_RULES, ROMAN_RULES

ENGLISH_RULES = (
    *web_rules(WEB_WORDS_EN),
    *ABBREVIATION_RULES,
    *ROMAN_RULES,
    *DATE_RULES,
    *TIME_RULES,
    *PHONE_RULES,
    *MONEY_RULES,
    *UNIT_RULES,
    *OPERATORS_EN,
    *NUMBER_RULES,
    *capital_rules(separator=".", conjunction=" and "),
    *SLASHES_EN,
    *sign_rules(SIGNS_EN, space=" "),
)
