"""EngineCore: requests in, audio chunks out, one step at a time. Single-threaded; no clock but `now`, no waiting.

Text is split into utterances; each passes the three stages; chunks leave in the order of the text. A conversation's
reply is one utterance whose text the model writes itself. A request ends exactly once: with a final piece or with one
error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from legato.config import EngineConfig
from legato.door import Door
from legato.errors import Cancelled, EmptyText, RequestError, SpeechError
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.nn.attention import choose_backend
from legato.protocols import SpeechModel, Splitter
from legato.replies import Replies
from legato.schedule import Listener, Pace, Schedule
from legato.speaking import TEXT, Speaking
from legato.synth.flow import FlowStage
from legato.synth.vocoder import VocoderStage
from legato.text.normalize import normalize_prose
from legato.text.utterances import UtteranceSplitter
from legato.types import (
    AudioChunk,
    ChatRequest,
    Ramp,
    Samples,
    SpeechRequest,
    SpeechTokens,
    TextDelta,
    Usage,
    Utterance,
    UtteranceId,
)

SEED_STRIDE = 1_000_003
"""Between the seeds of a request's utterances; the first one has the request's own."""

PACED = ("vocoder", "flow", "lm", "writer")
"""Stages that the pace of speech depends on, nearest the listener first."""


class EngineCore:
    """One loop over the stages: three that speak, and two before them in a model that writes its own replies.

    `on_chunk` and `on_error` are called from `step`, `cancel`, `push_text` and `push_audio`, with the request's number.
    """

    def __init__(
        self,
        model: SpeechModel,
        config: EngineConfig,
        on_chunk: Callable[[int, AudioChunk | TextDelta], None],
        on_error: Callable[[int, SpeechError], None],
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model, self.config = model, config
        self._on_chunk, self._on_error, self._now = on_chunk, on_error, now
        self.door = Door(model, config)
        kv = model.lm.kv_shape
        self.kernel, self.kernel_note = choose_backend(config.attn_kernel, kv.device, kv.dtype, model.batch_invariant)
        self.lm = LMStage(
            model.lm,
            pages=config.pages(kv.bytes_per_position),
            page_size=config.kv_page_size,
            limits=SchedulerLimits(
                config.max_tokens_per_step, config.prefill_tokens_beside_decodes, config.max_sequences
            ),
            backend=self.kernel,
        )
        self.flow = FlowStage(model.flow, model.rates, _ramp(model, config), config.max_windows)
        self.vocoder = VocoderStage(model.vocoder, model.rates, config.max_windows, config.overlap_ratio)
        self.replies = Replies(model.writer, config, model.batch_invariant) if model.writer else None
        self.schedule = Schedule(config.guard_s)
        self.pace = _pace(model, _ramp(model, config))
        self._language = model.languages[0] if len(model.languages) == 1 else None
        self._speaking: dict[int, Speaking] = {}
        self._waiting: dict[int, Speaking] = {}

    # --- requests ---

    def submit(self, number: int, request: SpeechRequest) -> None:
        """Accept a request under a number that was never used before. Raises RequestError."""
        voice = self.door.check(request)
        splitter = self.model.splitter() if self.model.splitter else self._own_splitter()
        self._queue(Speaking(number, request, splitter, voice))
        self.push_text(number, request.text)
        if not request.more_text:
            self.push_text(number, None)

    def submit_chat(self, number: int, request: ChatRequest, prepared: Any) -> None:
        """Accept a conversation, with what the model's `Chat.prepare` made of it."""
        self._queue(Speaking(number, request, prepared=prepared, text_ended=True, listening=request.more_audio))

    def _queue(self, speaking: Speaking) -> None:
        self._waiting[speaking.id] = speaking
        self.schedule.listeners[speaking.id] = Listener(self._now())

    def _own_splitter(self) -> Splitter:
        return UtteranceSplitter(first_chars=self.config.first_utterance_chars, max_chars=self.config.utterance_chars)

    def push_text(self, number: int, piece: str | None) -> None:
        """More text of a request; None ends it. Unknown and ended requests are ignored."""
        speaking = self._find(number)
        if speaking is None or speaking.splitter is None or speaking.text_ended:
            return
        try:
            speaking.text_chars += len(piece or "")
            self.door.check_text(piece or "", speaking.text_chars)
            speaking.texts.extend(speaking.splitter.finish() if piece is None else speaking.splitter.push(piece))
        except SpeechError as error:
            self._fail(number, error)
            return
        speaking.text_ended = piece is None
        self._end_if_done(speaking)

    def push_audio(self, number: int, wave: np.ndarray | None, sample_rate_hz: int) -> None:
        """More of what the user says (float32 [n]); None ends it. Unknown and ended requests are ignored."""
        speaking = self._find(number)
        if speaking is not None:
            speaking.heard.append((wave, sample_rate_hz))
            speaking.listening = wave is not None
            if speaking.started:
                self._hear(speaking)

    def cancel(self, number: int) -> None:
        """Stop a request and give back all it holds. Unknown and ended requests are ignored."""
        if self._find(number) is not None:
            self._fail(number, Cancelled("the request was cancelled"))

    def taken(self, number: int, samples: int) -> None:
        """The reader has taken that many samples: back-pressure eases."""
        speaking = self._find(number)
        if speaking is not None:
            speaking.taken_samples += samples

    def usage(self, number: int) -> Usage | None:
        """What a request has cost so far; None once it has ended."""
        speaking = self._find(number)
        return None if speaking is None else speaking.usage

    def _find(self, number: int) -> Speaking | None:
        return self._speaking.get(number) or self._waiting.get(number)

    @property
    def running(self) -> int:
        return len(self._speaking)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # --- the loop ---

    def step(self) -> bool:
        """Run the most urgent stage that has work. False when there is none."""
        self._admit()
        stages = self._stages()
        now_s = self._now()
        ready = [[u for u in stage.ready() if self._may_run(u)] for stage, _ in stages]
        for index in self.schedule.choose(ready, now_s):
            stage, receive = stages[index]
            batch = stage.plan(self.schedule.order(ready[index], now_s))
            if batch is not None:
                done = stage.commit(batch, stage.run(batch))
                if index < len(PACED):
                    parts = self.flow.blocks(batch) if stage is self.flow else len(batch)
                    self.pace.note(PACED[index], self._now() - now_s, parts)
                for item in done:
                    receive(item)
                return True
        return False

    def _stages(self) -> tuple[tuple[Any, Callable[[Any], None]], ...]:
        """Every stage and what takes its results, nearest the listener first."""
        speaking: tuple[tuple[Any, Callable[[Any], None]], ...] = (
            (self.vocoder, self._deliver),
            (self.flow, self.vocoder.add),
            (self.lm, self._to_flow),
        )
        if self.replies is None:
            return speaking
        return *speaking, (self.replies.lm, self._to_reader), (self.replies.media, self.replies.encoded)

    def _may_run(self, utterance: UtteranceId) -> bool:
        """Whether the reader keeps up: a slow reader holds back its own request only."""
        return not self._is_ahead(self._speaking[utterance.request])

    def _is_ahead(self, speaking: Speaking) -> bool:
        """Whether more sound waits for the reader than may."""
        waiting = speaking.next_sample - speaking.taken_samples
        return waiting > self.config.max_buffered_s * self.model.rates.sample_hz

    def _admit(self) -> None:
        """Let waiting requests in, and utterances of running ones start."""
        while self._waiting and len(self._speaking) < self.config.max_requests and self._bears_one_more():
            number = next(iter(self._waiting))
            self._speaking[number] = self._waiting.pop(number)
        for speaking in list(self._speaking.values()):
            if speaking.prepared is not None:
                self._start_reply(speaking)
                continue
            limit = self.config.utterances_ahead if speaking.next_sample else 1
            while speaking.texts and len(speaking.in_flight) < limit and speaking.id in self._speaking:
                if self.model.frontend.continues and speaking.composing:
                    break
                self._start(speaking)

    def _bears_one_more(self) -> bool:
        """Whether all who listen now would still be served in time if another one came."""
        if not self.config.admit_by_deadline:
            return True
        listeners = sum(s.in_work and not self._is_ahead(s) for s in self._speaking.values())
        return not listeners or self.pace.bears(listeners + 1)

    def _start(self, speaking: Speaking) -> None:
        """Start the next utterance. One in which nothing can be spoken is passed over."""
        text, index = speaking.texts.popleft(), speaking.started
        request, voice = speaking.request, speaking.voice
        assert isinstance(request, SpeechRequest) and voice is not None
        id = UtteranceId(speaking.id, index)
        try:
            spoken = normalize_prose(text, self._language) if request.normalize else text
            seed = (request.seed + SEED_STRIDE * index) % 2**63
            history = tuple((said, tuple(ids)) for said, ids in speaking.history)
            utterance = Utterance(
                id, spoken, voice, seed, request.use_cache, request.sampling, history, request.pronunciation
            )
            prompt = self.model.frontend.prompt(utterance)
            if prompt is not None:
                self.lm.add(prompt)
                self.flow.start(id, seed, voice)
                if prompt.source is not None and self.replies is not None:
                    self.replies.lm.add(prompt.source)
        except RequestError as error:
            self._fail(speaking.id, error)
            return
        if prompt is None:
            self._end_if_done(speaking)
            return
        speaking.started += 1
        speaking.in_flight.add(index)
        speaking.composing += 1
        if self.model.frontend.continues:
            speaking.history.append((spoken, []))
        speaking.usage.utterances.append(text)

    def _start_reply(self, speaking: Speaking) -> None:
        """Start the one utterance of a reply, and its text."""
        assert self.replies is not None
        prepared, speaking.prepared, speaking.started = speaking.prepared, None, 1
        id = UtteranceId(speaking.id, 0)
        try:
            conversation = self.replies.open(id, prepared)
            speaking.in_flight.add(TEXT)
            if conversation.speech is not None:
                self.lm.add(conversation.speech)
                self.flow.start(id, speaking.request.seed, conversation.voice)
                speaking.in_flight.add(id.index)
        except RequestError as error:
            self._fail(speaking.id, error)
            return
        self._hear(speaking)

    def _hear(self, speaking: Speaking) -> None:
        """Hand on what the user has said since."""
        assert self.replies is not None
        try:
            while speaking.heard:
                self.replies.hear(UtteranceId(speaking.id, 0), *speaking.heard.popleft())
        except RequestError as error:
            self._fail(speaking.id, error)

    def _to_reader(self, tokens: SpeechTokens) -> None:
        """Deliver what the writer wrote."""
        assert self.replies is not None
        speaking = self._speaking[tokens.utterance.request]
        text = self.replies.text(tokens)
        if tokens.final:
            self._settle(self.replies.lm, tokens.utterance)
        conversation = self.replies.find(tokens.utterance)
        if text is None or conversation is None:
            return
        reason = None
        if tokens.final:
            speaking.in_flight.discard(TEXT)
            reason = conversation.finish_reason()
        final = tokens.final and speaking.done
        if text or tokens.final:
            self._on_chunk(speaking.id, TextDelta(speaking.id, text, reason, final))
        if final:
            self._forget(speaking.id)

    def _to_flow(self, tokens: SpeechTokens) -> None:
        speaking = self._speaking[tokens.utterance.request]
        if self.model.frontend.continues:
            speaking.history[-1][1].extend(tokens.ids)
        if tokens.final:
            speaking.composing -= 1
            self._settle(self.lm, tokens.utterance)
        self.flow.add(tokens)

    def _settle(self, lm: LMStage, utterance: UtteranceId) -> None:
        """Add what an utterance cost in a language model to its request's bill. A prompt that one model reads and
        another follows is billed once."""
        cost = lm.usage.pop(utterance)
        if lm is self.lm and self.replies is not None:
            cost.prompt_tokens = 0
        self._speaking[utterance.request].bill(cost)

    # --- delivery ---

    def _deliver(self, samples: Samples) -> None:
        """Send what is next in the order of the text; keep what came early."""
        speaking = self._speaking[samples.utterance.request]
        for piece in speaking.in_order(samples):
            self._hold_or_send(speaking, piece)
            if piece.final and speaking.done:
                return

    def _hold_or_send(self, speaking: Speaking, piece: Samples) -> None:
        """Let the first sound leave once it lasts until the next is likely there; what follows leaves at once."""
        if self.config.hold_first_sound and not speaking.next_sample:
            speaking.held.append(piece)
            held_s = sum(len(p.pcm) for p in speaking.held) / self.model.rates.sample_hz
            if not piece.final and held_s < self.pace.gap_s(len(self._speaking), self._writing):
                return
            pieces, speaking.held = speaking.held, []
        else:
            pieces = [piece]
        for one in pieces:
            self._send(speaking, one)

    @property
    def _writing(self) -> bool:
        """Whether steps of the writing model come between those of the speaking one."""
        return self.replies is not None and len(self.replies.lm) > 0

    def _send(self, speaking: Speaking, piece: Samples) -> None:
        final = piece.final and speaking.done
        if not len(piece.pcm) and not final:
            return
        rate = self.model.rates.sample_hz
        chunk = AudioChunk(speaking.id, speaking.next_sample, piece.pcm, rate, piece.utterance.index, final)
        speaking.next_sample += len(piece.pcm)
        self.schedule.listeners[speaking.id].deliver(self._now(), chunk.duration_s)
        self.pace.deliver(chunk.duration_s)
        self._on_chunk(speaking.id, chunk)
        if final:
            self._forget(speaking.id)

    def _end_if_done(self, speaking: Speaking) -> None:
        """Announce the end of a request whose last text brought nothing more to speak."""
        if not speaking.done:
            return
        if not speaking.started:
            self._fail(speaking.id, EmptyText())
            return
        empty = Samples(UtteranceId(speaking.id, speaking.started - 1), 0, _NO_SAMPLES, True)
        self._send(speaking, empty)

    def _fail(self, number: int, error: SpeechError) -> None:
        self._forget(number)
        self._on_error(number, error)

    def _forget(self, number: int) -> None:
        """Give back everything a request holds, in every stage."""
        speaking = self._speaking.pop(number, None) or self._waiting.pop(number, None)
        if speaking is None:
            return
        first = 0 if isinstance(speaking.request, ChatRequest) else speaking.delivering
        for id in (UtteranceId(number, index) for index in range(first, speaking.started + 1)):
            for stage in (self.lm, self.flow, self.vocoder):
                stage.drop(id)
            if self.replies is not None:
                self.replies.drop(id)
        self.schedule.listeners.pop(number, None)


_NO_SAMPLES = np.zeros(0, np.float32)


def _ramp(model: SpeechModel, config: EngineConfig) -> Ramp:
    """The model's ramp, with what the config says instead."""
    return Ramp(config.ramp_blocks or model.ramp.keep_blocks, config.look_ahead_blocks or model.ramp.ahead_blocks)


def _pace(model: SpeechModel, ramp: Ramp) -> Pace:
    """The pace of a model whose second window needs the tokens that the ramp says beyond the first."""
    keep, ahead = (entries[min(1, len(entries) - 1)] for entries in (ramp.keep_blocks, ramp.ahead_blocks))
    facts, more_blocks = model.flow.facts, max(1, keep + ahead - ramp.ahead_blocks[0])
    more_tokens = more_blocks * facts.block_tokens
    return Pace(more_tokens, (keep + ahead) * facts.ode_steps, more_tokens / model.rates.token_hz)
