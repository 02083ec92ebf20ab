"""Runner: one forward pass over the spans of a step, and logits for the spans that reach their end."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from legato.nn.attention import PagedKV, Span, attention_step
from legato.protocols import Place, RelayLM, SpeechLM

from .sequence import Scheduled, Sequence


class Runner:
    """Packs spans into rows and runs the model. Holds the cache, and no state of any request."""

    def __init__(self, lm: SpeechLM, cache: PagedKV, backend: str) -> None:
        self.lm, self.cache, self.backend = lm, cache, backend
        self.row_tile = max(1, lm.row_tile)
        self._device = cache.layers[0].device
        self._relays = lm if isinstance(lm, RelayLM) else None

    @torch.inference_mode()
    def run(self, batch: Seq[Scheduled]) -> dict[int, Tensor]:
        """Logits by index into the batch, for the spans that sample: [1 + drafts, V] each."""
        spans, rows = self._spans(batch)
        ids = [i for s in batch for i in (*s.sequence.ids[s.start : s.start + s.length], *s.drafts)]
        ids += [0] * (rows - len(ids))
        inputs = torch.tensor(ids, device=self._device)
        embedded = self.lm.embed(inputs, self._vectors(batch, rows))
        attention = attention_step(self.backend, self.cache, spans, rows, self._places(batch, rows))
        hidden = self.lm.forward(embedded, attention)
        if self._relays is not None:
            self.cache.relayed.index_copy_(0, attention.slots, self._relays.relay(inputs, embedded, hidden))
        wanted = {
            i: range(spans[i].row + s.length - 1, spans[i].row + s.rows) for i, s in enumerate(batch) if s.samples
        }
        if not wanted:
            return {}
        used = [row for rows_of_one in wanted.values() for row in rows_of_one]
        logits = self.lm.logits(hidden if used == list(range(len(used))) else hidden[self._padded(used)])
        pieces = logits[: len(used)].split([len(rows_of_one) for rows_of_one in wanted.values()])
        return dict(zip(wanted, pieces, strict=True))

    def _spans(self, batch: Seq[Scheduled]) -> tuple[list[Span], int]:
        spans, row = [], 0
        for scheduled in batch:
            spans.append(Span(row, scheduled.start, scheduled.rows, scheduled.sequence.pages))
            row += scheduled.rows
        return spans, -(-row // self.row_tile) * self.row_tile

    def _padded(self, rows: list[int]) -> list[int]:
        """Whole tiles of rows; the fill is computed and thrown away."""
        return rows + [rows[0]] * (-len(rows) % self.row_tile)

    def relayed(self, sequence: Sequence, start: int, stop: int) -> Tensor:
        """What the model left for positions [start, stop) of a sequence, [stop - start, relay_width]; a copy."""
        size = self.cache.page_size
        slots = [sequence.pages[at // size] * size + at % size for at in range(start, stop)]
        return self.cache.relayed[torch.tensor(slots, device=self._device)]

    def _places(self, batch: Seq[Scheduled], rows: int) -> Tensor | None:
        """Positions [axes, rows] on the model's own axes; None when it has but one."""
        axes = next((len(s.sequence.places[0]) for s in batch if s.sequence.places), 0)
        if not axes:
            return None
        places: list[Place] = []
        for s in batch:
            known = s.sequence.places or [(at,) * axes for at in range(s.start + s.length)]
            places += known[s.start : s.start + s.length]
        places += [places[-1]] * (rows - len(places))
        return torch.tensor(places, device=self._device).t()

    def _vectors(self, batch: Seq[Scheduled], rows: int) -> Tensor | None:
        """The host's vectors for these rows; zeros where there are none."""
        known = [((s.sequence.vectors or [])[s.start : s.start + s.length], s) for s in batch]
        first = next((vector for vectors, _ in known for vector in vectors if vector is not None), None)
        if first is None:
            return None
        stacked = first.new_zeros(rows, len(first))
        nothing, row = stacked[0].clone(), 0
        for vectors, scheduled in known:
            if vectors:
                stacked[row : row + scheduled.length] = torch.stack([nothing if v is None else v for v in vectors])
            row += scheduled.rows
        return stacked
