"""Door: what is wrong with a request is said before it enters the engine. Changes nothing; any thread may ask.

Callers are not always typed, and what slips through here would reach the loop that serves everyone.
"""

from __future__ import annotations

from typing import Any

from legato.config import EngineConfig
from legato.conversation import Writer
from legato.errors import EmptyText, RequestError, TextTooLong, UnknownVoice, UnsupportedFeature
from legato.protocols import SpeechModel
from legato.text.normalize import normalize, speakable
from legato.types import ChatRequest, Message, Sampling, SpeechRequest, Voice

Check = tuple[str, str, object, tuple[type, ...]]
"""Name of a value, the request's parameter it belongs to, the value, and what it may be."""


INTEGER, NUMBER = (int,), (float, int)
SAMPLING_RANGES: dict[str, tuple[tuple[type, ...], float, float]] = {
    "temperature": (NUMBER, 1e-3, 100.0),
    "top_k": (INTEGER, 1, 2**31),
    "top_p": (NUMBER, 0.0, 1.0),
    "repetition_penalty": (NUMBER, 1e-3, 1e3),
    "ras_window": (INTEGER, 1, 2**31),
    "ras_threshold": (NUMBER, 0.0, 1e3),
}
"""Of each number of Sampling: its type, and what it may be besides 0."""


class Door:
    """Checks of one engine."""

    def __init__(self, model: SpeechModel, config: EngineConfig) -> None:
        self.model, self.config = model, config

    def check(self, request: SpeechRequest) -> Voice:
        """The voice a text will be read with. Raises RequestError for a text that cannot be read."""
        _check_types(
            ("text", "input", request.text, (str,)),
            ("voice", "voice", request.voice, (str, Voice, type(None))),
            ("seed", "seed", request.seed, (int,)),
            ("sampling", "sampling", request.sampling, (Sampling, type(None))),
            ("pronunciation", "pronunciation", request.pronunciation, (str, type(None))),
        )
        _check_sampling(request.sampling)
        self._check_pronunciation(request.pronunciation)
        self.check_text(request.text, len(request.text))
        if not request.more_text and not _says_something(request.text):
            raise EmptyText
        self.model.frontend.check(request.text)
        return self._usable(request.voice) if isinstance(request.voice, Voice) else self._voice(request.voice)

    def _check_pronunciation(self, wanted: str | None) -> None:
        known = self.model.pronunciations
        if wanted is not None and wanted not in known:
            raise UnsupportedFeature(
                f"pronunciation {wanted!r}: {self.model.name} has only {', '.join(map(repr, known))}", "pronunciation"
            )

    def _usable(self, voice: Voice) -> Voice:
        """A voice that came with the request. Raises RequestError for one that this model cannot use."""
        if not any(voice is own for own in self.model.voices.values()):
            if self.model.cloner is None:
                raise UnsupportedFeature(
                    f"{self.model.name} speaks with its own voices only, not with {voice.name!r}: name one of "
                    f"{', '.join(self.model.voices)}",
                    "voice",
                )
            if self.model.check_voice is not None:
                self.model.check_voice(voice)
        return voice

    def check_text(self, piece: str, characters: int) -> None:
        """A piece of a text that has so many characters with it. Raises RequestError."""
        _check_characters(piece, "input")
        if characters > self.config.max_text_chars:
            raise TextTooLong(characters, self.config.max_text_chars)

    def check_chat(self, request: ChatRequest) -> Writer:
        """The writer that will answer. Raises RequestError for what is wrong with a conversation but for its media."""
        _check_types(
            ("messages", "messages", request.messages, (tuple,)),
            ("modalities", "modalities", request.modalities, (tuple,)),
            ("voice", "voice", request.voice, (str, type(None))),
            ("seed", "seed", request.seed, (int,)),
            ("max_tokens", "max_tokens", request.max_tokens, (int, type(None))),
            ("sampling", "sampling", request.sampling, (Sampling, type(None))),
            ("speech_sampling", "sampling", request.speech_sampling, (Sampling, type(None))),
            *(("a message", "messages", message, (Message,)) for message in request.messages),
        )
        for index, message in enumerate(request.messages):
            for part in message.parts:
                if isinstance(part.content, str):
                    _check_characters(part.content, f"messages[{index}].content")
        _check_sampling(request.sampling)
        _check_sampling(request.speech_sampling)
        if self.model.writer is None:
            raise UnsupportedFeature(f"{self.model.name} reads texts aloud; it holds no conversations", "messages")
        if not request.messages:
            raise RequestError("messages is empty: there is nothing to answer", "messages")
        if request.modalities not in (("text",), ("audio",), ("text", "audio"), ("audio", "text")):
            raise RequestError(
                f"modalities = {list(request.modalities)}: choose from ['text'] and ['text', 'audio']", "modalities"
            )
        if request.max_tokens is not None and request.max_tokens < 1:
            raise RequestError(f"max_tokens = {request.max_tokens} must be at least 1", "max_tokens")
        if "audio" in request.modalities:
            if not self.model.voices:
                raise UnsupportedFeature(
                    f"{self.model.name} was loaded without its voice: ask for modalities ['text']", "modalities"
                )
            self._voice(request.voice)
        return self.model.writer

    def _voice(self, wanted: str | None) -> Voice:
        name = wanted or self.model.default_voice
        if name not in self.model.voices:
            raise UnknownVoice(name, tuple(self.model.voices))
        return self.model.voices[name]


def _check_types(*checks: Check) -> None:
    for name, param, value, kinds in checks:
        if not isinstance(value, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise RequestError(f"{name} must be {names}, not {type(value).__name__}", param)


def _check_characters(text: str, param: str) -> None:
    """Bytes that are no UTF-8 and halves of surrogate pairs reach Python as characters that no text has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"the text holds {text[error.start]!r}, which is no character", param) from None


def _check_sampling(sampling: Sampling | None) -> None:
    """Every number in its range; what is outside would break the draw, for everyone in the step."""
    if sampling is None:
        return
    for name, (kinds, least, most) in SAMPLING_RANGES.items():
        value: Any = vars(sampling)[name]
        fits = isinstance(value, kinds) and not isinstance(value, bool)
        if not fits or not (value == 0 or least <= value <= most):
            raise RequestError(f"{name} = {value!r}: give 0, or {kinds[0].__name__} from {least:g} to {most:g}", name)
    if sampling.repetition_penalty == 0:
        raise RequestError(
            "repetition_penalty = 0: 1 does nothing, more makes repetitions less likely", "repetition_penalty"
        )


def _says_something(text: str) -> bool:
    """Whether anything can be spoken: letters and digits, or symbols that have a spoken form ("%")."""
    return speakable(text) or speakable(normalize(text))
