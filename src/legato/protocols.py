"""What a model family gives to the engine. A family is nets and facts; it never schedules, caches or streams.

Shapes: R rows (positions of any sequences, packed), D model width, B mel bins, F mel frames.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from legato.types import Pronunciation, Ramp, Rates, Reach, Sampling, Utterance, UtteranceId, Voice

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch

    from legato.conversation import Writer
    from legato.nn.attention import AttentionInput, KVShape

LMDtype = Literal["float32", "bfloat16"]

Item = TypeVar("Item", contravariant=True)
Batch = TypeVar("Batch")
Result = TypeVar("Result")
Out = TypeVar("Out")


class Stage(Protocol[Item, Batch, Result, Out]):
    """One of the three stages, driven by the same verbs: decide (plan), compute (run), record (commit)."""

    def add(self, item: Item) -> None:
        """Take in new work."""

    def ready(self) -> Seq[UtteranceId]:
        """Utterances this stage could compute something for right now."""

    def plan(self, order: Seq[UtteranceId]) -> Batch | None:
        """Choose what to run now, most urgent first. Python only; None when there is nothing to do."""

    def run(self, batch: Batch) -> Result:
        """Compute it. Tensors only, no bookkeeping."""

    def commit(self, batch: Batch, result: Result) -> list[Out]:
        """Record the result and hand on what is final."""

    def drop(self, utterance: UtteranceId) -> None:
        """Forget an utterance and give back all it holds. Unknown utterances are ignored."""


# --- language model -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What follows from one sampled token.

    `emit` is the codec id it stands for, if any. `feed` are the input ids that go in next (the sampled token itself,
    a token of the host's choice, or nothing yet). `vectors` [len(feed), D] are added to their embeddings; `places` and
    `keys` are theirs as in Prompt. `final` ends the sequence. `refused`: nothing follows, another token is drawn from
    the same logits. `more`: these belong to an open prompt that still goes on, so nothing is sampled after them.
    """

    emit: int | None = None
    feed: tuple[int, ...] = ()
    vectors: torch.Tensor | None = None
    places: Seq[Place] | None = None
    keys: tuple[int, ...] | None = None
    final: bool = False
    refused: bool = False
    more: bool = False


class Continuation(Protocol):
    """The family's side of one sequence: what may be sampled next, and what goes in after it.

    It is the general form of "the next input is the sampled token": a host may feed something else (the next phoneme
    when the model asks for it, a vector from another model), or have nothing yet, and the sequence waits.
    """

    def constrain(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [V] as the sampler shall see them. May write into its argument."""

    def accept(self, token: int) -> Step:
        """Record a sampled token."""

    def draft(self, limit: int) -> tuple[int, ...]:
        """At most `limit` ids that will be fed next if the model takes the likely course; () if there is none.

        They are computed in rows of the step that would be idle, and kept only as far as they come true.
        """

    def poll(self) -> Step | None:
        """Input (`feed`, `vectors`) that has become available since `accept` fed nothing, or the next part of an open
        prompt; None while there is none."""


class SampledTokens:
    """The usual continuation: every sampled id is a codec token and the next input, until a stop id."""

    def __init__(self, stop_ids: frozenset[int], max_tokens: int, first_codec_id: int = 0) -> None:
        self.stop_ids, self.max_tokens, self.first_codec_id = stop_ids, max_tokens, first_codec_id
        self.count = 0

    def constrain(self, logits: torch.Tensor) -> torch.Tensor:
        return logits

    def accept(self, token: int) -> Step:
        if token in self.stop_ids:
            return Step(final=True)
        self.count += 1
        return Step(emit=token - self.first_codec_id, feed=(token,), final=self.count >= self.max_tokens)

    def draft(self, limit: int) -> tuple[int, ...]:
        return ()

    def poll(self) -> Step | None:
        return None


Place = tuple[int, ...]
"""Where an id stands on each axis of a model's positions."""

SHARE_ALL = 2**31
"""`Prompt.shared_tokens` of a sequence that shares all it holds, what was generated included."""


class Relay(Protocol):
    """What takes the rows that one sequence of a relaying model leaves, for another sequence of another model."""

    def put(self, start: int, rows: torch.Tensor) -> None:
        """Rows [n, relay_width] of positions [start, start + n). Every position comes once, in order."""


@dataclass(frozen=True)
class Prompt:
    """Token ids before generation, made by a frontend from an utterance.

    `vectors` [len(token_ids), D], if given, are added to the embeddings. The first `shared_tokens` ids (a voice's
    prompt) may share KV pages with other prompts of equal `keys` and equal `share_key`. `keys` stand for the ids where
    these do not tell what was put in (a placeholder whose vector is a picture); None: the ids themselves. What stands
    behind a negative key is never shared.

    `places` are the ids' positions on the axes of the model (None: 0, 1, 2 … and one axis). An id fed later without a
    place stands one behind the furthest so far, on every axis. An `open` prompt goes on: the continuation's `poll`
    brings the rest.

    `relay` takes the rows that a RelayLM leaves. `source` is a prompt of the model's Writer that must be computed for
    this one, which waits for its rows.
    """

    utterance: UtteranceId
    token_ids: tuple[int, ...]
    continuation: Continuation
    sampling: Sampling
    seed: int
    max_positions: int
    vectors: torch.Tensor | None = None
    shared_tokens: int = 0
    share_key: str = ""
    use_cache: bool = True
    places: Seq[Place] | None = None
    keys: tuple[int, ...] | None = None
    open: bool = False
    relay: Relay | None = None
    source: Prompt | None = None


class Splitter(Protocol):
    """One request's text, as it comes → its utterances. Together they need not be the text: a family may rewrite it."""

    def push(self, piece: str) -> list[str]:
        """Take the next piece of the text; give the utterances that are complete."""

    def finish(self) -> list[str]:
        """End the text; give the rest."""


class Frontend(Protocol):
    """Text of one utterance → prompt.

    With `continues` an utterance's prompt needs what the ones before it said, so they cannot be made side by side.
    """

    continues: bool

    def check(self, text: str) -> None:
        """Raise a RequestError when the text, as given, is in a language or script this model cannot speak."""

    def prompt(self, utterance: Utterance) -> Prompt | None:
        """The prompt for an utterance; None when nothing in it can be spoken."""


class SpeechLM(Protocol):
    """A decoder over packed rows.

    With `row_tile = r` a row's result does not depend on the rows beside it, and rows come in multiples of r; 0 makes
    no such promise.
    """

    row_tile: int

    @property
    def kv_shape(self) -> KVShape:
        """Size and place of its cache."""

    def embed(self, ids: torch.Tensor, vectors: torch.Tensor | None) -> torch.Tensor:
        """Input embeddings [R, D] of ids [R] (int64), plus vectors [R, D] if given."""

    def forward(self, rows: torch.Tensor, attention: AttentionInput) -> torch.Tensor:
        """Hidden states [R, D] after the last norm."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 logits [n, V] of hidden states [n, D]."""


@runtime_checkable
class RelayLM(SpeechLM, Protocol):
    """A decoder that leaves a row of `kv_shape.relay_width` for every position, for another model to read."""

    def relay(self, ids: torch.Tensor, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Rows [R, relay_width] from ids [R], what `embed` and `forward` gave for them [R, D] each."""


# --- flow -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlowFacts:
    """How a flow may be cut: windows are whole blocks of `block_tokens`, with look-ahead in blocks.

    `left_tokens` before the window are loaded with it (what its token encoder can see, or blocks it computes again).
    """

    block_tokens: int
    look_back_blocks: int
    look_ahead_blocks: int
    left_tokens: int
    ode_steps: int
    mel_bins: int


@dataclass
class FlowWindow:
    """One window of one utterance on its way through the ODE. Made by the flow stage, advanced by the family's flow.

    `tokens` [n] (int64) are the codec ids loaded, of which the first `left_tokens` lie before the window. `noise`
    [F, B] covers the window's frames: the first `keep_frames` are kept, the rest is look-ahead. `history` is what the
    family kept of the utterance's past (None at its start); `state` is the family's own for this window.
    """

    utterance: UtteranceId
    start_frame: int
    keep_frames: int
    tokens: torch.Tensor
    left_tokens: int
    noise: torch.Tensor
    voice: Voice
    history: Any
    final: bool
    step: int = 0
    state: Any = None


class Flow(Protocol):
    """Codec tokens → mel, by integrating an ODE from noise, window by window.

    Windows of different utterances and at different ODE steps may share one call of `advance`.
    """

    facts: FlowFacts

    def open(self, window: FlowWindow) -> None:
        """Compute what stays the same over the ODE steps (conditioning) into `window.state`."""

    def advance(self, windows: Seq[FlowWindow]) -> None:
        """One ODE step of every window; `window.step` grows by one."""

    def close(self, window: FlowWindow) -> tuple[torch.Tensor, Any]:
        """Log-mel [keep_frames, B] of a finished window, and the history for the utterance's next window."""


# --- vocoder --------------------------------------------------------------------------------------------------------


class Vocoder(Protocol):
    """Mel → samples. `exact` says whether `reach` covers everything that can change a sample."""

    reach: Reach
    exact: bool

    def forward(self, mels: Seq[torch.Tensor]) -> list[torch.Tensor]:
        """Waves [F × samples_per_frame] of log-mels [F, B], one by one or together: the result is the same."""


@dataclass(frozen=True)
class VocoderPiece:
    """Mel [F, B] of one utterance, frames [start_frame, start_frame + F), on its way to samples.

    The utterance's next piece will start at `next_start_frame`. `history` is what the family kept of its past (None at
    its start).
    """

    mel: torch.Tensor
    start_frame: int
    next_start_frame: int
    history: Any


@runtime_checkable
class ContinuingVocoder(Vocoder, Protocol):
    """A vocoder that takes something (a phase) from one window of an utterance to the next."""

    def render(self, pieces: Seq[VocoderPiece]) -> list[tuple[torch.Tensor, Any]]:
        """Waves [F × samples_per_frame] of the pieces, and the history for each utterance's next piece."""


class Cloner(Protocol):
    """Reference audio → voice."""

    def clone(self, name: str, wave: np.ndarray, sample_rate_hz: int, text: str | None) -> Voice:
        """A voice like that of `wave` (float32 [channels, n] in [-1, 1]), which says `text`.

        Raises RequestError naming what was measured when the audio cannot serve as a reference.
        """


@dataclass(frozen=True)
class SpeechModel:
    """All that a family hands to the engine, once.

    `ramp` is how its flow is windowed by default. `nets` names the kinds of net that a
    config file may name too ("dit_backbone", "vocoder"). `splitter` makes what cuts a request's text into utterances,
    if not the engine's own. `writer` is what a model that holds conversations has in front of its speech.
    `pronunciations` are those a request may ask for. `check_voice` raises RequestError for a voice, cloned for a
    request, that is of another model; one that cannot clone takes none but its own.
    """

    name: str
    family: str
    rates: Rates
    voices: dict[str, Voice]
    default_voice: str
    frontend: Frontend
    lm: SpeechLM
    flow: Flow
    vocoder: Vocoder
    ramp: Ramp
    languages: tuple[str, ...] = ()
    cloner: Cloner | None = None
    splitter: Callable[[], Splitter] | None = None
    writer: Writer | None = None
    pronunciations: tuple[Pronunciation, ...] = ("text",)
    check_voice: Callable[[Voice], None] | None = None
    nets: dict[str, str] = field(default_factory=dict)
    batch_invariant: bool = True
    device: str = "cpu"


@dataclass(frozen=True)
class LoadOptions:
    """What a caller may choose when a family is loaded. None leaves the family's own value.

    `lm_dtype` is that of the language models and of what encodes for them. Without `speech` a model that writes is
    loaded without its voice.
    """

    device: str = "cpu"
    batch_invariant: bool = True
    ode_steps: int | None = None
    exact_joins: bool = True
    recompute_past: bool = False
    voices_dir: Path | None = None
    lm_dtype: LMDtype | None = None
    speech: bool = True
