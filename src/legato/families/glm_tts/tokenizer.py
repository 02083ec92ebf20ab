"""Text → token ids: our own reader of the checkpoint's `tokenizer.model` and `tokenizer_config.json`.

`tokenizer.model` is a tiktoken rank file: one `base64-of-the-bytes rank` a line; the rank is the id, and the order in
which byte pairs merge. The text between added tokens is first cut by GLM-4's pattern (`_pieces`), then each piece is
byte-pair encoded. No token is put before or after the text. No code of the checkpoint is run.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unicodedata import category

from legato.errors import CheckpointError

from .files import need_file, read_json_table, telling_what_to_run

RANKS_FILE, CONFIG_FILE = "tokenizer.model", "tokenizer_config.json"
CACHED_PIECES = 4096


@dataclass(frozen=True)
class AddedToken:
    """A string that is one token wherever it stands; `left` and `right`: it swallows the white space there."""

    text: str
    id: int
    left: bool = False
    right: bool = False


class Tokenizer:
    """Encodes text; holds nothing of any request."""

    def __init__(self, ranks: dict[bytes, int], added: tuple[AddedToken, ...]) -> None:
        self.ranks = ranks
        self.added = {token.text: token for token in added}
        longest_first = sorted(self.added, key=len, reverse=True)
        self._added_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._merge = lru_cache(CACHED_PIECES)(self._merge_piece)

    def encode(self, text: str) -> list[int]:
        """Ids of the text; added tokens in it become one id each."""
        ids: list[int] = []
        start, trim = 0, False
        for match in self._added_pattern.finditer(text):
            token = self.added[match[0]]
            plain = text[start : match.start()]
            ids += self._plain(_trimmed(plain, left=trim, right=token.left))
            ids.append(token.id)
            start, trim = match.end(), token.right
        return ids + self._plain(_trimmed(text[start:], left=trim, right=False))

    def id_of(self, text: str) -> int:
        """The id of a string that must be one token. Raises CheckpointError when it is not."""
        ids = self.encode(text)
        if len(ids) != 1:
            raise CheckpointError(f"{text} should be one token of this tokenizer but is {len(ids)}; see {CONFIG_FILE}")
        return ids[0]

    def _plain(self, text: str) -> list[int]:
        return [id for piece in _pieces(text) for id in self._merge(piece.encode("utf-8", "replace"))]

    def _merge_piece(self, piece: bytes) -> tuple[int, ...]:
        """Byte-pair encoding: the neighbours whose union has the lowest rank are merged, the leftmost first."""
        if piece in self.ranks:
            return (self.ranks[piece],)
        parts = [bytes((byte,)) for byte in piece]
        unknown = len(self.ranks) + max(self.ranks.values())
        costs = [self.ranks.get(a + b, unknown) for a, b in zip(parts, parts[1:], strict=False)]
        while costs and (best := min(costs)) < unknown:
            at = costs.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del costs[at]
            if at < len(costs):
                costs[at] = self.ranks.get(parts[at] + parts[at + 1], unknown)
            if at:
                costs[at - 1] = self.ranks.get(parts[at - 1] + parts[at], unknown)
        return tuple(self.ranks[part] for part in parts)


def _trimmed(text: str, left: bool, right: bool) -> str:
    text = text.lstrip() if left else text
    return text.rstrip() if right else text


# --- GLM-4's cut: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
#     \s*[\r\n]+|\s+(?!\S)|\s+   as a pattern over one letter per character: its kind ---

_CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)", re.IGNORECASE)
_SHAPE = re.compile(r"[^BLN]?L+|N{1,3}|_?[^BS_LN]+B*|[BS_]*B+|[BS_]+(?![^BS_])|[BS_]+")
_SPACES = "\t\x0b\x0c\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
_WHITE_SPACE = frozenset(_SPACES + "".join(map(chr, range(0x2000, 0x200B))))
"""Unicode's White_Space without space, CR and LF (Python's isspace takes four control characters more)."""


def _pieces(text: str) -> Iterator[str]:
    kinds = "".join(map(_kind, text))
    at = 0
    while at < len(text):
        match = _CONTRACTION.match(text, at) or _SHAPE.match(kinds, at)
        stop = match.end() if match else at + 1
        yield text[at:stop]
        at = stop


def _kind(char: str) -> str:
    """B line break, _ space, S other white space, L letter, N number, O anything else."""
    if char in "\r\n":
        return "B"
    if char == " ":
        return "_"
    if char in _WHITE_SPACE:
        return "S"
    kind = category(char)[0]
    return kind if kind in "LN" else "O"


# --- reading ---


@telling_what_to_run()
def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer in a checkpoint folder. Raises CheckpointError naming the file and what is wrong with it."""
    ranks = _read_ranks(folder / RANKS_FILE)
    added = _read_added(folder / CONFIG_FILE)
    taken = set(ranks.values())
    for token in added:
        if token.id in taken:
            raise CheckpointError(f"{folder / CONFIG_FILE}: {token.text} has the id {token.id}, which is taken already")
        taken.add(token.id)
    return Tokenizer(ranks, added)


def _read_ranks(path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    line = b""
    try:
        for line in need_file(path).read_bytes().splitlines():
            if line.strip():
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
    except (OSError, ValueError, binascii.Error) as error:
        raise CheckpointError(f"{path} is damaged or not a rank file, at {line[:40]!r} ({error})") from error
    lacking = [byte for byte in range(256) if bytes((byte,)) not in ranks]
    if lacking or len(set(ranks.values())) != len(ranks):
        raise CheckpointError(f"{path} is damaged: {len(lacking)} of 256 bytes have no rank, or ranks are used twice")
    return ranks


def _read_added(path: Path) -> tuple[AddedToken, ...]:
    entries = read_json_table(path).get("added_tokens_decoder", {})
    try:
        return tuple(
            AddedToken(str(entry["content"]), int(id), bool(entry.get("lstrip")), bool(entry.get("rstrip")))
            for id, entry in entries.items()
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{path}: added_tokens_decoder lacks or misstates {error}") from error


# --- the ids that the language model's prompt is made of ---

SPEECH = "<|audio_{}|>"
BEGIN_OF_AUDIO, END_OF_AUDIO, PADDING = "<|begin_of_audio|>", "<|user|>", "<|endoftext|>"


@dataclass(frozen=True)
class SpecialIds:
    """Ids resolved by string. Codec token k has the id `first_speech + k`."""

    first_speech: int
    last_speech: int
    begin_of_audio: int
    end_of_audio: int
    padding: int

    @property
    def speech_tokens(self) -> int:
        return self.last_speech - self.first_speech + 1


@telling_what_to_run()
def special_ids(tokenizer: Tokenizer, vocabulary: int) -> SpecialIds:
    """Resolve and check the special ids. `vocabulary` is the number of the language model's embedding rows.

    Raises CheckpointError when a string is not one token, an id lies before the end of the text or outside the model,
    or the speech tokens are not one run.
    """
    numbers = [int(m[1]) for text in tokenizer.added if (m := re.fullmatch(r"<\|audio_(\d+)\|>", text))]
    count = len(numbers)
    first, last = SPEECH.format(0), SPEECH.format(max(numbers, default=0))
    ids = SpecialIds(*map(tokenizer.id_of, (first, last, BEGIN_OF_AUDIO, END_OF_AUDIO, PADDING)))
    if ids.speech_tokens != count:
        raise CheckpointError(f"{first} … {last} span {ids.speech_tokens} ids; {count} are named in {CONFIG_FILE}")
    all_ids = (ids.first_speech, ids.last_speech, ids.begin_of_audio, ids.end_of_audio)
    if min(all_ids) < ids.padding:
        raise CheckpointError(f"a special token's id is {min(all_ids)}, below that of {PADDING} ({ids.padding})")
    if max(all_ids) >= vocabulary:
        raise CheckpointError(
            f"the tokenizer's ids go up to {max(all_ids)}, but the language model has {vocabulary} rows: "
            "the tokenizer and the model are not of one checkpoint"
        )
    return ids
