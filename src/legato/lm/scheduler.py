"""Scheduler: which ids of which sequences are computed in the next step. Integers only.

There is no phase. A step takes one id of every decoding sequence, then fills the token budget with spans of prompts,
at least one while any prompt waits. When pages run out the least urgent sequence gives its pages back and is computed
again later.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from legato.types import UtteranceId

from .pages import PagePool
from .sequence import Scheduled, Sequence


@dataclass(frozen=True)
class SchedulerLimits:
    """`max_tokens_per_step` is the budget of a step; beside decodes, prompts get `prefill_tokens_beside_decodes`
    of it at most, so that a long prompt never makes listeners wait. At most `max_sequences` hold pages at once. A step
    computes whole tiles of `row_tile` rows, whether they are used or not."""

    max_tokens_per_step: int
    prefill_tokens_beside_decodes: int
    max_sequences: int
    row_tile: int = 1


@dataclass
class _Plan:
    """A step in the making: ranks by urgency, spans so far, and who lost its pages for it."""

    ranks: dict[UtteranceId, int]
    spans: dict[UtteranceId, Scheduled] = field(default_factory=dict)
    preempted: set[UtteranceId] = field(default_factory=set)

    def rank(self, sequence: Sequence) -> int:
        """Position in the order of urgency; behind everyone for sequences that are not asked for now."""
        return self.ranks.get(sequence.utterance, len(self.ranks))


class Scheduler:
    """Owns the sequences of the LM stage and decides; it never computes."""

    def __init__(self, pool: PagePool, limits: SchedulerLimits) -> None:
        self.pool, self.limits = pool, limits
        self.waiting: dict[UtteranceId, Sequence] = {}
        self.running: dict[UtteranceId, Sequence] = {}

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. It must fit into the pool when alone."""
        self.waiting[sequence.utterance] = sequence

    def ready(self) -> list[UtteranceId]:
        """Sequences with something to compute."""
        return [u for group in (self.running, self.waiting) for u, s in group.items() if s.pending]

    def plan(self, order: Seq[UtteranceId]) -> list[Scheduled]:
        """Spans of the next step, among the utterances of `order` (most urgent first)."""
        plan = _Plan({utterance: rank for rank, utterance in enumerate(order)})
        for utterance in order:
            sequence = self.running.get(utterance)
            if sequence is not None and sequence.decoding:
                self._grant(plan, sequence, 1)
        budget = self.limits.max_tokens_per_step - len(plan.spans)
        if plan.spans:
            budget = max(1, min(budget, self.limits.prefill_tokens_beside_decodes))
        for utterance in order:
            sequence = self._prefilling(utterance)
            if budget > 0 and sequence is not None and utterance not in plan.preempted:
                budget -= self._grant(plan, sequence, min(sequence.pending, budget))
        self._add_drafts(plan)
        return list(plan.spans.values())

    def _add_drafts(self, plan: _Plan) -> None:
        """Give rows that would only fill a tile to guesses, most urgent first, without taking any pages away."""
        spare = -sum(span.length for span in plan.spans.values()) % self.limits.row_tile
        decodes = [span for span in plan.spans.values() if span.sequence.decoding and span.sequence.plain]
        for index, span in enumerate(decodes):
            sequence = span.sequence
            drafts = sequence.prompt.continuation.draft(-(-spare // (len(decodes) - index)))
            held = len(sequence.pages)
            if drafts and self.pool.extend(sequence.pages, len(sequence.ids) + len(drafts)):
                sequence.page_operations += len(sequence.pages) - held
                plan.spans[sequence.utterance] = replace(span, drafts=drafts)
                spare -= len(drafts)

    def _prefilling(self, utterance: UtteranceId) -> Sequence | None:
        """A sequence with prompt ids to compute, running or fit to be admitted."""
        sequence = self.running.get(utterance)
        if sequence is not None:
            return sequence if sequence.pending and not sequence.decoding else None
        sequence = self.waiting.get(utterance)
        if sequence is None or not sequence.pending or len(self.running) >= self.limits.max_sequences:
            return None
        return sequence

    def _grant(self, plan: _Plan, sequence: Sequence, length: int) -> int:
        """Plan a span with pages behind it and return its length; 0 when there are none to be had.

        A running sequence takes pages from less urgent ones; a waiting one only takes what is free.
        """
        admitted = sequence.utterance in self.running
        if not admitted:
            self._share(sequence)
            length = min(length, sequence.pending)
        held = len(sequence.pages)
        while not self.pool.extend(sequence.pages, sequence.computed + length):
            victim = self._least_urgent(plan, sequence) if admitted else None
            if victim is None:
                if not admitted:
                    self._give_back(sequence)
                return 0
            self._preempt(plan, victim)
        sequence.page_operations += len(sequence.pages) - held
        if not admitted:
            self.running[sequence.utterance] = self.waiting.pop(sequence.utterance)
        plan.spans[sequence.utterance] = Scheduled(sequence, sequence.computed, length)
        return length

    def _share(self, sequence: Sequence) -> None:
        """Start behind the pages of the prompt that are there already; the last id is always computed."""
        prompt = sequence.prompt
        shared = min(prompt.shared_tokens, len(sequence.ids) - 1)
        if not prompt.use_cache or shared < self.pool.page_size:
            return
        sequence.pages.extend(self.pool.share(prompt.share_key, sequence.shareable(shared)))
        sequence.page_operations += len(sequence.pages)
        sequence.computed = len(sequence.pages) * self.pool.page_size

    def _least_urgent(self, plan: _Plan, asking: Sequence) -> Sequence | None:
        """The running sequence behind `asking` that can wait longest."""
        own = plan.rank(asking)
        behind = [s for s in self.running.values() if s is not asking and plan.rank(s) > own]
        return max(behind, key=plan.rank, default=None)

    def _preempt(self, plan: _Plan, sequence: Sequence) -> None:
        self._give_back(sequence)
        self.waiting[sequence.utterance] = self.running.pop(sequence.utterance)
        self.pool.counters.preempted += 1
        plan.spans.pop(sequence.utterance, None)
        plan.preempted.add(sequence.utterance)

    def _give_back(self, sequence: Sequence) -> None:
        sequence.page_operations += len(sequence.pages)
        self.pool.release(sequence.pages)
        sequence.computed = 0

    def advance(self, scheduled: Scheduled) -> None:
        """Record that a span was computed."""
        sequence = scheduled.sequence
        sequence.computed = scheduled.start + scheduled.length
        if not sequence.open and not sequence.prompt_computed and sequence.computed >= sequence.prompt_length:
            sequence.prompt_computed = True
            self._publish(sequence, sequence.prompt_length)

    def _publish(self, sequence: Sequence, tokens: int) -> None:
        """Let others start behind the first `tokens` ids, as far as they may be shared."""
        prompt = sequence.prompt
        if prompt.use_cache and prompt.shared_tokens:
            self.pool.publish(prompt.share_key, sequence.shareable(tokens), sequence.pages)

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence that has ended, and let others start behind all of it that may be shared."""
        if sequence.prompt.shared_tokens > sequence.prompt_length:
            self._publish(sequence, sequence.computed)
        self.drop(sequence.utterance)

    def confirm(self, sequence: Sequence) -> None:
        """A guess came true: the id that was just fed is computed already."""
        sequence.computed += 1

    def recompute(self, sequence: Sequence) -> None:
        """Forget what was computed but keep the pages: generation without a cache."""
        sequence.computed = 0

    def drop(self, utterance: UtteranceId) -> None:
        """Remove a sequence and give its pages back."""
        sequence = self.running.pop(utterance, None) or self.waiting.pop(utterance, None)
        if sequence is not None:
            self._give_back(sequence)

    def find(self, utterance: UtteranceId) -> Sequence | None:
        return self.running.get(utterance) or self.waiting.get(utterance)
