"""Runner: one forward pass over the spans of a step, and one sampled id per span that reaches its end."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from legato.nn.attention import PagedKV, Span, attention_step
from legato.protocols import SpeechLM

from .sampler import sample
from .sequence import Scheduled


class Runner:
    """Packs spans into rows, runs the model, samples. Holds the cache, and no state of any request."""

    def __init__(self, lm: SpeechLM, cache: PagedKV, backend: str) -> None:
        self.lm, self.cache, self.backend = lm, cache, backend
        self.row_tile = max(1, lm.row_tile)
        self._device = cache.keys[0].device

    @torch.inference_mode()
    def run(self, batch: Seq[Scheduled]) -> dict[int, int]:
        """Sampled id by index into the batch, for the spans that sample."""
        spans, rows = self._spans(batch)
        ids = [i for s in batch for i in s.sequence.ids[s.start : s.start + s.length]]
        ids += [0] * (rows - len(ids))
        embedded = self.lm.embed(torch.tensor(ids, device=self._device), self._vectors(batch, rows))
        hidden = self.lm.forward(embedded, attention_step(self.backend, self.cache, spans, rows))
        ends = {i: span.row + span.length - 1 for i, span in enumerate(spans) if batch[i].samples}
        if not ends:
            return {}
        logits = self.lm.logits(hidden[self._padded(list(ends.values()))])
        return {i: self._sample(batch[i], row) for i, row in zip(ends, logits, strict=False)}

    def _spans(self, batch: Seq[Scheduled]) -> tuple[list[Span], int]:
        spans, row = [], 0
        for scheduled in batch:
            spans.append(Span(row, scheduled.start, scheduled.length, scheduled.sequence.pages))
            row += scheduled.length
        return spans, -(-row // self.row_tile) * self.row_tile

    def _padded(self, rows: list[int]) -> list[int]:
        """Whole tiles of rows; the fill is computed and thrown away."""
        return rows + [rows[0]] * (-len(rows) % self.row_tile)

    def _vectors(self, batch: Seq[Scheduled], rows: int) -> Tensor | None:
        """The host's vectors for these rows; zeros for sequences without."""
        known = [(s.sequence.vectors, s) for s in batch]
        first = next((v[s.start] for v, s in known if v is not None), None)
        if first is None:
            return None
        stacked = first.new_zeros(rows, len(first))
        row = 0
        for vectors, scheduled in known:
            if vectors is not None:
                stop = scheduled.start + scheduled.length
                stacked[row : row + scheduled.length] = torch.stack(vectors[scheduled.start : stop])
            row += scheduled.length
        return stacked

    @staticmethod
    def _sample(scheduled: Scheduled, logits: Tensor) -> int:
        sequence = scheduled.sequence
        constrained = sequence.prompt.continuation.constrain(logits)
        penalty = sequence.prompt.sampling.repetition_penalty
        seen = sequence.sampled if penalty != 1.0 else ()
        return sample(constrained, sequence.prompt.sampling, seen, sequence.sampled, sequence.generator)
