"""What comes over the wire, checked: OpenAI's fields of the routes that make speech, and a few of ours."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class VoiceId(BaseModel):
    """A voice named by its id; the long form of the string."""

    id: str


class _Body(BaseModel):
    """A request body.

    Unknown fields are kept in `model_extra`: clients merge their own into the body, and a refusal would break them.
    `null` stands for a field that was left out.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    @field_validator("*", mode="before")
    @classmethod
    def null_is_default(cls, value: Any, info: Any) -> Any:
        field = cls.model_fields[info.field_name]
        return field.default if value is None and not field.is_required() else value


class SpeechBody(_Body):
    """The body of `POST /v1/audio/speech`."""

    model: str = Field(description="The model's name, or one of OpenAI's names for it.")
    input: str = Field(description="The text to speak.")
    voice: str | VoiceId | None = Field(None, description="A voice of this server, or one of OpenAI's names.")
    instructions: str | None = Field(None, max_length=4096, description="Style; ignored by models without control.")
    response_format: str = Field("mp3", description="mp3, opus, aac, flac, wav or pcm.")
    speed: float = Field(1.0, ge=0.25, le=4.0, allow_inf_nan=False, description="Tempo; the pitch stays.")
    stream_format: Literal["audio", "sse"] = Field("audio", description="Bare audio, or server-sent events.")
    seed: int = Field(0, ge=0, lt=2**63, description="The same seed gives the same samples.")
    normalize: bool = Field(True, description="Spell out numbers, symbols and abbreviations.")
    pronunciation: Literal["text", "phonemes"] | None = Field(
        None, description="phonemes: spell out characters that could be misread, where the model can."
    )
    stream: bool = Field(True, description="False: one body with a Content-Length, after everything is spoken.")

    @field_validator("input")
    @classmethod
    def is_text(cls, value: str) -> str:
        value.encode()  # JSON can spell half of a surrogate pair, which no tokenizer takes
        return value

    @property
    def voice_name(self) -> str | None:
        """The voice as a plain name; None leaves it to the server."""
        return name_of(self.voice)


class ReplySound(_Body):
    """How a reply shall sound. OpenAI asks for both fields; here each may be left out."""

    voice: str | VoiceId | None = Field(None, description="A voice of this server, or one of OpenAI's names.")
    format: str | None = Field(
        None, description="wav, mp3, opus, aac, flac, pcm or pcm16; a streamed reply is pcm16 (24 kHz, no header)."
    )


class StreamOptions(_Body):
    """What a streamed reply carries besides the reply."""

    include_usage: bool = Field(False, description="A last chunk without choices carries the usage.")


class ChatBody(_Body):
    """The body of `POST /v1/chat/completions`."""

    model: str = Field(description="The model's name, or one of OpenAI's names for it.")
    messages: list[Any] = Field(description="The conversation; media as base64 or data: URLs.")
    modalities: list[str] = Field(["text"], description='["text"] or ["text", "audio"].')
    audio: ReplySound = Field(ReplySound(), description="How a reply with audio sounds.")
    stream: bool = Field(False, description="Server-sent events while the reply is made.")
    stream_options: StreamOptions = Field(StreamOptions(), description="For a streamed reply.")
    max_tokens: int | None = Field(None, ge=1, description="Most tokens of text.")
    max_completion_tokens: int | None = Field(None, ge=1, description="The same, under its newer name.")
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False, description="0 is greedy.")
    top_p: float | None = Field(None, ge=0, le=1, allow_inf_nan=False, description="Share of the likeliest tokens.")
    seed: int = Field(0, ge=0, lt=2**63, description="The same seed gives the same reply.")
    n: int = Field(1, description="One reply at a time.")
    stop: str | list[str] | None = Field(None, description="Not supported: what follows would be spoken already.")
    audio_in_video: bool = Field(False, description="Hear the sound of every video too.")


def name_of(voice: str | VoiceId | None) -> str | None:
    """A voice as a plain name; None leaves it to the server."""
    name = voice.id if isinstance(voice, VoiceId) else voice
    return name or None
