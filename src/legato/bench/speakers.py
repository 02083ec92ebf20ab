"""What a benchmark speaks through: an engine in this process, or an endpoint. Both are read the same way."""

from __future__ import annotations

from typing import Protocol

from legato.engine import SpeechEngine
from legato.playback import Heard, hear
from legato.remote import RemoteSpeech
from legato.types import SpeechRequest


class Speaker(Protocol):
    """Asks for speech. `counts_work` says whether reports hold tokens and pages."""

    name: str
    counts_work: bool

    def speak(self, text: str, seed: int, use_cache: bool = True) -> Heard:
        """Start speaking. Raises SpeechError."""

    def pages_used(self) -> int:
        """KV pages in use now."""


class EngineSpeaker:
    """The engine in this process."""

    counts_work = True

    def __init__(self, engine: SpeechEngine, voice: str | None = None) -> None:
        self.name = engine.model.name
        self._engine, self._voice = engine, voice

    def speak(self, text: str, seed: int, use_cache: bool = True) -> Heard:
        return hear(self._engine.submit(SpeechRequest(text, self._voice, seed=seed, use_cache=use_cache)))

    def pages_used(self) -> int:
        return self._engine.status()["kv_pages_used"]


class RemoteSpeaker:
    """An OpenAI-compatible endpoint. Its tokens and pages are not to be seen from here."""

    counts_work = False

    def __init__(self, client: RemoteSpeech, voice: str | None = None) -> None:
        self.name = client.url
        self._client, self._voice = client, voice

    def speak(self, text: str, seed: int, use_cache: bool = True) -> Heard:
        return self._client.stream(text, self._voice, seed=seed)

    def pages_used(self) -> int:
        return 0
