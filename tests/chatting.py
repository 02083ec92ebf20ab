"""A small model that holds conversations: random nets, letters for tokens, sounds that become rows of their own.

The writer answers with letters; the speaker follows it row by row as Qwen2.5-Omni's talker follows its thinker: it may
speak once the writer's second token is known, takes one row of the reply per code, and waits when the writer is late.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import cast

import numpy as np
import torch
from lm.tiny import CONFIG, VOCAB, RelayingLM, TinyLM
from synth.fakes import RATES, FakeFlow, FakeVocoder
from torch import Tensor

from legato.conversation import MediaBlock, Writer
from legato.errors import RequestError
from legato.protocols import SHARE_ALL, Place, Prompt, SampledTokens, SpeechModel, Step
from legato.types import ChatRequest, FinishReason, Ramp, Sampling, Utterance, UtteranceId, Voice

PLACEHOLDER, START, END = 90, 91, 92
"""Ids that are no letters: a sound's row, the head of the reply, the end of the text."""
LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?0123456789"
BLOCK_SAMPLES, RATE_HZ = 100, 1000
PAD, BEGIN, STOP = 93, 94, 95
"""Codes with a meaning of their own."""
VOICES = {"ann": Voice("ann", facts=1.0), "bob": Voice("bob", facts=-1.0)}


class Ears:
    """A sound becomes two rows, by itself."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, blocks: Seq[MediaBlock]) -> list[Tensor]:
        self.calls.append([block.key for block in blocks])
        return [
            torch.outer(torch.tensor([1.0, -1.0]), torch.linspace(0, b.content.mean(), CONFIG.width)) for b in blocks
        ]


@dataclass
class Handover:
    """The writer's rows on their way to the speaker; `prompt_rows` of them are the prompt's, once that is known."""

    rows: list[Tensor] = field(default_factory=list)
    prompt_rows: int | None = None
    ended: bool = False

    def put(self, start: int, rows: Tensor) -> None:
        assert start == len(self.rows)
        self.rows.extend(rows)


class Writing(SampledTokens):
    """The writer's side: parts of the prompt as they are known, then letters until the end."""

    def __init__(self, parts: list[Step], handover: Handover, max_tokens: int) -> None:
        super().__init__(frozenset({END}), max_tokens)
        self.parts, self.handover, self.length = parts, handover, 0

    def constrain(self, logits: Tensor) -> Tensor:
        logits[len(LETTERS) : END] = -torch.inf
        logits[END + 1 :] = -torch.inf
        return logits

    def poll(self) -> Step | None:
        if not self.parts:
            return None
        step = self.parts.pop(0)
        self.length += len(step.feed)
        if not step.more:
            self.handover.prompt_rows = self.length
        return step

    def accept(self, token: int) -> Step:
        step = super().accept(token)
        self.handover.ended = step.final
        return step


class Speaking:
    """The speaker's side."""

    def __init__(self, handover: Handover, voice: Voice, max_codes: int) -> None:
        self.handover, self.voice, self.max_codes = handover, voice, max_codes
        self.taken = self.codes = 0
        self.closed = self.mute = False
        self.owed: int | None = None

    def constrain(self, logits: Tensor) -> Tensor:
        logits[PAD:STOP] = -torch.inf
        if self.mute:
            logits[:STOP] = logits[STOP + 1 :] = -torch.inf
        return logits

    def accept(self, token: int) -> Step:
        if token == STOP or self.mute:
            return Step(final=True)
        self.codes += 1
        if self.codes >= self.max_codes:
            return Step(emit=token, final=True)
        vector = self._reply_row()
        if vector is None:
            self.owed = token
            return Step(emit=token)
        return Step(emit=token, feed=(token,), vectors=vector[None])

    def draft(self, limit: int) -> tuple[int, ...]:
        return ()

    def poll(self) -> Step | None:
        if self.owed is not None:
            vector = self._reply_row()
            if vector is None:
                return None
            token, self.owed = self.owed, None
            return Step(feed=(token,), vectors=vector[None])
        return None if self.closed else self._prompt_part()

    def _prompt_part(self) -> Step | None:
        """Rows of the prompt that have come since; with the reply's first one the prompt is whole."""
        known, ready = self.handover.prompt_rows, self.handover.rows
        stop = len(ready) if known is None else min(len(ready), known)
        fresh = ready[self.taken : stop]
        self.taken = stop
        if known is not None and stop == known and (len(ready) > known or self.handover.ended):
            self.closed, self.mute = True, len(ready) == known
            first = torch.zeros(CONFIG.width) if self.mute else ready[known]
            self.taken += 1
            speaker = torch.full((CONFIG.width,), float(self.voice.facts))
            return Step(feed=(*[PAD] * len(fresh), PAD, BEGIN), vectors=torch.stack([*fresh, speaker, first]))
        return Step(feed=(PAD,) * len(fresh), vectors=torch.stack(fresh), more=True) if fresh else None

    def _reply_row(self) -> Tensor | None:
        """What is added to the next code: the reply's next row, or nothing once the text is used up."""
        if self.taken < len(self.handover.rows):
            self.taken += 1
            return self.handover.rows[self.taken - 1]
        return torch.zeros(CONFIG.width) if self.handover.ended else None


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(LETTERS.index(letter) for letter in text)


def block(wave: np.ndarray) -> MediaBlock:
    return MediaBlock(blake2b(wave.tobytes(), digest_size=8).hexdigest(), "sound", wave, 2)


class Talk:
    """A Conversation: text, and sounds in blocks of 100 samples whose rows come when they are encoded."""

    def __init__(self, request: ChatRequest, id: UtteranceId) -> None:
        self.pieces: list[str | MediaBlock] = []
        self.rest = np.zeros(0, np.float32)
        for message in request.messages:
            for part in message.parts:
                if isinstance(part.content, str):
                    self.pieces.append(part.content)
                else:
                    self.pieces += self._cut(cast(np.ndarray, part.content))
        self.heard, self.sent, self.done = 0, 0, not request.more_audio
        self.features: dict[int, Tensor] = {}
        self.fresh = [piece for piece in self.pieces if isinstance(piece, MediaBlock)]
        self.handover = Handover()
        self.writing = Writing([], self.handover, request.max_tokens or 12)
        self.voice = VOICES[request.voice or "ann"]
        sampling = request.sampling or Sampling(0.9)
        self.writer = Prompt(
            id, (), self.writing, sampling, request.seed, 400, open=True, places=(), keys=(), shared_tokens=SHARE_ALL,
            relay=self.handover,
        )  # fmt: skip
        speaking = Speaking(self.handover, self.voice, 40)
        self.speech: Prompt | None = Prompt(id, (), speaking, Sampling(0.9), request.seed, 400, open=True)
        if "audio" not in request.modalities:
            self.speech = None
        self._advance()

    def _cut(self, wave: np.ndarray) -> list[str | MediaBlock]:
        return [block(wave[i : i + BLOCK_SAMPLES]) for i in range(0, len(wave), BLOCK_SAMPLES)]

    def blocks(self) -> list[MediaBlock]:
        fresh, self.fresh = self.fresh, []
        return fresh

    def encoded(self, block: MediaBlock, features: Tensor) -> None:
        place = next(i for i, piece in enumerate(self.pieces) if piece is block)
        self.features[place] = features
        self._advance()

    def _advance(self) -> None:
        """Pass on the pieces whose rows are all there."""
        while self.sent < len(self.pieces) and (isinstance(self.pieces[self.sent], str) or self.sent in self.features):
            self._send(self.pieces[self.sent], self.features.get(self.sent))
            self.sent += 1
        if self.done and self.sent == len(self.pieces):
            self.sent += 1
            self._feed((START,), None, None, False)

    def _send(self, piece: str | MediaBlock, features: Tensor | None) -> None:
        if isinstance(piece, str):
            self._feed(ids_of(piece), None, None, True)
        else:
            key = int(piece.key[:15], 16)
            self._feed((PLACEHOLDER,) * 2, features, (key, key + 1), True)

    def _feed(self, ids: tuple[int, ...], vectors: Tensor | None, keys: tuple[int, ...] | None, more: bool) -> None:
        places: list[Place] = [(self.heard + i, self.heard + i, self.heard + 2 * i) for i in range(len(ids))]
        self.heard += 2 * len(ids)
        self.writing.parts.append(Step(feed=ids, vectors=vectors, places=places, keys=keys or ids, more=more))

    def push_audio(self, wave: np.ndarray, sample_rate_hz: int) -> None:
        if sample_rate_hz != RATE_HZ:
            raise RequestError(f"{sample_rate_hz} Hz is not {RATE_HZ}", "messages")
        self.rest = np.concatenate([self.rest, wave])
        whole = len(self.rest) // BLOCK_SAMPLES * BLOCK_SAMPLES
        self._hear(self.rest[:whole])
        self.rest = self.rest[whole:]

    def _hear(self, wave: np.ndarray) -> None:
        blocks = [piece for piece in self._cut(wave) if isinstance(piece, MediaBlock)]
        self.pieces += blocks
        self.fresh += blocks

    def end_audio(self) -> None:
        self._hear(self.rest)
        if not self.pieces:
            raise RequestError("nothing was heard", "messages")
        self.done = True
        self._advance()

    def text(self, ids: Seq[int], final: bool) -> str:
        return "".join(LETTERS[i] for i in ids)

    def finish_reason(self) -> FinishReason:
        return "length" if self.writing.count >= self.writing.max_tokens else "stop"


class SmallTalk:
    """A Chat, and a frontend that reads a text aloud by making the writer say it."""

    continues = False

    def prepare(self, request: ChatRequest) -> ChatRequest:
        for message in request.messages:
            for part in message.parts:
                if isinstance(part.content, np.ndarray) and not len(part.content):
                    raise RequestError("a sound of 0 samples", "messages")
        return request

    def open(self, prepared: ChatRequest, id: UtteranceId) -> Talk:
        return Talk(prepared, id)

    def check(self, text: str) -> None:
        return None

    def prompt(self, utterance: Utterance) -> Prompt | None:
        handover = Handover(prompt_rows=1)
        said = (START, *ids_of(utterance.text))
        places = [(i, i, i) for i in range(len(said))]
        source = Prompt(
            utterance.id, said, Recited(handover), Sampling(0), 0, len(said) + 1, places=places, relay=handover
        )
        speaking = Speaking(handover, utterance.voice, 40)
        return Prompt(utterance.id, (), speaking, Sampling(0.9), utterance.seed, 400, open=True, source=source)


class Recited(SampledTokens):
    """The writer of a given text: when all of it is computed there is nothing to add."""

    def __init__(self, handover: Handover) -> None:
        super().__init__(frozenset(), 0)
        self.handover = handover

    def accept(self, token: int) -> Step:
        self.handover.ended = True
        return Step(final=True)


def model(writes: bool = True) -> SpeechModel:
    """The model; without a writer it only reads aloud what it is given."""
    talk = SmallTalk()
    return SpeechModel(
        name="small-talk",
        family="small_talk",
        rates=RATES,
        voices=VOICES,
        default_voice="ann",
        frontend=talk,
        lm=TinyLM(),
        flow=FakeFlow(),
        vocoder=FakeVocoder(4, 2),
        ramp=Ramp((2,), (1,)),
        languages=("en",),
        writer=Writer(RelayingLM(), Ears(), talk) if writes else None,
    )


assert len(LETTERS) < PLACEHOLDER < VOCAB
