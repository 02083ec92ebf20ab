"""Open prompts, positions on several axes, keys of shared pages, and relayed rows: bit-equal however they come."""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from legato.nn.decoder import Decoder
from legato.protocols import SHARE_ALL, Place, Prompt, Step
from legato.types import Sampling, UtteranceId

from .tiny import CONFIG, RelayingLM, Talker, finish, ids, stage, step, vector

WIDTH = CONFIG.width
LM = RelayingLM()


class Rows:
    """A relay that insists on every position once, in order."""

    def __init__(self) -> None:
        self.rows = torch.zeros(0, WIDTH)

    def put(self, start: int, rows: Tensor) -> None:
        assert start == len(self.rows)
        self.rows = torch.cat([self.rows, rows])


class Opened(Talker):
    """A talker whose prompt comes in parts, each after some polls; a part may be empty."""

    def __init__(self, tokens: int, parts: Seq[Step], polls_between: int = 0) -> None:
        super().__init__(tokens)
        self.parts, self.polls_between, self.polled = list(parts), polls_between, 0

    def poll(self) -> Step | None:
        self.polled += 1
        if not self.parts or self.polled % (self.polls_between + 1):
            return None
        return self.parts.pop(0)


def places(length: int, seed: int = 0) -> list[Place]:
    """Somewhere on three axes, further on with every id, but not evenly."""
    chance, at, out = random.Random(seed), 0, []
    for _ in range(length):
        at += chance.choice((0, 1, 1, 4))
        out.append((at, at + chance.randrange(3), at + chance.randrange(3)))
    return out


def whole(token_ids: tuple[int, ...], talker: Talker, relay: Rows | None = None, **kind: object) -> Prompt:
    settings: dict[str, object] = {
        "vectors": torch.stack([vector(i) for i in token_ids]), "places": places(len(token_ids)), **kind
    }  # fmt: skip
    return Prompt(UtteranceId(1, 0), token_ids, talker, Sampling(0.8), 1, 600, relay=relay, **settings)  # type: ignore[arg-type]


def parts_of(token_ids: tuple[int, ...], cuts: Seq[int]) -> list[Step]:
    """The same prompt in parts [0, cut), [cut, cut), …"""
    placed, out = places(len(token_ids)), []
    for start, stop in zip((0, *cuts), (*cuts, len(token_ids)), strict=True):
        fed = token_ids[start:stop]
        vectors = torch.stack([vector(i) for i in fed]) if fed else None
        out.append(Step(feed=fed, vectors=vectors, places=placed[start:stop], more=stop < len(token_ids)))
    return out


def said_whole(token_ids: tuple[int, ...], tokens: int = 8) -> tuple[Talker, Rows]:
    talker, rows, lm = Talker(tokens), Rows(), stage(lm=LM)
    lm.add(whole(token_ids, talker, rows))
    finish(lm)
    return talker, rows


def opened(talker: Opened, relay: Rows | None = None) -> Prompt:
    return Prompt(UtteranceId(1, 0), (), talker, Sampling(0.8), 1, 600, open=True, places=(), relay=relay)


@pytest.mark.parametrize("seed", range(8))
def test_a_prompt_in_parts_is_the_whole_prompt(seed: int) -> None:
    chance = random.Random(seed)
    known = ids(chance.randrange(2, 300), seed)
    cuts = sorted(chance.sample(range(1, len(known)), min(len(known) - 1, chance.randrange(5))))
    wanted, wanted_rows = said_whole(known)
    talker, rows = Opened(8, parts_of(known, cuts), chance.randrange(3)), Rows()
    lm = stage(lm=LM, budget=chance.choice((3, 20, 64)))
    lm.add(opened(talker, rows))
    finish(lm)
    assert torch.equal(talker.logits, wanted.logits) and talker.said == wanted.said
    assert torch.equal(rows.rows, wanted_rows.rows)
    assert lm.usage[UtteranceId(1, 0)].prompt_tokens == len(known)
    assert not lm.pool.used


def test_nothing_is_sampled_while_the_prompt_is_open() -> None:
    known = ids(40)
    talker, rows = Opened(4, parts_of(known, (17,))[:1]), Rows()
    lm = stage(lm=LM)
    lm.add(opened(talker, rows))
    for _ in range(5):
        step(lm)
    assert len(rows.rows) == 17 and not talker.said
    assert lm.ready() == []


def test_places_turn_the_keys() -> None:
    """Positions matter, and all axes of them; ids fed later stand behind the furthest one."""
    known = ids(30)
    flat, curled = Talker(6), Talker(6)
    for talker, where in ((flat, [(i, i, i) for i in range(30)]), (curled, places(30))):
        lm = stage(lm=LM)
        lm.add(whole(known, talker, places=where))
        finish(lm)
    plain = Talker(6)
    lm = stage()
    lm.add(Prompt(UtteranceId(1, 0), known, plain, Sampling(0.8), 1, 600, vectors=torch.stack([*map(vector, known)])))
    finish(lm)
    assert torch.equal(flat.logits, plain.logits), "equal axes are one axis"
    assert not torch.equal(curled.logits[0], flat.logits[0])
    last = max(axis for place in places(30) for axis in place)
    assert last + 1 != 30, "else the next assertion says nothing"
    given = [(last + 1 + i,) * 3 for i in range(len(curled.said) - 1)]
    again = Opened(1, [])
    longer = whole(known + tuple(curled.said[:-1]), again, places=[*places(30), *given])
    longer = replace(longer, vectors=torch.stack([*map(vector, known), *[torch.zeros(WIDTH)] * len(given)]))
    lm = stage(lm=LM)
    lm.add(longer)
    finish(lm)
    assert torch.equal(again.logits[0], curled.logits[-1])


def test_rows_are_relayed_once_though_pages_are_lost_or_shared() -> None:
    """Preemption computes positions again, a shared prefix never computes them: the relay sees each one once."""
    known = ids(40, seed=4)
    _, wanted = said_whole(known, tokens=30)
    lm = stage(lm=LM, pages=9, page_size=16, budget=32)
    relays = [Rows(), Rows(), Rows()]
    for number, relay in enumerate(relays):
        prompt = whole(known, Talker(30), relay, shared_tokens=SHARE_ALL, share_key="c")
        lm.add(replace(prompt, utterance=UtteranceId(number, 0), max_positions=80))
        for _ in range(4):
            step(lm)
    finish(lm)
    assert lm.pool.counters.preempted and lm.pool.counters.shared
    for relay in relays:
        assert torch.equal(relay.rows, wanted.rows)


def test_keys_tell_equal_ids_apart() -> None:
    """A placeholder's id does not say what picture it stands for; its key does."""
    known, lm = ids(40, seed=5), stage(lm=LM)

    def shared_with(keys: tuple[int, ...] | None) -> int:
        before = lm.pool.counters.shared
        lm.add(whole(known, Talker(2), shared_tokens=SHARE_ALL, keys=keys))
        finish(lm)
        return lm.pool.counters.shared - before

    cat = (*known[:20], 2**62, *known[21:])
    dog = (*known[:20], 2**61, *known[21:])
    assert shared_with(cat) == 0
    assert shared_with(cat) == 2
    assert shared_with(dog) == 1, "the first page, before the picture"
    assert shared_with(None) == 1


def test_a_reply_is_shared_with_the_next_turn() -> None:
    known, lm = ids(20, seed=6), stage(lm=LM)
    first = Talker(30)
    lm.add(whole(known, first, shared_tokens=SHARE_ALL))
    finish(lm)
    fed = known + tuple(first.said[:-1])
    vectors = torch.stack([*map(vector, known), *[torch.zeros(WIDTH)] * (len(fed) + 5 - len(known))])
    last = max(axis for place in places(20) for axis in place)
    where = [*places(20), *[(last + 1 + i,) * 3 for i in range(len(fed) + 5 - 20)]]
    next_turn = whole(fed + ids(5, seed=9), alone := Talker(3), vectors=vectors, places=where)
    apart = stage(lm=LM)
    apart.add(next_turn)
    finish(apart)
    lm.add(replace(next_turn, continuation=(after := Talker(3)), shared_tokens=SHARE_ALL))
    finish(lm)
    assert lm.pool.counters.shared == len(fed) // 16 > 20 // 16
    assert torch.equal(after.logits, alone.logits)


def test_axes_must_fit_the_model() -> None:
    lm = stage()
    lm.add(whole(ids(4), Talker(2)))
    with pytest.raises(ValueError, match="rope sections"):
        finish(lm)
    with pytest.raises(ValueError, match="do not sum"):
        Decoder(replace(CONFIG, rope_sections=(1, 2)))


def test_what_stands_behind_a_negative_key_is_nobody_elses() -> None:
    known, lm = ids(40, seed=8), stage(lm=LM)
    for wanted in (0, 1):
        before = lm.pool.counters.shared
        lm.add(whole(known, Talker(2), shared_tokens=SHARE_ALL, keys=(*known[:20], -7, *known[21:])))
        finish(lm)
        assert lm.pool.counters.shared - before == wanted, "of two full pages the first"


def test_sequences_with_and_without_places_share_a_step() -> None:
    """Those without stand where they would stand alone."""
    known = ids(12, seed=9)
    talkers = Talker(4), Talker(4)
    lm = stage(lm=LM)
    placed = whole(known, talkers[0])
    plain = replace(whole(known, talkers[1]), places=None, utterance=UtteranceId(2, 0))
    for prompt in (plain, placed):
        lm.add(prompt)
    finish(lm)
    alone = Talker(4)
    apart = stage(lm=LM)
    apart.add(replace(plain, continuation=alone))
    finish(apart)
    assert torch.equal(talkers[1].logits, alone.logits)
    assert torch.equal(talkers[0].logits, said_whole(known, 4)[0].logits)
