"""LMStage with a tiny random decoder: however the work is cut, shared and interrupted, the logits are the same bits."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from legato.errors import PromptTooLong
from legato.lm.sampler import sample
from legato.nn.decoder import DecoderLayer
from legato.nn.layers import rotate
from legato.protocols import Step
from legato.types import Sampling

from .tiny import CONFIG, LM, VOCAB, Case, Talker, TinyLM, finish, ids, speak, stage, step, vector

SHORT = Case(number=1, length=70, tokens=10)
LONG = Case(number=2, length=530, tokens=6)
"""Past two tiles of keys."""
OVER_A_TILE = Case(number=3, length=250, tokens=12)
"""Its answer crosses from the first tile of keys into the second."""

CLOSE = 3e-5
"""These logits go to ±8: that is 1e-5 of their spread of 2.5."""


def same(talker: Talker, case: Case) -> bool:
    """Bit for bit what the case says alone."""
    return torch.equal(talker.logits, case.alone().logits) and talker.said == case.alone().said


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 7, 64])
@pytest.mark.parametrize("case", [SHORT, OVER_A_TILE])
def test_prefill_in_pieces(case: Case, budget: int) -> None:
    assert same(speak(stage(budget=budget), case.prompt()), case)


@pytest.mark.parametrize("budget", [7, 64, 300])
def test_long_prefill_in_pieces(budget: int) -> None:
    assert same(speak(stage(budget=budget), LONG.prompt()), LONG)


@pytest.mark.parametrize("size", range(2, 10))
def test_any_company(size: int) -> None:
    """Others come and go, are cancelled half-way, are late; nobody's result changes and no page stays."""
    chance = random.Random(size)
    cases = [any_case(10 * size + i, chance) for i in range(size)]
    talkers = [case.talker() for case in cases]
    doomed = set(chance.sample(range(size), size // 3))
    lm = stage(budget=chance.choice((16, 64)), beside=chance.choice((3, 16)))
    coming = list(range(size))
    for _ in range(3000):
        if coming and chance.random() < 0.4:
            number = coming.pop(0)
            lm.add(cases[number].prompt(talkers[number]))
        if doomed and (lost := chance.choice(sorted(doomed))) not in coming and talkers[lost].said:
            doomed.remove(lost)
            lm.drop(cases[lost].utterance)
        step(lm, chance.sample(ready := lm.ready(), len(ready)))
        if not coming and not len(lm):
            break
    for case, talker in zip(cases, talkers, strict=True):
        assert torch.equal(talker.logits, case.alone().logits[: len(talker.said)])
    assert sum(map(finished, talkers)) >= size - size // 3
    assert not len(lm) and not lm.pool.used


def any_case(number: int, chance: random.Random) -> Case:
    late, vectors = chance.choice((0, 0, 3)), chance.random() < 0.3
    return Case(number, chance.randrange(1, 60), chance.randrange(3, 9), late, vectors)


def finished(talker: Talker) -> bool:
    return len(talker.said) == talker.tokens


@pytest.mark.parametrize("case", [SHORT, OVER_A_TILE, Case(4, 9, 8, late=2, vectors=True)])
def test_without_cache(case: Case) -> None:
    lm = stage()
    assert same(speak(lm, case.prompt(use_cache=False)), case)
    assert lm.counters.decode_tokens == 0
    assert lm.counters.prefill_tokens == sum(case.length + i for i in range(case.tokens))


@pytest.mark.parametrize("late", [0, 3])
def test_preempted(late: int) -> None:
    """Pages for two of three: the least urgent starts again, perhaps while its host is late."""
    cases = [Case(20 + i, 24, 20, late=late, vectors=i == 2) for i in range(3)]
    lm = stage(pages=15, page_size=8, budget=32)
    talkers = [case.talker() for case in cases]
    for case, talker in zip(cases, talkers, strict=True):
        lm.add(case.prompt(talker))
    finish(lm)
    assert lm.pool.counters.preempted > 0
    assert all(map(same, talkers, cases))
    assert not lm.pool.used


def test_shared_prefix() -> None:
    """Three prompts of one voice: 40 of 50 ids are there already for the second and third, in whole pages."""
    voice, lm = ids(40, seed=77), stage()
    for number in range(3):
        case = Case(30 + number, 1)
        known = voice + ids(10, seed=number)
        apart = speak(stage(), case.prompt(token_ids=known))
        shared = speak(lm, case.prompt(token_ids=known, shared=40))
        assert torch.equal(shared.logits, apart.logits)
    assert lm.pool.counters.shared == 2 * 2
    assert lm.counters.prefill_tokens == 50 + 2 * (50 - 32)


def test_other_voices_are_not_shared() -> None:
    lm = stage()
    for number in range(2):
        case = Case(30 + number, 50)
        assert same(speak(lm, case.prompt(shared=40)), case)
    assert lm.pool.counters.shared == 0


@pytest.mark.parametrize("case", [SHORT, LONG])
def test_scattered_pages(case: Case) -> None:
    lm = stage(pages=120)
    everything: list[int] = []
    lm.pool.extend(everything, lm.pool.capacity_tokens)
    everything.sort()
    lm.pool.release(everything[::3])
    lm.add(case.prompt(talker := case.talker()))
    batch, _ = step(lm)
    pages = batch[0].sequence.pages
    assert all(after != page + 1 for page, after in zip(pages, pages[1:], strict=False))
    finish(lm)
    assert same(talker, case)


@pytest.mark.parametrize(("wrong", "steps"), [(0, 4), (3, 9), (1, 12)])
def test_guesses(wrong: int, steps: int) -> None:
    """Of guesses that come true up to three save a step each; the others change nothing."""
    case = Case(40, 30, 12)
    lm = stage()
    talker = speak(lm, case.prompt(case.talker(script=case.alone().said, wrong=wrong)))
    assert same(talker, case)
    assert lm.counters.steps <= steps and (wrong == 1) == (lm.counters.steps == case.tokens)
    assert talker.guesses > 0


@pytest.mark.parametrize("pages", [12, 60])
def test_guesses_in_company(pages: int) -> None:
    """Good and bad guesses beside a host with vectors, with pages for all and without."""
    cases = [Case(50 + i, 20 + i, 15, vectors=i == 2) for i in range(3)]
    scripts = [() if case.vectors else case.alone().said for case in cases]
    talkers = [case.talker(script, wrong=2 + i) for i, (case, script) in enumerate(zip(cases, scripts, strict=True))]
    lm = stage(pages=pages, page_size=8)
    for case, talker in zip(cases, talkers, strict=True):
        lm.add(case.prompt(talker))
    finish(lm)
    assert all(map(same, talkers, cases))
    assert not lm.pool.used and (lm.pool.counters.preempted > 0) == (pages == 12)


@pytest.mark.parametrize("vectors", [False, True])
def test_late_hosts(vectors: bool) -> None:
    """A host that answers at once and one that answers later get the same logits."""
    prompt, late = Case(64, 20, 12, vectors=vectors), Case(64, 20, 12, late=4, vectors=vectors)
    assert same(speak(stage(), late.prompt()), prompt)
    assert any(token % 3 == 0 for token in prompt.alone().said[:-1])


def test_vectors_are_added_to_their_own_row() -> None:
    """Against embeddings that have them built in; beside a sequence without vectors."""
    case, plain = Case(61, 33, vectors=True), Case(62, 21)
    lm = stage(budget=8)
    talkers = [case.talker(), plain.talker()]
    for one, talker in zip((case, plain), talkers, strict=True):
        lm.add(one.prompt(talker))
    finish(lm)
    assert all(map(same, talkers, (case, plain)))
    fed = [*case.ids, *talkers[0].said[:-1]]
    rows = LM.embedding(torch.tensor(fed)) + torch.stack([vector(i) for i in fed])
    torch.testing.assert_close(talkers[0].logits, dense_logits(rows)[case.length - 1 :], rtol=1e-4, atol=1e-4)


class Silent(Talker):
    """Its prompt has vectors, what it feeds has none."""

    def accept(self, token: int) -> Step:
        self.said.append(token)
        return Step(emit=token, feed=(token,), final=len(self.said) >= self.tokens)


def test_nothing_is_added_to_ids_fed_without_vectors() -> None:
    case = Case(63, 12, vectors=True)
    talker = speak(stage(), case.prompt(Silent(case.tokens, vectors=True)))
    rows = LM.embedding(torch.tensor([*case.ids, *talker.said[:-1]]))
    rows[: case.length] += torch.stack([vector(i) for i in case.ids])
    torch.testing.assert_close(talker.logits, dense_logits(rows)[case.length - 1 :], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("budget", [512, 150])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads: int, budget: int) -> None:
    torch.set_num_threads(threads)
    assert same(speak(stage(budget=budget), LONG.prompt()), LONG)


@torch.inference_mode()
def dense_logits(rows: Tensor) -> Tensor:
    """Logits after each of these embedded rows [n, D]: the same decoder with plain causal attention."""
    n, heads, shared = len(rows), CONFIG.heads, CONFIG.heads // CONFIG.kv_heads
    cos, sin = LM.decoder.rotary.table(torch.arange(n))
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    for layer in cast("list[DecoderLayer]", LM.decoder.layers):
        qkv = F.linear(layer.attention_norm(rows), layer.qkv.weight, layer.qkv.bias).view(n, -1, CONFIG.head_dim)
        q, k, v = qkv.split([heads, CONFIG.kv_heads, CONFIG.kv_heads], 1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin).repeat_interleave(shared, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * CONFIG.head_dim**-0.5
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, v.repeat_interleave(shared, 1)).flatten(1)
        rows = rows + F.linear(mixed, layer.out.weight)
        gate, up = F.linear(layer.mlp_norm(rows), layer.mlp.gate_up.weight).chunk(2, -1)
        rows = rows + F.linear(F.silu(gate) * up, layer.mlp.down.weight)
    return F.linear(LM.decoder.norm(rows), LM.head.weight)


@pytest.mark.parametrize("case", [SHORT, OVER_A_TILE, LONG])
def test_paged_attention_is_plain_attention(case: Case) -> None:
    fed = torch.tensor([*case.ids, *case.alone().said[:-1]])
    expected = dense_logits(LM.embedding(fed))[case.length - 1 :]
    torch.testing.assert_close(case.alone().logits, expected, rtol=1e-5, atol=CLOSE)


@pytest.mark.parametrize("budget", [7, 512])
@pytest.mark.parametrize("case", [SHORT, LONG])
def test_sdpa_backend(case: Case, budget: int) -> None:
    talker = speak(stage(backend="sdpa", budget=budget), case.prompt())
    torch.testing.assert_close(talker.logits, case.alone().logits, rtol=1e-5, atol=CLOSE)
    assert talker.said == case.alone().said


def test_without_row_tiles() -> None:
    """The same numbers, without the promise about bits."""
    talker = speak(stage(lm=TinyLM(row_tile=0), backend="sdpa"), SHORT.prompt())
    torch.testing.assert_close(talker.logits, SHORT.alone().logits, rtol=1e-4, atol=1e-4)


def test_a_long_prompt_takes_no_turn_from_anyone() -> None:
    """Four sequences speak while 2,000 ids arrive: each gets a token in every step."""
    speakers = [Case(70 + i, 5, 60) for i in range(4)]
    long = Case(75, 2000, 2)
    lm = stage(pages=220, beside=64)
    talkers = {case: case.talker() for case in speakers}
    for case, talker in talkers.items():
        lm.add(case.prompt(talker))
    step(lm)
    step(lm)
    lm.add(long.prompt(newcomer := long.talker()))
    mixed = lm.counters.mixed_steps
    steps = -(-2000 // 64)
    for _ in range(steps):
        assert not newcomer.said
        before = [len(talker.said) for talker in talkers.values()]
        step(lm)
        assert [len(talker.said) for talker in talkers.values()] == [said + 1 for said in before]
    assert newcomer.said and steps == lm.counters.mixed_steps - mixed
    finish(lm)
    assert all(same(talker, case) for case, talker in talkers.items())
    assert same(newcomer, long)


def test_tokens_come_in_order_and_end_once() -> None:
    case = Case(80, 10, 12)
    lm = stage()
    lm.add(case.prompt(talker := case.talker(script=case.alone().said, wrong=2)))
    out = finish(lm)
    assert [tokens.start_token for tokens in out] == [sum(len(o.ids) for o in out[:i]) for i in range(len(out))]
    assert [i for tokens in out for i in tokens.ids] == talker.said
    assert [tokens.final for tokens in out] == [False] * (len(out) - 1) + [True]
    usage = lm.usage[case.utterance]
    assert (usage.prompt_tokens, usage.generated_tokens, usage.steps) == (10, 12, lm.counters.steps)
    assert usage.page_operations == lm.pool.counters.operations


class Mute(Talker):
    """Ends at once, with nothing said."""

    def accept(self, token: int) -> Step:
        return Step(final=True)


def test_an_end_with_nothing_said_is_announced() -> None:
    lm = stage()
    lm.add(Case(81, 4, vectors=True).prompt(Mute(1, vectors=True)))
    _, out = step(lm)
    assert [(tokens.start_token, tokens.ids, tokens.final) for tokens in out] == [(0, (), True)]
    assert not len(lm) and not lm.pool.used


class Choosy(Talker):
    """Refuses what it is offered first, three times for each token it takes."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.refused: list[int] = []

    def constrain(self, logits: Tensor) -> Tensor:
        super().constrain(logits)
        return logits.mul_(2)

    def accept(self, token: int) -> Step:
        if len(self.refused) < 3 * (len(self.said) + 1):
            self.refused.append(token)
            return Step(refused=True)
        return super().accept(token)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_refused_is_drawn_again(temperature: float) -> None:
    """From the same logits, or greedily the next best; a refused token leaves no other trace."""
    case = Case(86, 15, 6, temperature=temperature)
    sampling = Sampling(temperature=temperature, repetition_penalty=1.5)
    lm = stage()
    talker = speak(lm, replace(case.prompt(Choosy(6)), sampling=sampling))
    assert isinstance(talker, Choosy) and len(talker.refused) == 18
    generator = torch.Generator().manual_seed(case.number)
    for number, said in enumerate(talker.said):
        offered = talker.seen[4 * number : 4 * number + 4]
        drawn = [*talker.refused[3 * number : 3 * number + 3], said]
        if temperature:
            assert all(torch.equal(logits, offered[0]) for logits in offered)
        else:
            assert len(set(drawn)) == len(drawn)
        for logits, token in zip(offered, drawn, strict=True):
            assert sample(2 * logits, sampling, talker.said[:number], generator) == token
    expected = dense_logits(LM.embedding(torch.tensor([*case.ids, *talker.said[:-1]])))[case.length - 1 :]
    torch.testing.assert_close(torch.stack(talker.seen[::4]), expected, rtol=1e-5, atol=CLOSE)


@pytest.mark.parametrize("after", range(6))
def test_drop_at_any_step(after: int) -> None:
    lm = stage(budget=8)
    stays, goes = Case(82, 20, 5), Case(83, 30, 5, late=2)
    lm.add(goes.prompt())
    lm.add(stays.prompt(talker := stays.talker()))
    for _ in range(after):
        step(lm)
    lm.drop(goes.utterance)
    lm.drop(goes.utterance)
    assert goes.utterance not in lm.usage
    finish(lm)
    assert same(talker, stays)
    assert not lm.pool.used


def test_what_can_never_fit_is_refused() -> None:
    lm = stage(pages=5, page_size=8)
    with pytest.raises(PromptTooLong, match="33 positions; the KV cache holds 32"):
        lm.add(Case(84, 25, 8).prompt())
    lm.add(Case(85, 24, 8).prompt())
    assert len(lm) == 1
    assert max(ids(500)) < VOCAB
