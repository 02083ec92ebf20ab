"""What this server has said lately. OpenAI's clients send an earlier spoken reply back as its id alone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from legato.errors import RequestError

KEPT_S = 3600
MOST_KEPT = 1000


class Transcripts:
    """Texts of spoken replies by id, each for an hour; the oldest go first."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._texts: OrderedDict[str, tuple[int, str]] = OrderedDict()

    def keep(self, audio_id: str, text: str) -> int:
        """Remember a reply. When it will be forgotten, in seconds since 1970."""
        expires_at = int(self._now()) + KEPT_S
        self._texts[audio_id] = (expires_at, text)
        if len(self._texts) > MOST_KEPT:
            self._texts.popitem(last=False)
        return expires_at

    def filled_in(self, messages: list[Any]) -> list[Any]:
        """The messages, those that are only the id of a reply with its text. Raises RequestError for an unknown id."""
        return [self._filled_in(message, f"messages[{index}]") for index, message in enumerate(messages)]

    def _filled_in(self, message: Any, where: str) -> Any:
        if not isinstance(message, Mapping) or message.get("content") is not None:
            return message
        audio = message.get("audio")
        if not isinstance(audio, Mapping):
            return message
        expires_at, text = self._texts.get(str(audio.get("id")), (0, ""))
        if expires_at <= self._now():
            raise RequestError(
                f"{where}.audio.id: there is no such reply (they are kept for an hour); send its text as content",
                f"{where}.audio.id",
            )
        return {"role": message.get("role"), "content": text}
