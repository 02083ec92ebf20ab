"""MediaStage: stretches of sound and pictures in, rows for an open prompt out.

Blocks of any requests are encoded in one call. What was encoded is kept by the hash of its content, the oldest
forgotten first, so a conversation's earlier turns cost nothing again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from legato.conversation import MediaBlock, MediaEncoder
from legato.types import UtteranceId


@dataclass(frozen=True, eq=False)
class Encoded:
    """The features [n, D] of a block that an utterance waits for."""

    utterance: UtteranceId
    block: MediaBlock
    features: Tensor


class MediaStage:
    """At most `max_weight` of blocks share a call, or one block that is larger. `cache_bytes` of features are kept."""

    def __init__(self, encoder: MediaEncoder, max_weight: int, cache_bytes: int) -> None:
        self.encoder, self.max_weight, self.cache_bytes = encoder, max_weight, cache_bytes
        self.cached_bytes = 0
        self._cache: OrderedDict[str, Tensor] = OrderedDict()
        self._waiting: dict[UtteranceId, list[MediaBlock]] = {}

    def add(self, item: tuple[UtteranceId, Seq[MediaBlock]]) -> None:
        utterance, blocks = item
        if blocks:
            self._waiting.setdefault(utterance, []).extend(blocks)

    def ready(self) -> list[UtteranceId]:
        return list(self._waiting)

    def plan(self, order: Seq[UtteranceId]) -> list[tuple[UtteranceId, MediaBlock]] | None:
        """Blocks of the most urgent utterances, in their order; those that are in the cache weigh nothing."""
        taken: list[tuple[UtteranceId, MediaBlock]] = []
        keys: set[str] = set()
        room = self.max_weight
        for utterance in order:
            for block in self._waiting.get(utterance, ()):
                weight = 0 if block.key in self._cache or block.key in keys else block.weight
                if weight > room and keys:
                    return taken
                room -= weight
                if weight:
                    keys.add(block.key)
                taken.append((utterance, block))
        return taken or None

    @torch.inference_mode()
    def run(self, batch: Seq[tuple[UtteranceId, MediaBlock]]) -> dict[str, Tensor]:
        """Features by key, of blocks that are not known yet."""
        fresh = {block.key: block for _, block in batch if block.key not in self._cache}
        return dict(zip(fresh, self.encoder.encode(list(fresh.values())), strict=True)) if fresh else {}

    def commit(self, batch: Seq[tuple[UtteranceId, MediaBlock]], result: dict[str, Tensor]) -> list[Encoded]:
        known = {**{b.key: self._cache[b.key] for _, b in batch if b.key in self._cache}, **result}
        for utterance, block in batch:
            self._waiting[utterance].remove(block)
            if not self._waiting[utterance]:
                del self._waiting[utterance]
        for key, features in result.items():
            self._keep(key, features)
        return [Encoded(utterance, block, known[block.key]) for utterance, block in batch]

    def recall(self, key: str) -> Tensor | None:
        """The features of a block that was encoded before, if they are still kept."""
        if key not in self._cache:
            return None
        self._cache.move_to_end(key)
        return self._cache[key]

    def _keep(self, key: str, features: Tensor) -> None:
        self._cache[key] = features
        self.cached_bytes += features.nbytes
        while self.cached_bytes > self.cache_bytes:
            _, oldest = self._cache.popitem(last=False)
            self.cached_bytes -= oldest.nbytes

    def drop(self, utterance: UtteranceId) -> None:
        self._waiting.pop(utterance, None)

    def __len__(self) -> int:
        return len(self._waiting)
