"""The thinker: equal to the reference on text and media, under any split of its prompts and in any company."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from legato.families.qwen2_5_omni.thinker import Thinker
from legato.protocols import RelayLM, Step

from .conftest import NAMES
from .drive import Rows, Writing, cut, finish, prompt_of, stage
from .media_files import noise
from .tiny import IDS

TOLERANCE = 1e-4


def run(thinker: Thinker, prompts: dict[str, Step], name: str, cuts: list[int], budget: int) -> tuple[Writing, Rows]:
    writing, rows, lm = Writing(12), Rows(), stage(thinker, budget=budget)
    lm.add(prompt_of(cut(prompts[name], cuts), writing, rows))
    finish(lm)
    return writing, rows


def reference(gold: dict[str, Tensor], name: str, kind: str) -> tuple[Tensor, Tensor]:
    """Which positions of the prompt were kept, and what the reference has there."""
    kept, length = gold[f"{name}.{kind}"], len(gold[f"{name}.ids"])
    where = torch.arange(length)
    return (where if len(kept) == length else torch.cat([where[::8], where[-4:]])), kept


def test_it_relays(thinker: Thinker) -> None:
    assert isinstance(thinker, RelayLM)
    assert thinker.kv_shape.relay_width == thinker.config.decoder.width


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_reply_are_the_references(
    thinker: Thinker, prompts: dict[str, Step], gold: dict[str, Tensor], name: str
) -> None:
    writing, rows = run(thinker, prompts, name, [], 512)
    assert writing.said == gold[f"{name}.reply"].tolist()
    ids = torch.tensor(prompts[name].feed)
    hidden = rows.rows[: len(ids)] - thinker.embed(ids, None)
    for kind, ours in (("hidden", hidden), ("logits", hidden @ thinker.head.weight.t())):
        where, wanted = reference(gold, name, kind)
        assert (ours[where] - wanted).abs().max() < TOLERANCE, kind
    assert (writing.logits[0] - gold[f"{name}.logits"][-1]).abs().max() < TOLERANCE


@pytest.mark.parametrize("seed", range(6))
def test_splits_and_company_change_nothing(thinker: Thinker, prompts: dict[str, Step], seed: int) -> None:
    chance = random.Random(seed)
    alone = {name: run(thinker, prompts, name, [], 512) for name in NAMES}
    lm = stage(thinker, budget=chance.choice((3, 9, 40, 200)), beside=chance.choice((2, 8, 64)))
    together: dict[str, tuple[Writing, Rows]] = {}
    names = [*NAMES]
    chance.shuffle(names)
    for number, name in enumerate(names):
        length = len(prompts[name].feed)
        cuts = sorted(chance.sample(range(1, length), chance.randrange(6)))
        writing, rows = Writing(12), Rows()
        lm.add(prompt_of(cut(prompts[name], cuts), writing, rows, number))
        together[name] = writing, rows
        for _ in range(chance.randrange(4)):
            batch = lm.plan(lm.ready())
            if batch is not None:
                lm.commit(batch, lm.run(batch))
    finish(lm)
    for name in NAMES:
        assert together[name][0].said == alone[name][0].said
        assert torch.equal(together[name][1].rows, alone[name][1].rows), name


def test_a_placeholder_that_is_drawn_is_text(thinker: Thinker) -> None:
    ids = torch.tensor([IDS.audio, thinker.media_id])
    rows = thinker.embed(ids, None)
    assert rows[0].abs().max() > 0 and rows[1].abs().max() == 0
    hidden = torch.ones_like(rows)
    assert torch.equal(thinker.relay(ids, rows, hidden), hidden + rows)


def test_media_rows_relay_no_embedding(thinker: Thinker) -> None:
    ids, features = torch.tensor([thinker.media_id] * 2), noise(1, 2, thinker.config.decoder.width)
    embedded, hidden = thinker.embed(ids, features), noise(2, 2, thinker.config.decoder.width)
    assert torch.equal(embedded, features)
    assert torch.equal(thinker.relay(ids, embedded, hidden), hidden)
