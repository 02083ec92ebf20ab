"""Sampling against formulas written here, and the draws that a request's own generator gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq

import pytest
import torch
from torch import Tensor

from legato.lm.sampler import sample
from legato.types import Sampling

VOCAB = 8
LOGITS = torch.tensor([0.3, 2.0, -1.0, 1.4, 0.0, -3.0, 1.9, 0.7])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def penalized(logits: Tensor, seen: Seq[int], penalty: float) -> Tensor:
    scores = logits.clone()
    for i in set(seen):
        scores[i] = scores[i] / penalty if scores[i] > 0 else scores[i] * penalty
    return scores


def distribution(logits: Tensor, sampling: Sampling, seen: Seq[int] = ()) -> Tensor:
    """What transformers' logits processors and warpers leave, in their order: penalty, temperature, top k, top p."""
    scores = penalized(logits, seen, sampling.repetition_penalty) / sampling.temperature
    if sampling.top_k:
        least = scores.sort(descending=True).values[min(sampling.top_k, len(scores)) - 1]
        scores = scores.masked_fill(scores < least, float("-inf"))
    if sampling.top_p < 1:
        ascending, order = scores.sort()
        removed = ascending.softmax(-1).cumsum(-1) <= 1 - sampling.top_p
        removed[-1] = False
        scores[order[removed]] = float("-inf")
    return scores.softmax(-1)


SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(top_k=3),
    Sampling(top_k=99),
    Sampling(top_p=0.6),
    Sampling(temperature=1.7, top_k=5, top_p=0.9, repetition_penalty=1.3),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_draws_follow_the_distribution(sampling: Sampling) -> None:
    """Pearson's statistic of 3,000 draws stays below its 0.999 quantile; the seed is fixed, so it does so always."""
    draws, generator, seen = 3000, seeded(3), [1, 4, 4]
    expected = draws * distribution(LOGITS, sampling, seen)
    counts = Counter(sample(LOGITS.clone(), sampling, seen, generator) for _ in range(draws))
    possible = [i for i in range(VOCAB) if expected[i] > 0]
    assert set(counts) <= set(possible)
    statistic = sum(float((counts[i] - expected[i]) ** 2 / expected[i]) for i in possible)
    assert statistic < {1: 10.8, 2: 13.8, 3: 16.3, 4: 18.5, 5: 20.5, 6: 22.5, 7: 24.3}[len(possible) - 1]


def test_every_kept_id_can_come() -> None:
    sampling = Sampling(temperature=5, top_k=4)
    drawn = {sample(LOGITS.clone(), sampling, (), generator) for generator in map(seeded, range(60))}
    assert drawn == set(LOGITS.topk(4).indices.tolist())


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_greedy_takes_the_best_and_draws_nothing(temperature: float) -> None:
    generator = seeded(1)
    before = generator.get_state()
    assert sample(LOGITS.clone(), Sampling(temperature=temperature, top_k=3, ras_window=10), (), generator) == 1
    assert torch.equal(generator.get_state(), before)


def test_greedy_after_the_penalty() -> None:
    """1 and 6 are the best but were said; 1.4 beats 2.0 / 1.5."""
    assert sample(LOGITS.clone(), Sampling(temperature=0, repetition_penalty=1.5), (1, 6, 1), seeded(0)) == 3


@pytest.mark.parametrize("penalty", [0.8, 1.2, 3.0])
def test_penalty_is_applied_once_per_id(penalty: float) -> None:
    logits, seen = LOGITS.clone(), [1, 2, 2, 2, 4]
    sample(logits, Sampling(temperature=0, repetition_penalty=penalty), seen, seeded(0))
    assert torch.equal(logits, penalized(LOGITS, seen, penalty))


@pytest.mark.parametrize("sampling", [Sampling(top_k=1), Sampling(top_p=0.0), Sampling(top_p=0.01, temperature=3)])
def test_the_best_id_is_always_kept(sampling: Sampling) -> None:
    assert {sample(LOGITS.clone(), sampling, (), seeded(i)) for i in range(20)} == {1}


@pytest.mark.parametrize("sampling", [*SAMPLINGS, Sampling(ras_window=4, top_p=0.8)])
def test_draws_belong_to_the_request(sampling: Sampling) -> None:
    """What others draw in between, and torch's global generator, change nothing."""
    rows = torch.randn(30, VOCAB, generator=seeded(9))

    def run(seed: int, others: int) -> list[int]:
        generator = seeded(seed)
        drawn: list[int] = []
        for row in rows:
            drawn.append(sample(row.clone(), sampling, drawn, generator))
            for _ in range(others):
                sample(row.clone(), sampling, (), seeded(99))
                torch.rand(1)
        return drawn

    assert run(5, others=0) == run(5, others=2)
    assert run(5, others=0) != run(6, others=0)


def ras_reference(logits: Tensor, drawn: Seq[int], sampling: Sampling, generator: torch.Generator) -> tuple[int, bool]:
    """GLM-TTS and CosyVoice: a nucleus draw, not renormalised, else a draw from everything; and whether it was that."""
    probabilities = (logits / sampling.temperature).softmax(-1)
    ranked, order = probabilities.sort(descending=True, stable=True)
    kept: list[Tensor] = []
    ids, reached = [], 0.0
    for probability, i in zip(ranked, order, strict=True):
        if reached < sampling.top_p and len(kept) < sampling.top_k:
            reached += float(probability)
            kept.append(probability)
            ids.append(int(i))
        else:
            break
    choice = ids[torch.stack(kept).multinomial(1, replacement=True, generator=generator)]
    if list(drawn[-sampling.ras_window :]).count(choice) >= sampling.ras_window * sampling.ras_threshold:
        return int(probabilities.multinomial(1, replacement=True, generator=generator)), True
    return choice, False


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_p=0.8, top_k=25, ras_window=10, ras_threshold=0.1),
        Sampling(top_p=0.95, top_k=4, ras_window=6, ras_threshold=0.5, temperature=0.7),
        Sampling(top_p=0.5, top_k=25, ras_window=3, ras_threshold=1.0),
    ],
)
def test_repetition_aware_draw_by_draw(sampling: Sampling) -> None:
    """The same ids from the same draws: after every one the generators are in the same state."""
    ours, theirs, again = seeded(4), seeded(4), 0
    drawn: list[int] = []
    base = 2 * torch.randn(40, generator=seeded(8))
    for row in base + torch.randn(300, 40, generator=seeded(7)):
        expected, from_all = ras_reference(row, drawn, sampling, theirs)
        assert sample(row.clone(), sampling, drawn, ours) == expected
        assert torch.equal(ours.get_state(), theirs.get_state())
        drawn.append(expected)
        again += from_all
    assert 5 < again < 280


def test_one_hit_in_ten_is_a_repetition() -> None:
    """With window 10 and threshold 0.1, an id seen once within the last ten is drawn again, an older one is not."""
    sampling = Sampling(top_p=0.1, ras_window=10, ras_threshold=0.1)
    peaked = torch.zeros(VOCAB)
    peaked[3] = 1.0
    recent, old = [3, *[0] * 9], [3, *[0] * 10]
    assert {sample(peaked.clone(), sampling, old, seeded(i)) for i in range(30)} == {3}
    assert len({sample(peaked.clone(), sampling, recent, seeded(i)) for i in range(30)}) > 3
