"""Messages as callers write them, dicts in OpenAI's shape, → Message objects. No medium is read here.

    {"role": "user", "content": "text" | [part, …]}
    {"type": "text", "text": "…"}
    {"type": "input_audio", "input_audio": {"data": "<base64>", "format": "wav"}}
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}     the same for video_url, audio_url
    {"type": "audio" | "image" | "video", "<type>": path | bytes | samples, "sample_rate_hz": …}

The last form is for callers in this process; `from_outside` refuses it. A URL is never fetched.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from legato.errors import RequestError
from legato.types import Message, Part, PartKind, Role

Conversing = Iterable[Message | Mapping[str, Any]]

ROLES: tuple[Role, ...] = ("system", "user", "assistant")
OWN_ROLES = {"developer": "system"}
"""OpenAI's newer name for the system role."""

_DATA_URL = re.compile(r"data:(?P<media>[\w.+/-]*)(?:;[\w=.+-]+)*;base64,(?P<data>.*)", re.DOTALL)
_URL_KINDS: dict[str, PartKind] = {"image_url": "image", "video_url": "video", "audio_url": "audio"}
_OWN_KINDS: tuple[PartKind, ...] = ("audio", "image", "video")


def read_messages(messages: Conversing, from_outside: bool = False) -> tuple[Message, ...]:
    """Messages of a conversation. Raises RequestError naming the message and the part that cannot be used."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise RequestError(
            f'messages must be a list of messages like {{"role": "user", "content": "…"}}, '
            f"not {type(messages).__name__}",
            "messages",
        )
    return tuple(
        message if isinstance(message, Message) else _message(message, f"messages[{index}]", from_outside)
        for index, message in enumerate(messages)
    )


def _message(raw: object, where: str, from_outside: bool) -> Message:
    if not isinstance(raw, Mapping):
        raise RequestError(f"{where} must be an object with role and content, not {type(raw).__name__}", where)
    role = OWN_ROLES.get(str(raw.get("role")), raw.get("role"))
    if role not in ROLES:
        raise RequestError(f"{where}.role = {role!r}: choose one of {', '.join(ROLES)}", f"{where}.role")
    content = raw.get("content")
    if isinstance(content, str):
        return Message(role, (Part("text", content),))
    if not isinstance(content, (list, tuple)) or not content:
        raise RequestError(f"{where}.content must be text or a list of parts", f"{where}.content")
    parts = tuple(_part(part, f"{where}.content[{i}]", from_outside) for i, part in enumerate(content))
    return Message(role, parts)


def _part(raw: object, where: str, from_outside: bool) -> Part:
    if isinstance(raw, Part) and not from_outside:
        return raw
    if not isinstance(raw, Mapping):
        raise RequestError(f"{where} must be an object with a type, not {type(raw).__name__}", where)
    kind = raw.get("type")
    if kind in ("text", "input_text"):
        if not isinstance(raw.get("text"), str):
            raise RequestError(f"{where}.text must be a string", f"{where}.text")
        return Part("text", str(raw["text"]))
    if kind == "input_audio":
        inner = raw.get("input_audio")
        data = inner.get("data") if isinstance(inner, Mapping) else None
        return Part("audio", _decoded(data, f"{where}.input_audio.data"))
    if kind in _URL_KINDS:
        return Part(_URL_KINDS[str(kind)], _from_url(raw.get(str(kind)), f"{where}.{kind}"))
    if kind in _OWN_KINDS and not from_outside:
        return _own_part(raw, cast(PartKind, kind), where)
    known = ("text", "input_audio", *_URL_KINDS, *(() if from_outside else _OWN_KINDS))
    raise RequestError(f"{where}.type = {kind!r}: choose one of {', '.join(known)}", f"{where}.type")


def _own_part(raw: Mapping[str, Any], kind: PartKind, where: str) -> Part:
    content, rate = raw.get(kind), raw.get("sample_rate_hz")
    if isinstance(content, np.ndarray):
        if kind != "audio" or isinstance(rate, bool) or not isinstance(rate, (int, np.integer)):
            raise RequestError(f"{where}: samples need sample_rate_hz, and are sound", where)
        return Part(kind, content, int(rate))
    if not isinstance(content, (str, Path, bytes)):
        raise RequestError(f"{where}.{kind} must be a path or bytes, not {type(content).__name__}", f"{where}.{kind}")
    return Part(kind, Path(content) if isinstance(content, str) else content)


def _from_url(raw: object, where: str) -> bytes:
    """The bytes in a data URL. Others are refused: a server that fetches what it is told to can be made to fetch
    anything."""
    url = raw.get("url") if isinstance(raw, Mapping) else raw
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        shown = f"{url[:40]!r}" if isinstance(url, str) else type(url).__name__
        raise RequestError(f"{where}: only data: URLs with base64 are read, not {shown}; send the bytes", where)
    return _decoded(found["data"], where)


def _decoded(data: object, where: str) -> bytes:
    if isinstance(data, bytes):
        return data
    if not isinstance(data, str) or not data:
        raise RequestError(f"{where} must be base64", where)
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"{where} is not base64: {error}", where) from None
