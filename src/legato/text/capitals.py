"""Words in capitals: acronyms are spelled, shouted words are lowered."""

from __future__ import annotations

import re

from .rules import Rule, rule
from .tables import words

# Spelled although they could be read as a word; the short ones only when nothing beside them is shouted.
SPELLED = frozenset(words("AARP ACLU AM IEEE IETF ISBN IT NCAA OECD UCLA UNHCR US USAF USDA USSR UUID WHO YMCA"))
# Said as words although they are short or have no vowels, or known so well in capitals that they keep them.
SPOKEN = frozenset(
    words("ASAP COVID DRAM FIFA GIF JPEG LIDAR NASA NASDAQ NATO OK OPEC RAM ROM SIM SQL UNESCO UNICEF VRAM")
)
# Of two or three letters with a vowel only these are words; the rest are spelled.
SHORT_WORDS = frozenset(
    words(
        "ACT ADD AGE AGO AIR ALL AN AND ANY ARE ARM ART AS ASK AT ATE BAD BAG BE BED BIG BIT BOX BOY BUS BUT BUY "
        "BY BYE CAN CAR CAT CUT DAD DAY DID DIE DO DOG EAT EGG END EYE FAN FAR FEW FIX FLY FOR FUN GET GO GOD "
        "GOT GUY HA HAD HAS HAT HE HER HEY HI HIM HIS HIT HOT HOW HUH IF IN IS ITS JOB JOY KEY LET LIE LOT LOW "
        "MAD MAN MAP MAY ME MEN MET MOM MY NEW NO NOR NOT NOW ODD OF OFF OH OLD ON ONE OR OUR OUT OWN PAY PER "
        "PUT RED RUN SAD SAT SAW SAY SEA SEE SET SHE SIR SIT SIX SKY SO SON SUN TAX TEN THE TOO TOP TRY TWO UP "
        "US USE WAR WAS WAY WE WET WHO WHY WIN WON WOW YES YET YOU TO IT AM"
    )
)
# No vowel, yet no acronym.
MURMURS = frozenset(words("HMM HM SHH PSST PFFT BRR GRR TSK NTH MR MRS MS DR ST MT FT JR SR VS"))

_VOWELS = frozenset("AEIOUY")
_LATIN = "A-Za-zÀ-ÖØ-öø-ɏ"
_WORD = rf"(?<![{_LATIN}.])([A-Z]{{2,40}})(['’]?s)?(?![{_LATIN}]|\.[A-Z])"
_JOINED = rf"(?<![{_LATIN}&])([A-Z]{{1,4}})&([A-Z]{{1,4}})(?![{_LATIN}&])"
_NEIGHBOUR_BEFORE = re.compile(rf"(?<![{_LATIN}])([A-Z]{{2,20}})[\s,-]{{1,2}}$")
_NEIGHBOUR_AFTER = re.compile(rf"[\s,-]{{1,2}}([A-Z]{{2,20}})(?![{_LATIN}])")
_LOOKBACK = 24


def capital_rules(separator: str, conjunction: str) -> tuple[Rule, ...]:
    """Rules that spell acronyms with `separator` between the letters, and say "&" in one as `conjunction`.

    English spells "F.B.I": grapheme-to-phoneme readers know that form, and would take the A of "A P I" for the article.
    """

    def spell(word: str) -> str:
        return separator.join(word)

    def joined(match: re.Match[str]) -> str:
        return conjunction.join(spell(part) for part in match.groups())

    def word(match: re.Match[str]) -> str:
        letters, plural = match.groups()
        if letters in SPOKEN:
            return match.group()
        if _is_acronym(letters) or (letters in SPELLED and not _is_shouted(match)):
            return spell(letters) + ("'s" if plural else "")
        return match.group().lower()

    return (rule("capitals", _JOINED, joined), rule("capitals", _WORD, word))


def _is_acronym(letters: str) -> bool:
    """Whether the word is spelled wherever it stands."""
    if letters in MURMURS or letters in SHORT_WORDS:
        return False
    if letters in SPELLED or not _VOWELS & set(letters):
        return True
    return len(letters) <= 3


def _is_shouted(match: re.Match[str]) -> bool:
    """Whether a word beside this one is in capitals and no acronym: "IT WORKS", but "the IT department"."""
    before = _NEIGHBOUR_BEFORE.search(match.string[max(0, match.start() - _LOOKBACK) : match.start()])
    after = _NEIGHBOUR_AFTER.match(match.string, match.end())
    return any(found and not _is_acronym(found.group(1)) for found in (before, after))
