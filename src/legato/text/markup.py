"""HTML and Markdown taken out of a text: the words stay, the marks go, and nothing that was written is dropped.

Works line by line on what may be a fragment (an utterance), so it is no parser: what is opened on one line and closed
on another is not paired, and the marks that are left over are removed. The text of a code block is kept like any other.
"""

from __future__ import annotations

import re

from .tables import words

_BLOCK_TAGS = words(
    "article blockquote br div dd dl dt footer h1 h2 h3 h4 h5 h6 header hr li ol p pre section table td th tr ul"
)
_INLINE_TAGS = words(
    "a abbr audio b big body break button center cite code del dfn em emphasis font form head html i iframe img "
    "input ins kbd label lang link main mark meta nav option phoneme prosody q s samp say-as select small span "
    "speak strike strong sub summary sup tbody tfoot thead title tt u var video voice"
)
_ATTRIBUTES = r"(?:\s[^<>=]{0,200}=[^<>]{0,400})?\s{0,8}/?>"


_HIDDEN = re.compile(r"<!--[^<]{0,4000}-->|<(script|style)\b[^<>]{0,400}>[^<]{0,4000}</\1>", re.IGNORECASE)
_BLOCK_TAG = re.compile(f"</?(?:{'|'.join(_BLOCK_TAGS)}){_ATTRIBUTES}", re.IGNORECASE)
_INLINE_TAG = re.compile(f"</?(?:{'|'.join(_INLINE_TAGS)}){_ATTRIBUTES}", re.IGNORECASE)

_FENCE = re.compile(r"\s{0,8}(?:`{3,}|~{3,})[\w+#.-]{0,40}\s*")
_RULE_LINE = re.compile(r"\s{0,8}(?:(?:\*[ \t]?){3,}|(?:-[ \t]?){3,}|(?:_[ \t]?){3,}|={3,})\s*")
_TABLE_RULE = frozenset("|-: \t")
_QUOTE = re.compile(r"\s{0,8}>[ \t>]*")
_HEADING = re.compile(r"\s{0,8}#{1,6}[ \t]+(?=\S)")
_HEADING_END = re.compile(r"(?<![\s#])[ \t]{1,8}#{1,6}[ \t]{0,8}$")
_BULLET = re.compile(r"\s{0,40}[-*+•‣◦▪●][ \t]+(?:\[[ xX]\][ \t]+)?")
_NUMBERED = re.compile(r"(\s{0,40}\d{1,3})[.)](?=[ \t])")

# What is between the marks holds no such mark, so every character is looked at a bounded number of times.
_SPANS = (
    (re.compile(r"!?\[([^\[\]\n]{0,1000})\]\([^()\s]{0,2000}(?:\s{1,4}\"[^\"\n]{0,300}\")?\)"), r"\1"),
    (re.compile(r"\[([^\[\]\n]{1,1000})\]\[[^\[\]\n]{0,100}\]"), r"\1"),
    (re.compile(r"\[\^[\w-]{1,40}\]:?"), ""),
    (re.compile(r"<((?:https?://|mailto:)[^<>\s]{1,2000})>"), r"\1"),
    (re.compile(r"`{1,2}([^`\n]{1,1000})`{1,2}"), r"\1"),
    (re.compile(r"\*\*([^*\n]{1,2000})\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]{1,2000})(?<=[^\s*])\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<![\w_])_{1,3}(?=[^\s_])([^_\n]{1,2000})(?<=[^\s_])_{1,3}(?![\w_])"), r"\1"),
    (re.compile(r"~~([^~\n]{1,2000})~~"), r"\1"),
)
_LEFTOVERS = re.compile(r"\*{2,}|`+|~~+|(?<![\w*])\*(?=\w)|(?<=[\w.,!?])\*(?![\w*])")


def strip_html(text: str) -> str:
    """The text without tags, comments and scripts; a block's edge becomes a line break."""
    if "<" not in text:
        return text
    text = _HIDDEN.sub(" ", text)
    return _INLINE_TAG.sub("", _BLOCK_TAG.sub("\n", text))


def strip_markdown(text: str) -> str:
    """The words of headings, lists, tables, links, emphasis and code, without their marks.

    A number in front of a list item stays ("3. Wash"), a table's cells are set off by commas, and of a link only the
    text is kept. A block's edge becomes a blank line.
    """
    text = "\n".join(map(_strip_line, text.split("\n")))
    for pattern, kept in _SPANS:
        text = pattern.sub(kept, text)
    return _LEFTOVERS.sub("", text)


def _strip_line(line: str) -> str:
    """The line without the marks at its edges; nothing when it is nothing but marks."""
    if _FENCE.fullmatch(line) or _RULE_LINE.fullmatch(line) or (set("|-") <= set(line) <= _TABLE_RULE):
        return ""
    if quote := _QUOTE.match(line):
        line = line[quote.end() :]
    if heading := _HEADING.match(line):
        return f"\n{_HEADING_END.sub('', line[heading.end() :])}\n"
    if bullet := _BULLET.match(line):
        return "\n" + line[bullet.end() :]
    if number := _NUMBERED.match(line):
        return f"\n{number.group(1)}.{line[number.end() :]}"
    return f"\n{_table_row(line)}\n" if line.lstrip().startswith("|") else line


def _table_row(line: str) -> str:
    cells = (cell.strip() for cell in line.split("|"))
    return ", ".join(cell for cell in cells if cell)
