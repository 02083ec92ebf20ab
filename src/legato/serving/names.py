"""The names OpenAI's clients use, and what they mean here."""

from __future__ import annotations

from collections.abc import Iterable

from legato.errors import UnknownModel

MODEL_ALIASES = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15")

CHAT_MODEL_ALIASES = ("gpt-4o-audio-preview", "gpt-4o-mini-audio-preview", "gpt-audio", "gpt-audio-mini")

VOICE_ALIASES = (
    *("alloy", "ash", "ballad", "coral", "echo", "fable", "onyx"),
    *("nova", "sage", "shimmer", "verse", "marin", "cedar"),
)


def check_model(name: str, loaded: str, aliases: tuple[str, ...] = MODEL_ALIASES) -> None:
    """Raise UnknownModel unless `name` is the loaded model or stands for it."""
    known = (loaded, *aliases)
    if name not in known:
        raise UnknownModel(name, known)


def resolve_voice(name: str | None, voices: Iterable[str], default: str) -> str | None:
    """The model's voice that `name` stands for.

    OpenAI's names are dealt round the model's voices, the default first; every other name is left for the engine to
    find or refuse.
    """
    own = sorted(voices, key=lambda voice: voice != default)
    if name is None or not own or name in own or name not in VOICE_ALIASES:
        return name
    return own[VOICE_ALIASES.index(name) % len(own)]
