"""Handover: rows come out in the order they went in, however late each of them is."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from legato.families.qwen2_5_omni.handover import Handover

WIDTH = 4


def row(position: int) -> Tensor:
    return torch.full((WIDTH,), float(position))


@pytest.mark.parametrize("seed", range(30))
def test_rows_in_any_rhythm(seed: int) -> None:
    chance = random.Random(seed)
    prompt, reply = chance.randrange(1, 20), chance.randrange(8)
    handover, announced, put, at = Handover(prompt), 0, 0, 0
    taken: list[Tensor] = []
    said: list[Tensor] = []
    while not handover.exhausted:
        act = chance.randrange(4)
        if act == 0 and announced < prompt:
            step = chance.randrange(1, prompt - announced + 1)
            handover.announce(
                [(i, i, i) for i in range(announced, announced + step)], range(announced, announced + step)
            )
            announced += step
            if announced == prompt:
                handover.close_prompt(prompt)
        most = announced if announced < prompt else prompt + reply
        if act == 1 and put < most:
            step = chance.randrange(1, most - put + 1)
            handover.put(put, torch.stack([row(i) for i in range(put, put + step)]))
            put += step
            if put == prompt + reply:
                handover.end()
        if act == 2 and (rows := handover.take_prompt()) is not None:
            assert rows.places == tuple((i, i, i) for i in range(at, at + len(rows.rows)))
            assert rows.keys == tuple(range(at, at + len(rows.rows)))
            taken += rows.rows
            at += len(rows.rows)
        if act == 3 and (next_row := handover.take_reply()) is not None:
            assert at == prompt, "the reply comes behind the prompt"
            said.append(next_row)
    assert torch.equal(torch.stack(taken + said), torch.stack([row(i) for i in range(prompt + reply)]))
    assert handover.take_prompt() is None and handover.take_reply() is None


def test_what_does_not_follow_is_refused() -> None:
    handover = Handover(1)
    handover.announce([(0, 0, 0)], [1])
    handover.put(0, row(0)[None])
    with pytest.raises(ValueError, match="do not follow"):
        handover.put(0, row(0)[None])
    handover.close_prompt(1)
    with pytest.raises(ValueError, match="closed"):
        handover.announce([(1, 1, 1)], [1])


def test_a_reply_of_nothing() -> None:
    handover = Handover(1)
    handover.announce([(0, 0, 0)], [1])
    handover.close_prompt(1)
    handover.put(0, row(0)[None])
    handover.end()
    assert not handover.exhausted, "the prompt was not taken"
    handover.take_prompt()
    assert handover.exhausted
