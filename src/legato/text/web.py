"""Addresses and tags: URLs, e-mail addresses, file names, hashtags and mentions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from .rules import Rule, one_of, rule
from .scripts import CJK
from .tables import words

_TOP_DOMAINS = words(
    "com org net edu gov mil int io ai dev app co me tv info biz xyz cn uk us de fr jp eu ca au nl ch se in "
    "ru br tech online site cloud"
)
_PATH = rf"[^\s<>\"'“”‘’「」『』，。！？；：、（）《》{CJK}]"
_HOST = rf"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{{0,62}})\.){{1,6}}(?:{one_of(_TOP_DOMAINS)})"
_URL = rf"(?:(?<![A-Za-z0-9])(?:https?|ftp)://|(?<![\w.])www\.){_PATH}{{1,2000}}"
_BARE_URL = rf"(?<![A-Za-z0-9@./-]){_HOST}(?![\w@-]|\.\w)(?::\d{{1,5}})?(?:/{_PATH}{{0,2000}})?"
_EMAIL = r"(?<![A-Za-z0-9._%+-])([A-Za-z0-9._%+-]{1,64})@((?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24})(?![\w-])"
_FILE_NAME = r"(?<=[A-Za-z0-9][A-Za-z])\.(?=[a-z][a-z0-9]{0,5}(?!\w))"
_HASHTAG = r"(?<![\w&#/])#([^\W\d_]\w{0,100})#?"
_MENTION = r"(?<![\w@.])@([A-Za-z_]\w{0,60})"
_SCHEME = re.compile(r"^(?:[a-z]+://)?(?:www\.)?", re.IGNORECASE)
_TRAILING = ".,:;!?)]}*_'\""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|_+")


@dataclass(frozen=True)
class WebWords:
    """How the parts of an address are said."""

    dot: str
    slash: str
    dash: str
    underscore: str
    colon: str
    plus: str
    at: str
    hashtag: str
    mention: str

    def spell(self, address: str) -> str:
        """The address with its punctuation in words."""
        words = {".": self.dot, "/": self.slash, "-": self.dash, "_": self.underscore, ":": self.colon, "+": self.plus}
        return "".join(words.get(char, char) for char in address)


WEB_WORDS_EN = WebWords(" dot ", " slash ", " dash ", " underscore ", " colon ", " plus ", " at ", "hashtag ", "at ")
WEB_WORDS_ZH = WebWords("点", "斜杠", "杠", "下划线", "冒号", "加", "艾特", "话题", "艾特")


def web_rules(words: WebWords) -> tuple[Rule, ...]:
    """Rules that say addresses in the words given.

    Of a URL, the scheme, "www", the query and the fragment are not said.
    """

    def url(match: re.Match[str]) -> str:
        written = match.group()
        kept = written.rstrip(_TRAILING)
        address = re.split(r"[?#]", _SCHEME.sub("", kept), maxsplit=1)[0].rstrip("/")
        return words.spell(unquote(address)) + written[len(kept) :]

    def email(match: re.Match[str]) -> str:
        return f"{words.spell(match.group(1))}{words.at}{words.spell(match.group(2))}"

    return (
        rule("urls", _URL, url),
        rule("emails", _EMAIL, email),
        rule("urls", _BARE_URL, url),
        rule("urls", _FILE_NAME, words.dot),
        rule("tags", _HASHTAG, lambda match: words.hashtag + _CAMEL.sub(" ", match.group(1))),
        rule("tags", _MENTION, lambda match: words.mention + _CAMEL.sub(" ", match.group(1))),
    )
