"""PagePool: no page is lost, given away twice or shared by mistake."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from legato.lm.pages import SCRATCH_PAGE, PagePool

PAGES, SIZE = 12, 2
IDS = st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple)
KEYS = st.sampled_from(["ann", "bob"])

Content = tuple[str, tuple[int, ...]]
"""What a page holds once it is computed: everything up to its end, under a share key."""


@dataclass(eq=False)
class Holder:
    key: str
    ids: tuple[int, ...]
    pages: list[int] = field(default_factory=list)


class Pool(RuleBasedStateMachine):
    """Sequences come, share, grow, publish and go; the pool is checked against what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(PAGES, SIZE)
        self.holders: list[Holder] = []
        self.content: dict[int, Content] = {}

    def extend(self, pages: list[int], tokens: int) -> bool:
        """Extend, and check that it was all or nothing, of free pages, side by side wherever the next one was free."""
        before = list(pages)
        done = self.pool.extend(pages, tokens)
        new = pages[len(before) :]
        assert pages[: len(before)] == before
        assert len(pages) == (max(len(before), self.pool.pages_for(tokens)) if done else len(before))
        assert done or self.pool.free < self.pool.pages_for(tokens) - len(before)
        free = {page for page in range(1, PAGES) if not self.pool.references[page]} | set(new)
        last = before[-1] if before else None
        for page in new:
            assert last is None or page == last + 1 or last + 1 not in free
            free.remove(page)
            last = page
        for page in new:
            self.content.pop(page, None)
        return done

    def held(self) -> Counter[int]:
        return Counter(page for holder in self.holders for page in holder.pages)

    @rule(key=KEYS, ids=IDS, publish=st.booleans())
    def start(self, key: str, ids: tuple[int, ...], publish: bool) -> None:
        holder = Holder(key, ids, self.pool.share(key, ids))
        for index, page in enumerate(holder.pages):
            assert self.content[page] == (key, ids[: (index + 1) * SIZE])
        self.holders.append(holder)
        if not self.extend(holder.pages, len(ids)):
            self.pool.release(holder.pages)
            self.holders.remove(holder)
            return
        for index in range(len(ids) // SIZE):
            self.content[holder.pages[index]] = (key, ids[: (index + 1) * SIZE])
        if publish:
            self.pool.publish(key, ids, holder.pages)
            assert len(again := self.pool.share(key, ids)) == len(ids) // SIZE
            self.pool.release(again)

    @rule(which=st.integers(0, 99), tokens=st.integers(1, 24))
    def grow(self, which: int, tokens: int) -> None:
        if self.holders:
            self.extend(self.holders[which % len(self.holders)].pages, tokens)

    @rule(which=st.integers(0, 99))
    def leave(self, which: int) -> None:
        if self.holders:
            holder = self.holders.pop(which % len(self.holders))
            self.pool.release(holder.pages)
            assert not holder.pages

    @rule()
    def forget(self) -> None:
        self.pool.forget_prefixes()
        assert self.pool.used == len(self.held())

    @invariant()
    def conserved(self) -> None:
        references, held = self.pool.references, self.held()
        in_use = {page for page in range(1, PAGES) if references[page]}
        assert self.pool.free + len(in_use) == PAGES - 1
        assert self.pool.used == len(in_use)
        assert held.keys() <= in_use
        assert SCRATCH_PAGE not in held and references[SCRATCH_PAGE] == 1
        assert all(len(set(holder.pages)) == len(holder.pages) for holder in self.holders)
        cached = {page: references[page] - held[page] for page in in_use if references[page] != held[page]}
        assert set(cached.values()) <= {1}
        assert cached.keys() <= self.content.keys()

    def teardown(self) -> None:
        for holder in self.holders:
            self.pool.release(holder.pages)
        self.pool.forget_prefixes()
        assert self.pool.free == PAGES - 1
        assert self.pool.references[1:] == [0] * (PAGES - 1)


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=30, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow])


def test_sequences_grow_side_by_side() -> None:
    """Four sequences that grow in turns in a pool with room each keep their pages in a row."""
    pool = PagePool(65, 1)
    held: list[list[int]] = [[], [], [], []]
    for tokens in range(1, 13):
        for pages in held:
            assert pool.extend(pages, tokens)
    for pages in held:
        assert pages == list(range(pages[0], pages[0] + 12))


@pytest.mark.parametrize("start", range(1, 5))
def test_pages_asked_for_together_lie_in_a_row_if_a_gap_holds_them(start: int) -> None:
    """The pages around a gap of five are taken; five are asked for."""
    pool = PagePool(12, 1)
    everything: list[int] = []
    pool.extend(everything, 11)
    everything.sort()
    gap, rest = everything[start : start + 5], everything[:start] + everything[start + 5 :]
    pool.release(gap)
    held: list[int] = []
    assert pool.extend(held, 5)
    assert held == list(range(start + 1, start + 6))
    pool.release(rest)


def test_release_twice_is_refused() -> None:
    pool = PagePool(4, 1)
    held: list[int] = []
    pool.extend(held, 2)
    again = list(held)
    pool.release(held)
    with pytest.raises(ValueError, match="not held"):
        pool.release(again)
    with pytest.raises(ValueError, match="not held"):
        pool.release([SCRATCH_PAGE])


def test_only_whole_pages_are_shared() -> None:
    pool = PagePool(10, 4)
    held: list[int] = []
    pool.extend(held, 11)
    pool.publish("voice", tuple(range(11)), held)
    assert pool.share("voice", tuple(range(20))) == held[:2]
    assert pool.share("voice", (*range(7), 99)) == held[:1]
    assert pool.share("voice", (99, *range(1, 8))) == []
    assert pool.share("other", tuple(range(11))) == []


def test_published_pages_outlive_their_maker_until_they_are_needed() -> None:
    pool = PagePool(5, 1)
    held: list[int] = []
    pool.extend(held, 3)
    pool.publish("voice", (7, 8, 9), held)
    pages = list(held)
    pool.release(held)
    assert (pool.used, pool.free) == (3, 1)
    assert pool.share("voice", (7, 8, 9)) == pages
    pool.release(pages)
    other: list[int] = []
    assert pool.extend(other, 4)
    assert pool.counters.evicted == 3
    assert pool.share("voice", (7, 8, 9)) == []


def test_least_recently_used_prefix_goes_first() -> None:
    pool = PagePool(4, 1)
    for key in ("ann", "bob"):
        held: list[int] = []
        pool.extend(held, 1)
        pool.publish(key, (5,), held)
        pool.release(held)
    pool.release(pool.share("ann", (5,)))
    assert pool.extend([], 2)
    assert pool.share("bob", (5,)) == []
    assert len(pool.share("ann", (5,))) == 1


def test_prefixes_are_kept_when_forgetting_them_would_not_help() -> None:
    """Two published pages are in use, the third is not: four more cannot be had, three can."""
    pool = PagePool(6, 1)
    held: list[int] = []
    pool.extend(held, 3)
    pool.publish("voice", (1, 2, 3), held)
    pool.release([held.pop()])
    assert not pool.extend([], 4)
    assert pool.counters.evicted == 0
    assert pool.extend([], 3)
    assert pool.counters.evicted == 1
    assert pool.share("voice", (1, 2, 3)) == held


def test_a_prefix_is_forgotten_from_its_end() -> None:
    pool = PagePool(5, 1)
    held: list[int] = []
    pool.extend(held, 4)
    pages = tuple(held)
    pool.publish("voice", (1, 2, 3, 4), held)
    pool.release(held)
    for left in (3, 2, 1, 0):
        assert pool.extend([], 1)
        shared = pool.share("voice", (1, 2, 3, 4))
        assert tuple(shared) == pages[:left]
        pool.release(shared)


def test_a_pool_has_a_page_to_give() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        PagePool(1, 16)
    assert PagePool(3, 16).capacity_tokens == 32
