"""English abbreviations that end in a full stop, with their spoken form. Keys are lower case, without the last stop.

The splitter asks whether such a stop may end a sentence; the normaliser asks how the abbreviation is said.
"""

from __future__ import annotations

from .tables import words

# Stand before a name, so their stop never ends a sentence.
TITLES = {
    "mr": "Mister",
    "mrs": "Missus",
    "ms": "Ms",
    "messrs": "Messieurs",
    "dr": "Doctor",
    "prof": "Professor",
    "st": "Saint",
    "mt": "Mount",
    "ft": "Fort",
    "gen": "General",
    "gov": "Governor",
    "sen": "Senator",
    "rep": "Representative",
    "capt": "Captain",
    "lt": "Lieutenant",
    "col": "Colonel",
    "sgt": "Sergeant",
    "maj": "Major",
    "adm": "Admiral",
    "rev": "Reverend",
    "hon": "Honorable",
    "pres": "President",
}

# Stand inside a sentence, so their stop never ends one.
INSIDE = {
    "e.g": "for example",
    "i.e": "that is",
    "vs": "versus",
    "cf": "compare",
    "viz": "namely",
    "approx": "approximately",
    "esp": "especially",
    "incl": "including",
    "resp": "respectively",
    "w.r.t": "with respect to",
}

# Stand before a number; before anything else ("No. I refuse.") the stop ends the sentence.
BEFORE_NUMBER = {
    "no": "number",
    "nos": "numbers",
    "fig": "figure",
    "figs": "figures",
    "vol": "volume",
    "vols": "volumes",
    "ch": "chapter",
    "sec": "section",
    "art": "article",
    "eq": "equation",
    "ex": "example",
    "p": "page",
    "pp": "pages",
    "ver": "version",
    "op": "opus",
}

# May stand inside a sentence or end it.
ANYWHERE = {
    "etc": "et cetera",
    "jr": "Junior",
    "sr": "Senior",
    "inc": "Incorporated",
    "ltd": "Limited",
    "corp": "Corporation",
    "co": "Company",
    "bros": "Brothers",
    "dept": "Department",
    "univ": "University",
    "ave": "Avenue",
    "blvd": "Boulevard",
    "rd": "Road",
    "hwy": "Highway",
    "apt": "Apartment",
    "et al": "et al",
    "est": "established",
}

# May end a sentence too, but other parts of the normaliser read them (dates and times).
_CALENDAR = words("jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri sat sun a.m p.m")

NEVER_LAST = frozenset(TITLES) | frozenset(INSIDE)
SOMETIMES_LAST = frozenset(ANYWHERE) | frozenset(_CALENDAR) | {"al"}

# Words that, capitalised after "U.S." or "p.m.", show that a new sentence has begun.
SENTENCE_STARTERS = frozenset(
    words(
        "a after all also although an and another are as at because before but by can did do does each even "
        "every finally first for from had has have he her here his how however i if in is it its let many maybe "
        "meanwhile most my never no nor not now of on once one or our perhaps please she since so some still "
        "such that the their then there these they this those though thus to today tomorrow two was we well were "
        "what when where while who why will with would yes yet you your"
    )
)
