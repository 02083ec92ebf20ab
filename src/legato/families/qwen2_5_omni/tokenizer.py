"""Text ↔ ids of the thinker's vocabulary (tokenizer.json: byte-level pairs).

What a caller writes is only ever text: the names of special ids, typed out, come out as their letters.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

from legato.errors import CheckpointError

from .config import need_file
from .parts import ThinkerIds
from .sounds import extra

START, END = "<|im_start|>", "<|im_end|>"


class TextTokenizer:
    """Encodes text, and knows the ids that begin and end what one side says. `ends` are the ids that end a reply."""

    def __init__(self, path: Path, ids: ThinkerIds) -> None:
        """Raises CheckpointError when the file is missing, damaged, or of another model than the settings."""
        try:
            raw: dict[str, Any] = json.loads(need_file(path).read_text(encoding="utf-8"))
            added = {str(t["content"]): (int(t["id"]), bool(t.get("special"))) for t in raw["added_tokens"]}
            self.start, self.end = added[START][0], added[END][0]
            vocabulary: dict[str, int] = raw["model"]["vocab"]
        except (ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        except KeyError as error:
            raise CheckpointError(f"{path} lacks {error}") from error
        _check(path, {name: id for name, (id, _) in added.items()}, ids)
        plain = json.dumps({**raw, "added_tokens": [], "post_processor": None})
        self._plain = extra("tokenizers").Tokenizer.from_str(plain)
        self.ends = frozenset(ids.ends or (self.end,))
        self._bytes = {id: _bytes_of(piece) for piece, id in vocabulary.items()}
        self._bytes |= {id: b"" if special else name.encode() for name, (id, special) in added.items()}

    def encode(self, text: str) -> list[int]:
        """Ids of a run of text that stands between special ids."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def bytes_of(self, id: int) -> bytes:
        """What an id writes; nothing for special ids and for ids that the vocabulary does not name."""
        return self._bytes.get(id, b"")


class Detokenizer:
    """Ids of one text, as they come → its characters, held back until their bytes are complete."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Seq[int], final: bool) -> str:
        """The text that these further ids complete; with `final` what is left, U+FFFD where it is broken."""
        return self._decoder.decode(b"".join(map(self._tokenizer.bytes_of, ids)), final)


def _check(path: Path, known: dict[str, int], ids: ThinkerIds) -> None:
    names = {
        "<|AUDIO|>": ids.audio,
        "<|IMAGE|>": ids.image,
        "<|VIDEO|>": ids.video,
        "<|audio_bos|>": ids.audio_start,
        "<|audio_eos|>": ids.audio_end,
        "<|vision_bos|>": ids.vision_start,
        "<|vision_eos|>": ids.vision_end,
    }
    for name, id in names.items():
        if known.get(name, id) != id:
            raise CheckpointError(f"{path} gives {name} the id {known[name]}, config.json {id}: not of one checkpoint")


def _bytes_of(piece: str) -> bytes:
    return bytes(_BYTE_OF_LETTER[letter] for letter in piece)


def _byte_letters() -> dict[str, int]:
    """Byte by the letter that stands for it in the vocabulary: itself where it is visible in Latin-1, else one of the
    letters from 256 on, in order (Radford et al. 2019, GPT-2)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + index): byte for index, byte in enumerate(hidden)}


_BYTE_OF_LETTER = _byte_letters()
