"""Headers of a streamed answer that are known before its first byte."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOT_IN_A_HEADER = re.compile(r"[^A-Za-z0-9_.-]")
_MOST_IGNORED_NAMES = 20


def stream_headers(content_type: str, seed: int, ignored: Iterable[str]) -> dict[str, str]:
    """`ignored` are names of fields that had no effect: clients merge their own into the body, and a refusal would
    silence them."""
    headers = {
        # A true type: browsers hold back the head of an octet-stream to guess what it is.
        "Content-Type": content_type,
        "X-Accel-Buffering": "no",
        "X-Seed": str(seed),
    }
    names = [_NOT_IN_A_HEADER.sub("?", name)[:64] for name in ignored]
    if names:
        headers["X-Ignored-Parameters"] = ", ".join(names[:_MOST_IGNORED_NAMES])
    return headers
