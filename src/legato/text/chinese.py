"""Chinese: every rule, in the order in which they are applied. A rule may count on those before it having been."""

from __future__ import annotations

from .capitals import capital_rules
from .dates_zh import DATE_RULES, PHONE_RULES, TIME_RULES
from .quantities_zh import QUANTITY_RULES, SPACING_RULES
from .symbols import OPERATORS_ZH, SIGNS_ZH, sign_rules
from .web import WEB_WORDS_ZH, web_rules

CHINESE_RULES = (
    *web_rules(WEB_WORDS_ZH),
    *SPACING_RULES,
    *DATE_RULES,
    *TIME_RULES,
    *PHONE_RULES,
    *OPERATORS_ZH,
    *QUANTITY_RULES,
    *capital_rules(separator=" ", conjunction=" and "),
    *sign_rules(SIGNS_ZH, space=""),
)
