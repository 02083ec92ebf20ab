"""The nouns that flow between the parts of Legato. Nothing here computes.

Every streamed noun carries its absolute start in its own unit, so nobody keeps a hidden offset and a gap is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch


@dataclass(frozen=True)
class Rates:
    """Codec tokens, mel frames and samples per second of one model. Ratios are exact or the model is refused."""

    token_hz: int
    frame_hz: int
    sample_hz: int

    def __post_init__(self) -> None:
        if self.frame_hz % self.token_hz or self.sample_hz % self.frame_hz:
            raise ValueError(
                f"rates do not divide: {self.token_hz} tokens, {self.frame_hz} frames, {self.sample_hz} Hz"
            )

    @property
    def frames_per_token(self) -> int:
        return self.frame_hz // self.token_hz

    @property
    def samples_per_frame(self) -> int:
        """The hop."""
        return self.sample_hz // self.frame_hz

    @property
    def samples_per_token(self) -> int:
        return self.sample_hz // self.token_hz


@dataclass(frozen=True)
class Reach:
    """Receptive field of a net in its input units: what lies outside [t - left, t + right] cannot change output t.

    `left = None` means all of the past. Windows are loaded from a multiple of `align`.
    """

    left: int | None
    right: int
    align: int = 1


@dataclass(frozen=True)
class Ramp:
    """The flow windows of an utterance, in blocks: what the first, second, … one keeps, and how far it looks ahead.

    The last entry of either repeats. Short first windows give an early first sound, long later ones less work.
    """

    keep_blocks: tuple[int, ...]
    ahead_blocks: tuple[int, ...]


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. `temperature == 0` is greedy.

    `top_k` keeps the k most likely ids, then `top_p` keeps the smallest set whose probability reaches p.
    `repetition_penalty` is CTRL's (Keskar et al. 2019, arXiv:1909.05858): logits of ids already seen are divided by it
    when positive and multiplied when negative.
    `ras_window > 0` turns on repetition-aware sampling (VALL-E 2, arXiv:2406.05370): when the drawn id fills at least
    `ras_threshold` of the last `ras_window` drawn ids, it is drawn again from the full distribution.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    ras_window: int = 0
    ras_threshold: float = 0.1


@dataclass(frozen=True)
class Voice:
    """A named speaker. `facts` is what the family conditions on (prompt ids, vectors, reference mel)."""

    name: str
    description: str = ""
    languages: tuple[str, ...] = ()
    facts: Any = None


Pronunciation = Literal["text", "phonemes"]
"""What a model that can read both is given: the text as it is, or phonemes where characters could be misread."""


@dataclass(frozen=True)
class SpeechRequest:
    """What a caller asks; the unit of delivery.

    `text` is what is known now; with `more_text` the caller pushes the rest later and says when it ends. `voice` is the
    name of one of the model's voices, or a voice cloned for this request. `pronunciation` None is the model's own way.
    """

    text: str
    voice: str | Voice | None = None
    seed: int = 0
    use_cache: bool = True
    normalize: bool = True
    more_text: bool = False
    sampling: Sampling | None = None
    pronunciation: Pronunciation | None = None


PartKind = Literal["text", "audio", "image", "video"]
Role = Literal["system", "user", "assistant"]
Modality = Literal["text", "audio"]


@dataclass(frozen=True, eq=False)
class Part:
    """A piece of a message: text, or a medium as the bytes of a file, as a path on this machine (which only a caller
    in this process may give), or as sound, float32 [n] or [channels, n] at `sample_rate_hz`."""

    kind: PartKind
    content: str | bytes | Path | np.ndarray
    sample_rate_hz: int | None = None


@dataclass(frozen=True)
class Message:
    """What one side said in a conversation."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ChatRequest:
    """A conversation that waits for a reply, and what the reply shall be.

    `max_tokens` limits the text (None: the model's own limit); `sampling` is how it is drawn (None: the model's own
    way), `speech_sampling` the same for codec tokens. With `audio_in_video` every video's own sound is heard with it.
    With `more_audio` the last message is spoken while the request runs: its sound is pushed, then ended.
    """

    messages: tuple[Message, ...]
    modalities: tuple[Modality, ...] = ("text", "audio")
    voice: str | None = None
    seed: int = 0
    max_tokens: int | None = None
    sampling: Sampling | None = None
    speech_sampling: Sampling | None = None
    audio_in_video: bool = False
    more_audio: bool = False
    use_cache: bool = True


@dataclass(frozen=True)
class UtteranceId:
    """The `index`-th utterance of the request numbered `request`."""

    request: int
    index: int


@dataclass(frozen=True)
class Utterance:
    """A sentence-sized piece of the text; the unit of synthesis.

    `history` holds text and codec ids of the request's earlier utterances, for frontends that continue from them.
    """

    id: UtteranceId
    text: str
    voice: Voice
    seed: int
    use_cache: bool = True
    sampling: Sampling | None = None
    history: tuple[tuple[str, tuple[int, ...]], ...] = ()
    pronunciation: Pronunciation | None = None


@dataclass(frozen=True)
class SpeechTokens:
    """Ids [start_token, start_token + len(ids)) that a language model made for an utterance: codec ids, or text ids of
    one that writes. May be empty when `final`."""

    utterance: UtteranceId
    start_token: int
    ids: tuple[int, ...]
    final: bool


@dataclass(frozen=True)
class MelBlock:
    """Contiguous mel frames handed from flow to vocoder: `mel` is [frames, bins], on the model's device."""

    utterance: UtteranceId
    start_frame: int
    mel: torch.Tensor
    final: bool


@dataclass(frozen=True)
class Samples:
    """Contiguous samples of one utterance, `pcm` float32 [n] on the host."""

    utterance: UtteranceId
    start_sample: int
    pcm: np.ndarray
    final: bool


@dataclass(frozen=True)
class AudioChunk:
    """Contiguous samples of one request, ready for a transport. `pcm` is float32 [n] in [-1, 1].

    `utterance` is the index of the utterance that the chunk belongs to. A `final` chunk may be empty.
    """

    request: int
    start_sample: int
    pcm: np.ndarray
    sample_rate_hz: int
    utterance: int
    final: bool

    @property
    def duration_s(self) -> float:
        return len(self.pcm) / self.sample_rate_hz


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class TextDelta:
    """More text of a reply, perhaps none. The last one says why the text ends; one that is `final` ends the request."""

    request: int
    text: str
    finish_reason: FinishReason | None = None
    final: bool = False


@dataclass
class Usage:
    """What one request has cost so far."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    lm_steps: int = 0
    pages_peak: int = 0
    page_operations: int = 0
    utterances: list[str] = field(default_factory=list)
