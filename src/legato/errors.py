"""Every error Legato raises on purpose.

SpeechError
├── RequestError            the caller's to mend (HTTP 4xx); `param` names the field
│   ├── EmptyText
│   ├── TextTooLong
│   ├── UnknownVoice
│   ├── UnknownModel
│   ├── UnsupportedFormat
│   ├── UnsupportedFeature  this model cannot do that
│   └── PromptTooLong
├── ConfigError             a config file or option that contradicts itself or the model
├── CheckpointError         weights missing, damaged or of another model
├── Overloaded              the queue is full: come back in `retry_after_s`
├── Cancelled               the request was cancelled by its owner
├── ServerError             a remote endpoint answered with an error
└── EngineError             the engine itself broke; every request in it ends with this
"""

from __future__ import annotations


class SpeechError(Exception):
    """Base of all errors raised on purpose. The message is meant for the user."""


class RequestError(SpeechError):
    """The request cannot be served as it is."""

    code: str | None = None

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class EmptyText(RequestError):
    """Nothing in the text can be spoken."""

    code = "empty_input"

    def __init__(self, message: str = "the text holds nothing that can be spoken") -> None:
        super().__init__(message, "input")


class TextTooLong(RequestError):
    """More characters than one request may hold."""

    code = "input_too_long"

    def __init__(self, characters: int, limit: int) -> None:
        super().__init__(f"the text has {characters} characters; at most {limit} are accepted in one request", "input")


_NO_VOICE = (
    'this model has no stored voice: `legato voices add NAME recording.wav --text "what it says" --model …` adds one, '
    "or give the request prompt_audio and prompt_text"
)


class UnknownVoice(RequestError):
    """No voice of that name."""

    code = "voice_not_found"

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
        has = f"this model has: {shown}" if known else _NO_VOICE
        super().__init__(f"unknown voice {name!r}; {has}" if name else has, "voice")


class UnknownModel(RequestError):
    """No model of that name, and no checkpoint at that path."""

    code = "model_not_found"

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown model {name!r}; known: {', '.join(known)}", "model")


class UnsupportedFormat(RequestError):
    """An audio format that is not one of ours."""

    code = "unsupported_format"

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown audio format {name!r}; choose one of: {', '.join(known)}", "response_format")


class UnsupportedFeature(RequestError):
    """The model cannot do what the request asks."""

    code = "unsupported_parameter"


class PromptTooLong(RequestError):
    """One utterance needs more positions than the KV cache can ever hold."""

    code = "prompt_too_long"


class ConfigError(SpeechError):
    """A configuration that contradicts itself or the model; the message says what to write."""


class CheckpointError(SpeechError):
    """Weights that are missing, damaged or of another model."""


class Overloaded(SpeechError):
    """The queue is full."""

    def __init__(self, waiting: int, limit: int, retry_after_s: int = 1) -> None:
        super().__init__(f"{waiting} requests are waiting already (limit {limit}); try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class Cancelled(SpeechError):
    """The request was cancelled by its owner."""


class ServerError(SpeechError):
    """A remote endpoint answered with an error, or not at all."""


class EngineError(SpeechError):
    """The engine broke; the cause is chained."""
