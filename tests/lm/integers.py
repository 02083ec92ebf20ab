"""A language model of integers and a stage around the scheduler: whole numbers in, whole numbers out, no torch.

The value of a position mixes its id with the values of all positions before it, as they lie in the cache. So a wrong
page, a wrong start or a page given away too early changes what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from legato.lm.pages import PagePool
from legato.lm.scheduler import Scheduler, SchedulerLimits
from legato.lm.sequence import Scheduled, Sequence
from legato.protocols import Prompt, Step
from legato.types import Sampling, UtteranceId

PRIME = 1_000_003
TOKENS = 210


def value(id: int, position: int, before: Seq[int]) -> int:
    return (31 * sum(before) + 7 * id + position + 1) % PRIME


class Host:
    """A continuation with all that a family may do, chosen by the token that was sampled.

    Tokens that 3 divides ask for the next id of the `script`, if there is one; it is what `draft` guesses. Of the
    others 5 makes the host late by `late` polls, 7 makes it feed two ids if it feeds `pairs`; all of them are emitted.
    """

    def __init__(self, script: tuple[int, ...], max_tokens: int, late: int, pairs: bool) -> None:
        self.script, self.max_tokens, self.late, self.pairs = script, max_tokens, late, pairs
        self.given = self.emitted = self.polls = 0
        self.owed: tuple[int, ...] = ()

    def constrain(self, logits: object) -> object:
        return logits

    def accept(self, token: int) -> Step:
        assert not self.owed, "sampled again before the host had answered"
        if token % 3 == 0 and self.given < len(self.script):
            self.given += 1
            return Step(feed=(self.script[self.given - 1],))
        self.emitted += 1
        final = self.emitted >= self.max_tokens
        if self.late and token % 5 == 0 and not final:
            self.owed, self.polls = (token,), 0
            return Step(emit=token)
        feed = (token, token + 1) if self.pairs and token % 7 == 0 else (token,)
        return Step(emit=token, feed=feed, final=final)

    def draft(self, limit: int) -> tuple[int, ...]:
        return self.script[self.given : self.given + limit]

    def poll(self) -> Step | None:
        self.polls += 1
        if not self.owed or self.polls < self.late:
            return None
        feed, self.owed = self.owed, ()
        return Step(feed=feed)

    @property
    def most_positions(self) -> int:
        """Ids that can ever be fed."""
        return len(self.script) + (1 + self.pairs) * self.max_tokens


@dataclass(frozen=True)
class Speech:
    """What one sequence shall be."""

    ids: tuple[int, ...]
    script: tuple[int, ...] = ()
    max_tokens: int = 4
    late: int = 0
    pairs: bool = False
    shared: int = 0
    use_cache: bool = True

    def host(self) -> Host:
        return Host(self.script, self.max_tokens, self.late, self.pairs)

    def prompt(self, number: int) -> Prompt:
        host = self.host()
        return Prompt(
            utterance=UtteranceId(number, 0),
            token_ids=self.ids,
            continuation=host,  # type: ignore[arg-type]
            sampling=Sampling(),
            seed=0,
            max_positions=len(self.ids) + host.most_positions,
            shared_tokens=self.shared,
            share_key="voice",
            use_cache=self.use_cache,
        )

    def alone(self) -> list[int]:
        """What must come out, computed without pages and steps."""
        host, ids = self.host(), list(self.ids)
        values: list[int] = []
        emitted: list[int] = []
        while True:
            while len(values) < len(ids):
                values.append(value(ids[len(values)], len(values), values))
            step = host.accept(values[-1] % TOKENS)
            emitted += [] if step.emit is None else [step.emit]
            if step.final:
                return emitted
            while not step.feed:
                step = host.poll() or step
            ids += step.feed


@dataclass
class IntegerStage:
    """What LMStage does, with the integer model: the cache is a list of values by slot."""

    pages: int
    page_size: int
    limits: SchedulerLimits
    emitted: dict[int, list[int]] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pool = PagePool(self.pages, self.page_size)
        self.scheduler = Scheduler(self.pool, self.limits)
        self.cache = [-1] * (self.pages * self.page_size)

    @property
    def sequences(self) -> list[Sequence]:
        return [*self.scheduler.running.values(), *self.scheduler.waiting.values()]

    def add(self, number: int, speech: Speech) -> None:
        prompt = speech.prompt(number)
        assert prompt.max_positions <= self.pool.capacity_tokens
        self.emitted[number] = []
        self.scheduler.add(Sequence.begin(prompt, None))

    def ready(self) -> list[UtteranceId]:
        for sequence in self.sequences:
            if not sequence.pending and (step := sequence.prompt.continuation.poll()) is not None:
                sequence.feed(step)
        return self.scheduler.ready()

    def run(self, plan: Seq[Scheduled]) -> list[list[int]]:
        """Tokens by index into the plan, for the spans that sample: one, and one more per draft."""
        return [self._compute(scheduled) for scheduled in plan]

    def _compute(self, scheduled: Scheduled) -> list[int]:
        sequence, size = scheduled.sequence, self.page_size
        ids = [*sequence.ids[scheduled.start : scheduled.start + scheduled.length], *scheduled.drafts]
        slots = [sequence.pages[p // size] * size + p % size for p in range(scheduled.start + len(ids))]
        for position, id in enumerate(ids, scheduled.start):
            before = [self.cache[slot] for slot in slots[:position]]
            self.cache[slots[position]] = value(id, position, before)
        last = scheduled.start + scheduled.length - 1
        return [self.cache[slot] % TOKENS for slot in slots[last:]] if scheduled.samples else []

    def commit(self, plan: Seq[Scheduled], result: Seq[list[int]]) -> None:
        for scheduled, tokens in zip(plan, result, strict=True):
            self.scheduler.advance(scheduled)
            if tokens:
                self._extend(scheduled, tokens)

    def _extend(self, scheduled: Scheduled, tokens: list[int]) -> None:
        sequence = scheduled.sequence
        number = sequence.utterance.request
        for token, draft in zip(tokens, (*scheduled.drafts, None), strict=True):
            step = sequence.prompt.continuation.accept(token)
            sequence.feed(step)
            self.emitted[number] += [] if step.emit is None else [step.emit]
            if step.final:
                self.finished.add(number)
                self.scheduler.drop(sequence.utterance)
                return
            if step.feed != (draft,):
                break
            self.scheduler.confirm(sequence)
        if not sequence.prompt.use_cache:
            self.scheduler.recompute(sequence)
