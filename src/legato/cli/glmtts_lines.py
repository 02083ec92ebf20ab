"""The release's JSONL lists: what is to be spoken, line by line, each line good or named as bad."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.errors import RequestError

FIELDS = ("prompt_text", "prompt_speech", "syn_text")
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True)
class Line:
    """One utterance to make: `syn_text` in the voice of the file `prompt_speech`, which says `prompt_text`."""

    number: int
    uttid: str
    prompt_text: str
    prompt_speech: Path
    syn_text: str


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be spoken, and why."""

    number: int
    problem: str


def find_list(data: str, folder: Path) -> Path:
    """The list that `--data` names: `folder/NAME.jsonl`, or a path that ends in .jsonl. Raises RequestError."""
    path = Path(data) if data.endswith(".jsonl") else folder / f"{data}.jsonl"
    if not data.endswith(".jsonl") and not _ID.fullmatch(data):
        raise RequestError(f"--data {data!r}: give a name, or a path that ends in .jsonl", "data")
    if not path.is_file():
        raise RequestError(f"there is no list at {path}", "data")
    return path


def read_lines(path: Path) -> Iterator[Line | BadLine]:
    """The lines of a list, in order. Blank ones are passed over; a byte order mark and CRLF do not matter.

    Raises OSError when the file cannot be read.
    """
    seen: dict[str, int] = {}
    for number, raw in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            line = _parse(raw, number, path.parent)
        except ValueError as error:
            yield BadLine(number, str(error))
            continue
        if line.uttid in seen:
            yield BadLine(number, f"the uttid {line.uttid!r} stands in line {seen[line.uttid]} already")
            continue
        seen[line.uttid] = number
        yield line


def _parse(raw: bytes, number: int, folder: Path) -> Line:
    """Raises ValueError saying what is wrong with the line."""
    try:
        entry = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(entry, dict):
        raise ValueError("not a JSON object")
    uttid = _uttid(entry)
    prompt_text, prompt_speech, syn_text = (_text(entry, field) for field in FIELDS)
    return Line(number, uttid, prompt_text, _inside(prompt_speech, folder), syn_text)


def _uttid(entry: dict[str, Any]) -> str:
    value = entry.get("uttid")
    uttid = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(uttid, str) or not _ID.fullmatch(uttid):
        raise ValueError(f"uttid {value!r} cannot name a file: use letters, digits, _, - and .")
    return uttid


def _text(entry: dict[str, Any], field: str) -> str:
    value = entry.get(field)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"{field} is missing or empty")
    if not isinstance(value, str):
        raise ValueError(f"{field} is {value!r}, not a text")
    return value


def _inside(name: str, folder: Path) -> Path:
    """The prompt audio: by its path from the folder of the list or from the one above, as the release's lists have it.

    It must lie in the folder of the list. Raises ValueError.
    """
    root = folder.resolve()
    candidates = [(base / name).resolve() for base in (root, root.parent)]
    inside = [path for path in candidates if path.is_relative_to(root)]
    if Path(name).is_absolute() or not inside:
        raise ValueError(f"prompt_speech {name!r} leaves the data folder {folder}")
    return next((path for path in inside if path.is_file()), inside[-1])
