"""The JSONL files of `legato glmtts`: lists of what to speak, each line good or named as bad; records of what was."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.config import Config
from legato.errors import RequestError
from legato.families import glm_tts

from .terminal import note

RECORD = "text_compare.jsonl"
MODEL_PARTS = ("llm", "flow", "hift", "vocos2d", "speech_tokenizer", glm_tts.TOKENIZER_FOLDER)
FILES_BESIDE = (glm_tts.SPEAKER_FILE, glm_tts.SAFE_FILE, glm_tts.REPLACEMENTS_FILE)
SOUND_SETTINGS = {"lm_dtype", "ode_steps", "exact_joins", "batch_invariant", "ramp_blocks", "look_ahead_blocks"}
"""What a config file may say under [engine] that changes samples."""
WHOLE_FILE_BYTES = 65536
"""Files of a checkpoint up to this size (its configs) are told apart by content, larger ones by size and age."""

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
        except RecursionError:
            yield BadLine(number, "not a line of a list (brackets within brackets, too deep to read)")
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
    half = next((char for char in value if "\ud800" <= char <= "\udfff"), None)
    if half is not None:
        raise ValueError(
            f"{field} has half a character, \\u{ord(half):04x}: write the character itself, or both halves"
        )
    return value


def _inside(name: str, folder: Path) -> Path:
    """The prompt audio: by its path from the folder of the list or from the one above, as the release's lists have it.

    It must lie in the folder of the list. Raises ValueError.
    """
    try:
        return _found_inside(name, folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        reason = error.strerror if isinstance(error, OSError) else "its links lead in a circle"
        raise ValueError(f"prompt_speech {name!r} cannot be a file ({reason}): give the path of a recording") from None


def _found_inside(name: str, folder: Path) -> Path:
    root = folder.resolve()
    candidates = [(base / name).resolve() for base in (root, root.parent)]
    inside = [path for path in candidates if path.is_relative_to(root)]
    if Path(name).is_absolute() or not inside:
        raise ValueError(f"prompt_speech {name!r} leaves the data folder {folder}")
    return next((path for path in inside if path.is_file()), inside[-1])


# --- records ---


def read_records(folder: Path) -> dict[str, dict[str, Any]]:
    """What the finished wavs of a folder were made from, by uttid.

    Damaged records count as none. They are taken out of the file, whose last line is ended: what is added to it later
    stands on a line of its own. Raises OSError when the file cannot be read or mended.
    """
    path = folder / RECORD
    content = path.read_bytes() if path.is_file() else b""
    found = [(raw, _read_record(raw)) for raw in content.split(b"\n") if raw.strip()]
    finished: dict[str, dict[str, Any]] = {}
    for _, entry in found:
        if entry is not None and (folder / f"{entry['uttid']}.wav").is_file():
            finished[entry["uttid"]] = entry
    mended = b"".join(raw + b"\n" for raw, entry in found if entry is not None)
    if mended != content:
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(mended)
        unfinished.replace(path)
    if damaged := sum(entry is None for _, entry in found):
        note(f"warning: {path}: damaged records taken out: {damaged}; their lines are spoken again")
    return finished


def _read_record(raw: bytes) -> dict[str, Any] | None:
    """A record without its normalised text, which follows from the rest; None when it is damaged."""
    try:
        entry = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("uttid"), str) or not _ID.fullmatch(entry["uttid"]):
        return None
    entry.pop("syn_text_tn", None)
    return entry


def add_record(folder: Path, record: dict[str, Any]) -> None:
    """Say that a wav is finished. Raises OSError."""
    with (folder / RECORD).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def file_hash(path: Path) -> str | None:
    """SHA-256 of a file's bytes; None when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None


def sound_choices(checkpoint: Path, choices: glm_tts.Choices, settings: Config, device: str) -> dict[str, Any]:
    """What the samples of all lines depend on: the model, how it is loaded, how its sound is cut. Raises OSError."""
    tree = glm_tts.find_tree(checkpoint)
    parts = [tree / name for name in MODEL_PARTS] + [glm_tts.beside(tree, name) for name in FILES_BESIDE]
    streaming = choices.mode == "streaming"
    return {
        "use_cache": choices.remembers,
        "sample_rate": choices.sample_hz,
        "streaming": streaming,
        "chunk_size": (choices.chunk_tokens or glm_tts.KEEP_TOKENS[-1]) if streaming else None,
        "model": str(tree.resolve()),
        "model_sha256": tree_hash(parts),
        "device": device,
        "engine": settings.engine.model_dump(mode="json", include=SOUND_SETTINGS),
    }


def tree_hash(parts: Iterable[Path]) -> str:
    """SHA-256 that changes with the files in some folders, without reading the large ones. Raises OSError."""
    total = hashlib.sha256()
    for part in parts:
        for path in sorted(part.rglob("*")) if part.is_dir() else [part]:
            if path.is_file():
                facts = path.stat()
                small = facts.st_size <= WHOLE_FILE_BYTES
                state = file_hash(path) if small else f"{facts.st_size} {facts.st_mtime_ns}"
                total.update(f"{part.name}/{path.relative_to(part)} {state}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()
