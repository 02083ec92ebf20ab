"""What comes over the wire, checked. OpenAI's fields of `POST /v1/audio/speech`, and a few of ours."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class VoiceId(BaseModel):
    """A voice named by its id; the long form of the string."""

    id: str


class SpeechBody(BaseModel):
    """The body of `POST /v1/audio/speech`.

    Unknown fields are kept in `model_extra`: clients merge their own into the body, and a refusal would break them.
    `null` stands for a field that was left out.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    model: str = Field(description="The model's name, or one of OpenAI's names for it.")
    input: str = Field(description="The text to speak.")
    voice: str | VoiceId | None = Field(None, description="A voice of this server, or one of OpenAI's names.")
    instructions: str | None = Field(None, max_length=4096, description="Style; ignored by models without control.")
    response_format: str = Field("mp3", description="mp3, opus, aac, flac, wav or pcm.")
    speed: float = Field(1.0, ge=0.25, le=4.0, allow_inf_nan=False, description="Tempo; the pitch stays.")
    stream_format: Literal["audio", "sse"] = Field("audio", description="Bare audio, or server-sent events.")
    seed: int = Field(0, ge=0, lt=2**63, description="The same seed gives the same samples.")
    normalize: bool = Field(True, description="Spell out numbers, symbols and abbreviations.")
    stream: bool = Field(True, description="False: one body with a Content-Length, after everything is spoken.")

    @field_validator("response_format", "speed", "stream_format", "seed", "normalize", "stream", mode="before")
    @classmethod
    def null_is_default(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value is None else value

    @field_validator("input")
    @classmethod
    def is_text(cls, value: str) -> str:
        value.encode()  # JSON can spell half of a surrogate pair, which no tokenizer takes
        return value

    @property
    def voice_name(self) -> str | None:
        """The voice as a plain name; None leaves it to the server."""
        name = self.voice.id if isinstance(self.voice, VoiceId) else self.voice
        return name or None
