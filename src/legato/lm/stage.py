"""LMStage: prompts in, codec tokens out, by plan, run and commit."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch

from legato.errors import PromptTooLong
from legato.nn.attention import PagedKV
from legato.protocols import Prompt, SpeechLM, Step
from legato.types import SpeechTokens, UtteranceId

from .pages import PagePool
from .runner import Runner
from .sampler import sample
from .scheduler import Scheduler, SchedulerLimits
from .sequence import Scheduled, Sequence

CHEAP_ROWS = 4
"""Without row tiles: up to this many rows cost about as much as one, because reading the weights dominates."""


@dataclass
class LMUsage:
    """What one utterance has cost in this stage."""

    prompt_tokens: int
    generated_tokens: int = 0
    steps: int = 0
    pages: int = 0
    page_operations: int = 0


@dataclass
class StepCounters:
    """Steps since the stage was made, and what was in them."""

    steps: int = 0
    decode_tokens: int = 0
    prefill_tokens: int = 0
    mixed_steps: int = 0


class LMStage:
    """The language model of one family, as a stage. `memory_key` is what to raise in a config when memory is short."""

    def __init__(
        self,
        lm: SpeechLM,
        pages: int,
        page_size: int,
        limits: SchedulerLimits,
        backend: str,
        memory_key: str = "engine.kv_memory_mb",
    ) -> None:
        self.memory_key = memory_key
        self.pool = PagePool(pages, page_size)
        self.scheduler = Scheduler(self.pool, replace(limits, row_tile=lm.row_tile or CHEAP_ROWS))
        self.runner = Runner(lm, PagedKV(pages, page_size, lm.kv_shape), backend)
        self.counters = StepCounters()
        self.usage: dict[UtteranceId, LMUsage] = {}

    def add(self, item: Prompt) -> None:
        """Queue a prompt. Raises PromptTooLong when even an empty cache could not hold it."""
        if item.max_positions > self.pool.capacity_tokens:
            raise PromptTooLong(
                f"one utterance needs up to {item.max_positions} positions; the KV cache holds "
                f"{self.pool.capacity_tokens}. Shorten the sentence or give the cache more memory ({self.memory_key})"
            )
        generator = torch.Generator().manual_seed(item.seed)
        self.scheduler.add(Sequence.begin(item, generator))
        self.usage[item.utterance] = LMUsage(len(item.token_ids))

    def ready(self) -> list[UtteranceId]:
        self._poll()
        return self.scheduler.ready()

    def _poll(self) -> None:
        """Feed sequences whose host was late, or whose prompt goes on."""
        for sequence in [*self.scheduler.running.values(), *self.scheduler.waiting.values()]:
            while sequence.wants_input and (step := sequence.prompt.continuation.poll()) is not None:
                self.usage[sequence.utterance].prompt_tokens += len(step.feed) if sequence.open else 0
                sequence.feed(step)

    def plan(self, order: Seq[UtteranceId]) -> list[Scheduled] | None:
        return self.scheduler.plan(order) or None

    def run(self, batch: list[Scheduled]) -> dict[int, torch.Tensor]:
        return self.runner.run(batch)

    @torch.inference_mode()
    def commit(self, batch: list[Scheduled], result: dict[int, torch.Tensor]) -> list[SpeechTokens]:
        self._count(batch)
        out = []
        for index, scheduled in enumerate(batch):
            self.scheduler.advance(scheduled)
            self._relay(scheduled.sequence)
            if index in result:
                out += self._extend(scheduled, result[index])
        return out

    def _relay(self, sequence: Sequence) -> None:
        """Pass on the rows of positions that are in the cache now and were not before."""
        relay = sequence.prompt.relay
        if relay is not None and sequence.computed > sequence.relayed:
            relay.put(sequence.relayed, self.runner.relayed(sequence, sequence.relayed, sequence.computed))
            sequence.relayed = sequence.computed

    def _extend(self, scheduled: Scheduled, logits: torch.Tensor) -> list[SpeechTokens]:
        """Sample from the first row of logits; go on with the next as long as what is fed was guessed right."""
        sequence, start, ids = scheduled.sequence, scheduled.sequence.emitted, []
        for row, draft in zip(logits, (*scheduled.drafts, None), strict=True):
            step = self._sample(sequence, row)
            sequence.feed(step)
            ids += [] if step.emit is None else [step.emit]
            sequence.finished = step.final
            if step.final or step.feed != (draft,):
                break
            self.scheduler.confirm(sequence)
        sequence.emitted += len(ids)
        self.usage[sequence.utterance].generated_tokens += len(ids)
        if sequence.finished:
            self.scheduler.finish(sequence)
            self.usage[sequence.utterance].page_operations = sequence.page_operations
        elif not sequence.prompt.use_cache:
            self.scheduler.recompute(sequence)
        return (
            [SpeechTokens(sequence.utterance, start, tuple(ids), sequence.finished)] if ids or sequence.finished else []
        )

    @staticmethod
    def _sample(sequence: Sequence, logits: torch.Tensor) -> Step:
        """Draw until the family takes what was drawn: again from the same logits, or greedily the next best."""
        continuation, sampling = sequence.prompt.continuation, sequence.prompt.sampling
        while True:
            token = sample(continuation.constrain(logits.clone()), sampling, sequence.sampled, sequence.generator)
            step = continuation.accept(token)
            if not step.refused:
                sequence.sampled.append(token)
                return step
            if sampling.temperature <= 0:
                logits[token] = -torch.inf

    def _count(self, batch: list[Scheduled]) -> None:
        decodes = sum(s.sequence.decoding for s in batch)
        self.counters.steps += 1
        self.counters.decode_tokens += decodes
        self.counters.prefill_tokens += sum(s.length for s in batch if not s.sequence.decoding)
        self.counters.mixed_steps += 0 < decodes < len(batch)
        for scheduled in batch:
            usage = self.usage[scheduled.sequence.utterance]
            usage.steps += 1
            usage.pages = max(usage.pages, len(scheduled.sequence.pages))
            usage.page_operations = scheduled.sequence.page_operations

    def drop(self, utterance: UtteranceId) -> None:
        self.scheduler.drop(utterance)
        self.usage.pop(utterance, None)

    def __len__(self) -> int:
        return len(self.scheduler.running) + len(self.scheduler.waiting)
