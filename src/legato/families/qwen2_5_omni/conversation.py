"""One chat request on the family's side: its prompt in pieces, the reply, and the way from one to the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from legato.conversation import MediaBlock
from legato.errors import RequestError
from legato.protocols import Prompt, Step
from legato.types import FinishReason, Voice

from .handover import Handover
from .media import sound_block
from .mel import SAMPLE_HZ, LogMel, Logs
from .pieces import Piece, Pieces
from .sounds import Stream, checked, checked_rate
from .tokenizer import Detokenizer

PARAM = "messages"


class Writing:
    """Continuation of the writer: the prompt's pieces as their features come, then every id that is drawn.

    It is told of no further pieces once it is `complete`. The last id drawn is never fed back.
    """

    def __init__(self, ends: frozenset[int], max_tokens: int, handover: Handover | None) -> None:
        self.ends, self.max_tokens, self.handover = ends, max_tokens, handover
        self.complete = False
        self.next_place = 0
        self.drawn = 0
        self.reason: FinishReason = "stop"
        self._pieces: deque[Piece] = deque()
        self._features: dict[MediaBlock, Tensor] = {}

    def add(self, pieces: Seq[Piece]) -> None:
        self._pieces.extend(pieces)

    def encoded(self, block: MediaBlock, features: Tensor) -> None:
        self._features[block] = features

    def poll(self) -> Step | None:
        """All pieces whose turn has come, as one part of the prompt."""
        taken: list[Piece] = []
        while self._pieces and (self._pieces[0].block is None or self._pieces[0].block in self._features):
            taken.append(self._pieces.popleft())
        if not taken:
            return None
        more = bool(self._pieces) or not self.complete
        step = Step(
            feed=tuple(id for piece in taken for id in piece.ids),
            vectors=self._vectors(taken),
            places=[place for piece in taken for place in piece.places],
            keys=tuple(key for piece in taken for key in piece.keys),
            more=more,
        )
        if not more:
            self._features.clear()
        self._announce(step)
        return step

    def _vectors(self, pieces: Seq[Piece]) -> Tensor | None:
        """Features at the rows of media, zeros at text; None when all is text."""
        first = next((self._features[piece.block] for piece in pieces if piece.block is not None), None)
        if first is None:
            return None
        return torch.cat(
            [
                first.new_zeros(len(piece.ids), first.shape[1])
                if piece.block is None
                else self._features[piece.block][piece.start : piece.start + len(piece.ids)]
                for piece in pieces
            ]
        )

    def _announce(self, step: Step) -> None:
        if self.handover is None:
            return
        assert step.places is not None and step.keys is not None
        self.handover.announce(step.places, step.keys)
        if not step.more:
            self.handover.close_prompt(self.next_place)

    def constrain(self, logits: Tensor) -> Tensor:
        return logits

    def accept(self, token: int) -> Step:
        self.drawn += 1
        if token in self.ends:
            return self._end(Step(final=True))
        if self.drawn >= self.max_tokens:
            self.reason = "length"
            return self._end(Step(emit=token, final=True))
        return Step(emit=token, feed=(token,))

    def _end(self, step: Step) -> Step:
        if self.handover is not None:
            self.handover.end()
        return step

    def draft(self, limit: int) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True)
class LiveLimits:
    """How much a user may say while the request runs."""

    seconds: int


class Live:
    """What the user says while the request runs: sound in, blocks out. The floor follows the
    loudest so far (mel.py)."""

    def __init__(self, pieces: Pieces, limits: LiveLimits) -> None:
        self.pieces, self.limits = pieces, limits
        audio = pieces.config.audio
        self._mel = LogMel(audio.mel_bins, audio.block_frames)
        self._stream: Stream | None = None
        self.rows = 0

    def push(self, wave: np.ndarray, sample_rate_hz: int) -> list[MediaBlock]:
        """Blocks that are complete now; an empty stretch adds nothing. Raises RequestError for what is no sound, or too
        much of it."""
        name = "the sound that was pushed"
        rate = checked_rate(sample_rate_hz, name)
        if not wave.size:
            return []
        mono = checked(wave, name)
        if self._stream is None:
            self._stream = Stream(rate)
        if rate != self._stream.sample_rate_hz:
            raise RequestError(
                f"sound at {rate} Hz follows sound at {self._stream.sample_rate_hz} Hz in one message", PARAM
            )
        if self._mel.samples + len(mono) * SAMPLE_HZ / rate > self.limits.seconds * SAMPLE_HZ:
            raise RequestError(f"the user has spoken for more than {self.limits.seconds} s", PARAM)
        return self._blocks(self._mel.push(self._stream.push(mono)))

    def finish(self) -> list[MediaBlock]:
        """The rest. Raises RequestError when nothing was heard."""
        rest = [] if self._stream is None else self._mel.push(self._stream.finish())
        blocks = self._blocks([*rest, *self._mel.finish()])
        if not self.rows:
            raise RequestError(f"nothing was heard: {self._mel.samples} samples were pushed", PARAM)
        return blocks

    def _blocks(self, heard: Seq[Logs]) -> list[MediaBlock]:
        blocks = [sound_block(logs.floored(logs.loudest), self.pieces.config.audio) for logs in heard]
        blocks = [block for block in blocks if block.weight]
        self.rows += sum(block.weight for block in blocks)
        return blocks


class OmniConversation:
    """A Conversation. `writer` and `speech` are set once by the chat that opens it."""

    def __init__(
        self, writer: Prompt, speech: Prompt | None, voice: Voice, writing: Writing, detokenizer: Detokenizer
    ) -> None:
        self.writer, self.speech, self.voice = writer, speech, voice
        self._writing, self._detokenizer = writing, detokenizer
        self._live: Live | None = None
        self._unasked: list[MediaBlock] = []

    def begin(self, pieces: Pieces, live: Live | None) -> None:
        """Hand over the prompt; more of it follows if there is `live` sound."""
        self._live = live
        self._unasked = pieces.take_blocks()
        self._writing.add(pieces.take())
        if live is None:
            self._complete(pieces)

    def _complete(self, pieces: Pieces) -> None:
        self._writing.next_place = pieces.places.next_place
        self._writing.complete = True

    def blocks(self) -> list[MediaBlock]:
        out, self._unasked = self._unasked, []
        return out

    def encoded(self, block: MediaBlock, features: Tensor) -> None:
        self._writing.encoded(block, features)

    def push_audio(self, wave: np.ndarray, sample_rate_hz: int) -> None:
        live = self._listening()
        for block in live.push(wave, sample_rate_hz):
            live.pieces.sound_rows(block)
        self._follow(live.pieces)

    def end_audio(self) -> None:
        live = self._listening()
        for block in live.finish():
            live.pieces.sound_rows(block)
        live.pieces.close_live()
        self._follow(live.pieces)
        self._complete(live.pieces)
        self._live = None

    def _listening(self) -> Live:
        if self._live is None:
            raise RequestError(
                "no more sound is expected: the request has no more_audio, or its sound has ended", PARAM
            )
        return self._live

    def _follow(self, pieces: Pieces) -> None:
        self._unasked += pieces.take_blocks()
        self._writing.add(pieces.take())

    def text(self, ids: Seq[int], final: bool) -> str:
        return self._detokenizer.push(ids, final)

    def finish_reason(self) -> FinishReason:
        return self._writing.reason
