"""Sampling of one id from one row of logits, with the request's own generator."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor

from legato.types import Sampling

LEAST_TOP_P = 1e-9
"""The most likely id is always kept."""


def sample(logits: Tensor, sampling: Sampling, drawn: Seq[int], generator: torch.Generator) -> int:
    """Draw an id from float32 logits [V], which may be written into. `drawn` are the ids so far, oldest first."""
    if sampling.repetition_penalty != 1.0 and drawn:
        penalize(logits, drawn, sampling.repetition_penalty)
    if sampling.temperature <= 0:
        return int(logits.argmax())
    scaled = logits / sampling.temperature
    if sampling.ras_window:
        return _repetition_aware(scaled, sampling, drawn, generator)
    if not sampling.top_k and sampling.top_p >= 1.0:
        return _draw(scaled.softmax(-1), generator)
    kept = min(sampling.top_k or len(scaled), len(scaled))
    values, ids = scaled.topk(kept)
    probabilities = values.softmax(-1)
    if sampling.top_p < 1.0:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities * (before < max(sampling.top_p, LEAST_TOP_P))
    return int(ids[_draw(probabilities, generator)])


def penalize(logits: Tensor, seen: Seq[int], penalty: float) -> None:
    """Repetition penalty in place: logits of seen ids shrink towards less likely."""
    ids = torch.tensor(sorted(set(seen)), device=logits.device)
    scores = logits[ids]
    logits[ids] = torch.where(scores > 0, scores / penalty, scores * penalty)


def _repetition_aware(scaled: Tensor, sampling: Sampling, drawn: Seq[int], generator: torch.Generator) -> int:
    """Nucleus draw; if its id fills too much of the recent window, a draw from the whole distribution instead.

    The nucleus is cut from the full distribution: ids are kept while the probability before them is below `top_p` and
    their rank below `top_k` (the id that crosses `top_p` is kept). Probabilities are added up in float32, one by one.
    """
    probabilities = scaled.softmax(-1)
    ranked, ids = _ranked(probabilities, sampling.top_k)
    sums = np.add.accumulate(ranked.cpu().numpy())
    kept = 1 + int((sums[:-1] < np.float32(sampling.top_p)).sum())
    choice = int(ids[_draw(ranked[:kept], generator)])
    recent = drawn[-sampling.ras_window :]
    if recent.count(choice) >= sampling.ras_window * sampling.ras_threshold:
        return _draw(probabilities, generator)
    return choice


def _ranked(probabilities: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """The `top_k` largest (0: all) and their ids, largest first; of equal ones the lower id first.

    Only those no smaller than the k-th are sorted: seventeen times faster for 98304 ids on a CPU.
    """
    if not top_k or top_k >= len(probabilities):
        ranked, ids = probabilities.sort(descending=True, stable=True)
        return ranked, ids
    least = probabilities.topk(top_k).values[-1]
    candidates = (probabilities >= least).nonzero()[:, 0]
    ranked, order = probabilities[candidates].sort(descending=True, stable=True)
    return ranked[:top_k], candidates[order][:top_k]


def _draw(weights: Tensor, generator: torch.Generator) -> int:
    """An index drawn in proportion to weights [n], on the generator's device: a seed means the same on any."""
    return int(torch.multinomial(weights.to(generator.device), 1, generator=generator))
