"""Scheduler: after any operations no page is lost, the budget is kept, nobody starves, all finish as if alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.lm.scheduler import SchedulerLimits
from legato.lm.sequence import Scheduled
from legato.types import UtteranceId

from .integers import IntegerStage, Speech

VOICE = (11, 12, 13, 14, 15, 16, 17, 18, 19)
"""The prompt that all sequences with a shared prefix begin with."""

MOST_ALIVE = 10
MOST_STEPS = 500


@dataclass
class World:
    """A stage in random weather. `tick` does one operation, drawn from `chance`; every step is checked."""

    stage: IntegerStage
    chance: random.Random
    speeches: dict[int, Speech] = field(default_factory=dict)
    alive: list[int] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)

    def tick(self) -> None:
        dice = self.chance.random()
        if dice < 0.12 and len(self.alive) < MOST_ALIVE:
            self.add(self.speech())
        elif dice < 0.14 and self.alive:
            self.cancel(self.chance.choice(self.alive))
        else:
            self.step(self.order(self.stage.ready()))
        self.check_pages()

    def speech(self) -> Speech:
        chance = self.chance
        lead = VOICE[: chance.choice((0, 0, 5, 8, 9))]
        return Speech(
            ids=lead + tuple(chance.randrange(100) for _ in range(chance.randrange(1, 14))),
            script=tuple(chance.randrange(100) for _ in range(chance.choice((0, 3, 6)))),
            max_tokens=chance.randrange(1, 8),
            late=chance.choice((0, 0, 1, 4)),
            pairs=chance.random() < 0.5,
            shared=len(lead),
            use_cache=chance.random() < 0.9,
        )

    def add(self, speech: Speech) -> None:
        number = len(self.speeches)
        self.speeches[number] = speech
        self.alive.append(number)
        self.stage.add(number, speech)

    def cancel(self, number: int) -> None:
        self.alive.remove(number)
        self.cancelled.add(number)
        self.stage.scheduler.drop(UtteranceId(number, 0))

    def order(self, ready: list[UtteranceId]) -> list[UtteranceId]:
        """First come first most of the time, else any order, sometimes without those whose reader is slow."""
        order = sorted(ready, key=lambda utterance: utterance.request)
        if self.chance.random() < 0.3:
            self.chance.shuffle(order)
        if self.chance.random() < 0.1:
            order = order[: self.chance.randrange(len(order) + 1)]
        return order

    def step(self, order: list[UtteranceId]) -> None:
        before = Before(self.stage, order)
        plan = self.stage.scheduler.plan(order)
        before.check(plan)
        self.count(before, plan)
        self.stage.commit(plan, self.stage.run(plan))
        self.alive = [number for number in self.alive if number not in self.stage.finished]

    def count(self, before: Before, plan: list[Scheduled]) -> None:
        decodes = sum(span.sequence.utterance in before.decoding for span in plan)
        self.seen["mixed"] += 0 < decodes < len(plan)
        self.seen["preempted"] += before.preempted()
        self.seen["drafts"] += sum(len(span.drafts) for span in plan)
        self.seen["shared"] = self.stage.pool.counters.shared

    def check_pages(self) -> None:
        """Free and held pages make up the pool; references count holders; only a shared prefix has several."""
        pool, sequences = self.stage.pool, self.stage.sequences
        held = Counter(page for sequence in sequences for page in sequence.pages)
        in_use = {page for page in range(1, pool.pages) if pool.references[page]}
        assert pool.free + len(in_use) == pool.pages - 1
        assert held.keys() <= in_use
        cached = [page for page in in_use if pool.references[page] != held[page]]
        assert len(cached) <= len(VOICE) // self.stage.page_size
        assert all(pool.references[page] == held[page] + 1 for page in cached)
        for page, holders in held.items():
            assert holders == 1 or pool.references[page] == holders + 1 or self.shared_by_all(page)
        assert len(sequences) == len(self.alive)
        assert not any(s.pages or s.computed for s in self.stage.scheduler.waiting.values())

    def shared_by_all(self, page: int) -> bool:
        """Whether every holder has this page as part of its voice's prompt."""
        holders = [sequence for sequence in self.stage.sequences if page in sequence.pages]
        ends = [(s.pages.index(page) + 1) * self.stage.page_size for s in holders]
        return all(end <= s.prompt.shared_tokens for s, end in zip(holders, ends, strict=True))

    def drain(self, most_steps: int = 3000) -> None:
        """Step in a fixed order until everyone has finished."""
        for _ in range(most_steps):
            if not self.alive:
                break
            self.step(sorted(self.stage.ready(), key=lambda utterance: utterance.request))
            self.check_pages()
        assert not self.alive
        self.stage.pool.forget_prefixes()
        assert self.stage.pool.free == self.stage.pool.pages - 1

    def check_outputs(self) -> None:
        for number, speech in self.speeches.items():
            alone, emitted = speech.alone(), self.stage.emitted[number]
            assert emitted == (alone[: len(emitted)] if number in self.cancelled else alone)


class Before:
    """The scheduler as it was before a plan, to check the plan against."""

    def __init__(self, stage: IntegerStage, order: list[UtteranceId]) -> None:
        self.stage, self.order = stage, order
        scheduler = stage.scheduler
        self.running = set(scheduler.running)
        self.decoding = {u for u in order if u in self.running and scheduler.running[u].decoding}
        self.prompts = {u for u in order if u not in self.decoding and (s := scheduler.find(u)) and s.pending}
        self.computed = {s.utterance: s.computed for s in stage.sequences}
        self.preemptions = stage.pool.counters.preempted

    def preempted(self) -> int:
        return self.stage.pool.counters.preempted - self.preemptions

    def check(self, plan: list[Scheduled]) -> None:
        planned = [span.sequence.utterance for span in plan]
        assert len(set(planned)) == len(planned)
        assert set(planned) <= set(self.order)
        for span in plan:
            self.check_span(span)
        self.check_budget(plan)
        self.check_victims()
        for utterance in self.decoding - set(planned):
            self.check_left_out(utterance)
        if not set(planned) & self.prompts:
            self.check_no_prompt_could(plan)

    def check_span(self, span: Scheduled) -> None:
        sequence = span.sequence
        assert sequence is self.stage.scheduler.running[sequence.utterance]
        assert span.start == sequence.computed and span.length >= 1
        assert span.start + span.length <= len(sequence.ids)
        assert len(sequence.pages) >= self.stage.pool.pages_for(span.start + span.rows)
        if sequence.utterance in self.running:
            assert span.start == self.computed[sequence.utterance]
        else:
            assert span.start <= max(0, sequence.prompt.shared_tokens) and span.start % self.stage.page_size == 0

    def check_budget(self, plan: list[Scheduled]) -> None:
        limits = self.stage.limits
        decodes = sum(span.length for span in plan if span.sequence.utterance in self.decoding)
        prefill = sum(span.length for span in plan) - decodes
        beside = min(limits.prefill_tokens_beside_decodes, limits.max_tokens_per_step - decodes)
        assert prefill <= (max(1, beside) if decodes else limits.max_tokens_per_step)
        rows = sum(span.rows for span in plan)
        assert rows <= -(-(decodes + prefill) // limits.row_tile) * limits.row_tile
        assert all(not span.drafts or span.sequence.utterance in self.decoding for span in plan)
        assert len(self.stage.scheduler.running) <= max(limits.max_sequences, len(self.running))

    def check_victims(self) -> None:
        """Pages are taken from the least urgent; those that are not asked for now come first of all."""
        running = self.stage.scheduler.running
        ranks = {u: self.order.index(u) if u in self.order else len(self.order) for u in self.running}
        victims = [ranks[u] for u in self.running if u not in running]
        assert not victims or all(rank <= min(victims) for u, rank in ranks.items() if u in running)

    def check_left_out(self, utterance: UtteranceId) -> None:
        """A decode is left out only for want of pages, and only the least urgent one."""
        scheduler = self.stage.scheduler
        if utterance in scheduler.waiting:
            assert self.preempted() and not scheduler.waiting[utterance].pages
            return
        assert self.preempted() or not self.stage.pool.free
        own = self.order.index(utterance)
        rivals = [u for u in scheduler.running if u in self.running and u != utterance]
        assert all(u in self.order and self.order.index(u) < own for u in rivals)

    def check_no_prompt_could(self, plan: list[Scheduled]) -> None:
        """No prompt is worked on: none could be admitted, or its next span has no pages."""
        scheduler, limits, pool = self.stage.scheduler, self.stage.limits, self.stage.pool
        decodes = len(plan)
        budget = limits.max_tokens_per_step - decodes
        budget = max(1, min(budget, limits.prefill_tokens_beside_decodes)) if decodes else budget
        for utterance in self.prompts:
            sequence = scheduler.find(utterance)
            assert sequence is not None
            full = utterance in scheduler.waiting and len(scheduler.running) >= limits.max_sequences
            needed = pool.pages_for(sequence.computed + min(sequence.pending, budget)) - len(sequence.pages)
            assert full or self.preempted() or needed > pool.free


def world(chance: random.Random, pages: int, limits: SchedulerLimits) -> World:
    return World(IntegerStage(pages, 4, limits), chance)


@pytest.mark.parametrize("pages", [12, 40])
def test_ten_thousand_operations(pages: int) -> None:
    """In a pool that holds the longest sequence and little more, and in one with room for all."""
    weather = world(random.Random(20), pages, SchedulerLimits(12, 5, 7, row_tile=4))
    for _ in range(10_000):
        weather.tick()
    weather.drain()
    weather.check_outputs()
    assert len(weather.cancelled) > 50 and len(weather.stage.finished) > 400
    assert min(weather.seen[what] for what in ("mixed", "drafts", "shared")) > 500, weather.seen
    assert weather.seen["preempted"] > 50 or pages == 40


@st.composite
def all_limits(draw: st.DrawFn) -> SchedulerLimits:
    return SchedulerLimits(
        max_tokens_per_step=draw(st.integers(1, 20)),
        prefill_tokens_beside_decodes=draw(st.integers(1, 8)),
        max_sequences=draw(st.integers(1, 8)),
        row_tile=draw(st.sampled_from((1, 2, 4, 8))),
    )


@settings(max_examples=80)
@given(st.randoms(use_true_random=False), st.integers(12, 40), all_limits(), st.integers(10, 150))
def test_any_operations(chance: random.Random, pages: int, limits: SchedulerLimits, ticks: int) -> None:
    weather = world(chance, pages, limits)
    for _ in range(ticks):
        weather.tick()
    weather.drain()
    weather.check_outputs()


def steps(stage: IntegerStage, order: list[int]) -> Iterator[list[Scheduled]]:
    """Plans, one after the other, with this order of urgency among those that are ready."""
    for _ in range(MOST_STEPS):
        ready = set(stage.ready())
        plan = stage.scheduler.plan([u for n in order if (u := UtteranceId(n, 0)) in ready])
        if not plan:
            return
        yield plan
        stage.commit(plan, stage.run(plan))
    raise AssertionError("it does not end")


def test_a_long_prompt_comes_in_beside_decodes() -> None:
    stage = IntegerStage(100, 4, SchedulerLimits(32, 6, 8))
    for number in (0, 1, 2):
        stage.add(number, Speech((number,), max_tokens=30))
    run = steps(stage, [0, 1, 2, 3])
    next(run)
    next(run)
    stage.add(3, Speech(tuple(range(50)), max_tokens=1))
    lengths = [{span.sequence.utterance.request: span.length for span in next(run)} for _ in range(9)]
    assert [plan.pop(3) for plan in lengths] == [6, 6, 6, 6, 6, 6, 6, 6, 2]
    assert all(plan == {0: 1, 1: 1, 2: 1} for plan in lengths)


def test_the_least_urgent_gives_its_pages_and_starts_again() -> None:
    stage = IntegerStage(5, 4, SchedulerLimits(32, 8, 8))
    first, last = Speech((1, 2, 4), max_tokens=9), Speech((3, 5, 6, 7, 8), max_tokens=9)
    stage.add(0, first)
    stage.add(1, last)
    run = steps(stage, [0, 1])
    next(run)
    for _ in range(8):
        assert next(run)[0].sequence.utterance.request == 0
        if stage.pool.counters.preempted:
            break
    sequence = stage.scheduler.find(UtteranceId(1, 0))
    assert sequence is not None and sequence.computed == 0 and not sequence.pages
    for _ in run:
        pass
    assert stage.emitted == {0: first.alone(), 1: last.alone()}
    assert stage.finished == {0, 1}


def test_one_that_waits_takes_only_free_pages() -> None:
    """Two of which one fits: the one that runs goes on to its end, even once the other is more urgent."""
    stage = IntegerStage(5, 4, SchedulerLimits(32, 8, 8))
    stage.add(0, Speech(tuple(range(12)), max_tokens=2))
    stage.add(1, Speech(tuple(range(20, 30)), max_tokens=3))
    planned = []
    plan = stage.scheduler.plan([UtteranceId(1, 0), UtteranceId(0, 0)])
    stage.commit(plan, stage.run(plan))
    for plan in steps(stage, [0, 1]):
        planned.append([span.sequence.utterance.request for span in plan])
    assert planned == [[1], [1], [0], [0]]
    assert not stage.pool.counters.preempted


def test_one_that_runs_takes_pages_from_the_less_urgent() -> None:
    """The same two, begun side by side: whoever is more urgent at the moment gets the pages."""
    stage = IntegerStage(5, 4, SchedulerLimits(4, 4, 8))
    speeches = [Speech(tuple(range(12)), max_tokens=2), Speech(tuple(range(20, 30)), max_tokens=3)]
    for number, speech in enumerate(speeches):
        stage.add(number, speech)
    running = []
    for urgent, other in ((0, 1), (1, 0), (0, 1), (1, 0), (1, 0), (0, 1), (0, 1)):
        plan = stage.scheduler.plan([UtteranceId(urgent, 0), UtteranceId(other, 0)])
        stage.commit(plan, stage.run(plan))
        running.append(sorted(utterance.request for utterance in stage.scheduler.running))
    assert [0, 1] in running and stage.pool.counters.preempted
    for _ in steps(stage, [1, 0]):
        pass
    assert stage.emitted == {0: speeches[0].alone(), 1: speeches[1].alone()}


@pytest.mark.parametrize("late", [1, 5])
def test_a_late_host_keeps_its_pages_and_is_not_sampled_again(late: int) -> None:
    stage = IntegerStage(20, 4, SchedulerLimits(32, 8, 8))
    speech = Speech((1, 2, 3), max_tokens=12, late=late)
    stage.add(0, speech)
    idle = 0
    for _ in range(MOST_STEPS):
        ready = stage.ready()
        idle += not ready
        plan = stage.scheduler.plan(ready)
        stage.commit(plan, stage.run(plan))
        if stage.finished:
            break
    assert stage.emitted[0] == speech.alone()
    assert idle >= late - 1


def test_a_host_that_is_late_when_its_pages_go_is_not_sampled_again() -> None:
    """It is computed again once its host has answered, and sampled from only then."""
    stage = IntegerStage(6, 4, SchedulerLimits(8, 8, 8))
    speech, other = late_at_once(), Speech(tuple(range(17)), max_tokens=2)
    stage.add(0, speech)
    for _ in steps(stage, [0]):
        pass
    stage.add(1, other)
    for _ in steps(stage, [1, 0]):
        pass
    assert stage.finished == {1} and stage.pool.counters.preempted == 1
    for _ in range(MOST_STEPS):
        for _ in steps(stage, [0]):
            pass
    assert stage.emitted == {0: speech.alone(), 1: other.alone()}


def late_at_once() -> Speech:
    """One whose host is late for the first token, for long."""
    return next(s for i in range(100) if (s := Speech((i,), max_tokens=6, late=30)).alone()[0] % 5 == 0)


def test_a_prompt_without_cache_is_computed_whole_for_every_token() -> None:
    stage = IntegerStage(20, 4, SchedulerLimits(64, 64, 8))
    speech = Speech((1, 2, 4, 5, 8), max_tokens=5, use_cache=False)
    stage.add(0, speech)
    lengths = [(plan[0].start, plan[0].length) for plan in steps(stage, [0])]
    assert lengths[:3] == [(0, 5), (0, 6), (0, 7)]
    assert stage.emitted[0] == speech.alone()


def test_a_shared_prefix_is_computed_once() -> None:
    stage = IntegerStage(40, 4, SchedulerLimits(64, 64, 8))
    speeches = {number: Speech((*VOICE, 40 + number, 50), max_tokens=2, shared=9) for number in range(3)}
    for number, speech in speeches.items():
        stage.add(number, speech)
        starts = [plan[0].start for plan in steps(stage, [number])]
        assert starts[0] == (0 if number == 0 else 8)
        assert stage.emitted[number] == speech.alone()
    assert stage.pool.counters.shared == 4


def test_the_last_id_is_computed_even_if_all_is_shared() -> None:
    stage = IntegerStage(40, 4, SchedulerLimits(64, 64, 8))
    speech = Speech(VOICE[:8], max_tokens=2, shared=8)
    for number in range(2):
        stage.add(number, speech)
        starts = [plan[0].start for plan in steps(stage, [number])]
        assert starts[0] == (0, 4)[number]
    assert stage.emitted == {0: speech.alone(), 1: speech.alone()}


def test_drafts_fill_the_tile_and_no_more() -> None:
    """Three decodes in tiles of eight leave five rows: two, two and one, most urgent first."""
    stage = IntegerStage(60, 4, SchedulerLimits(64, 64, 8, row_tile=8))
    script = tuple(range(50, 80))
    for number in range(3):
        stage.add(number, Speech((number,), script, max_tokens=6))
    run = steps(stage, [0, 1, 2])
    next(run)
    assert [len(span.drafts) for span in next(run)] == [2, 2, 1]
    for _ in run:
        pass
    assert stage.finished == {0, 1, 2}


def test_drafts_take_no_pages_away() -> None:
    """With one page per id and none to spare, guesses are not made."""
    stage = IntegerStage(8, 1, SchedulerLimits(64, 64, 8, row_tile=4))
    speech = Speech((1, 2), script=(9, 9, 9), max_tokens=1)
    stage.add(0, speech)
    taken: list[int] = []
    run = steps(stage, [0])
    next(run)
    stage.pool.extend(taken, stage.pool.free - 1)
    assert not next(run)[0].drafts
    stage.pool.release(taken)


def test_dropping_the_unknown_is_nothing() -> None:
    stage = IntegerStage(8, 4, SchedulerLimits(64, 64, 8))
    stage.scheduler.drop(UtteranceId(7, 0))
    assert stage.scheduler.plan([UtteranceId(7, 0)]) == []
    assert stage.scheduler.find(UtteranceId(7, 0)) is None
