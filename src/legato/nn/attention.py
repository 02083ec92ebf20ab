"""Attention over a paged KV cache, for packed spans of any sequences. One interface, three backends.

    tiled              every position by itself over key tiles of one fixed size: its result does not depend on what
                       shares the step or on how the prompt was cut into spans (bit for bit). The CPU default.
    sdpa               torch's scaled_dot_product_attention, span by span. Runs everywhere.
    flash_attention_2  one variable-length kernel call for the whole step (package flash-attn, CUDA).

A span is `length` consecutive positions of one sequence. Nothing is padded and nothing masked is ever attended to.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

TILE_KEYS = 512
"""Keys per tile of the `tiled` backend: one tile up to that many positions, so that short sequences stay cheap."""

BACKENDS = ("tiled", "sdpa", "flash_attention_2")


@dataclass(frozen=True)
class KVShape:
    """What a model keeps per position: `layers` × 2 × `kv_heads` × `head_dim` numbers of `dtype` on `device`."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_position(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class PagedKV:
    """Keys and values of every layer, [slots, kv_heads, head_dim] each; page p owns slots [p·size, (p+1)·size).

    Page 0 is nobody's: rows that only fill a tile write there. One tile of spare slots follows the last page, so that
    whole tiles can be read from any page on.
    """

    def __init__(self, pages: int, page_size: int, shape: KVShape) -> None:
        self.page_size = page_size
        self.tile = -(-TILE_KEYS // page_size) * page_size
        size = (pages * page_size + self.tile, shape.kv_heads, shape.head_dim)
        self.keys = [torch.zeros(size, dtype=shape.dtype, device=shape.device) for _ in range(shape.layers)]
        self.values = [torch.zeros(size, dtype=shape.dtype, device=shape.device) for _ in range(shape.layers)]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Store k, v [R, kv_heads, head_dim] at slots [R]."""
        self.keys[layer].index_copy_(0, slots, k)
        self.values[layer].index_copy_(0, slots, v)


@dataclass(frozen=True)
class Span:
    """Rows [row, row + length) are positions [start, start + length) of the sequence that owns `pages`."""

    row: int
    start: int
    length: int
    pages: Seq[int]

    @property
    def stop(self) -> int:
        return self.start + self.length


class AttentionInput(Protocol):
    """What one step's forward needs to know about positions and memory; made anew for every step."""

    positions: Tensor

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k, v [R, kv_heads, head_dim] and return attention of q [R, heads, head_dim] over all that is causal.

        The result is [R, heads × head_dim]. Rows that belong to no span come back as zeros.
        """


class _Step:
    """What all backends share: positions, slots and where each sequence's keys lie."""

    def __init__(self, cache: PagedKV, spans: Seq[Span], rows: int) -> None:
        self.cache, self.spans = cache, spans
        size = cache.page_size
        positions, slots = [0] * rows, [0] * rows
        for span in spans:
            for offset in range(span.length):
                at = span.start + offset
                positions[span.row + offset] = at
                slots[span.row + offset] = span.pages[at // size] * size + at % size
        device = cache.keys[0].device
        self.positions = torch.tensor(positions, device=device)
        self.slots = torch.tensor(slots, device=device)

    def _where(self, span: Span, slots: int) -> slice | Tensor:
        """The first `slots` slots of a span's sequence: a slice when its pages lie in a row, else an index.

        Both give the same strides, so both give the same bits.
        """
        size = self.cache.page_size
        used = -(-span.stop // size)
        first = span.pages[0]
        if all(page == first + i for i, page in enumerate(span.pages[:used])):
            return slice(first * size, first * size + slots)
        table = torch.tensor([*span.pages[:used], *[0] * (slots // size - used)], device=self.slots.device)
        return (table[:, None] * size + torch.arange(size, device=table.device)).flatten()


class TiledAttention(_Step):
    """Position by position, key tile by key tile, always in products of one shape."""

    def __init__(self, cache: PagedKV, spans: Seq[Span], rows: int) -> None:
        super().__init__(cache, spans, rows)
        tile = cache.tile
        self._tiles = [-(-span.stop // tile) for span in spans]
        self._at = [self._where(span, tiles * tile) for span, tiles in zip(spans, self._tiles, strict=True)]
        self._bias = [self._mask(span, tiles) for span, tiles in zip(spans, self._tiles, strict=True)]

    def _mask(self, span: Span, tiles: int) -> list[Tensor]:
        """Per tile: 0 where a position may look, −inf elsewhere, [length, 1, tile] each."""
        keys = torch.arange(tiles * self.cache.tile, device=self.slots.device)
        at = self.positions[span.row : span.row + span.length]
        bias = torch.zeros(span.length, 1, len(keys), device=keys.device).masked_fill_(
            (keys[None] > at[:, None])[:, None], float("-inf")
        )
        return list(bias.split(self.cache.tile, -1))

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.cache.write(layer, self.slots, k, v)
        rows, heads, head_dim = q.shape
        kv_heads = k.shape[1]
        q = (q * head_dim**-0.5).view(rows, kv_heads, heads // kv_heads, head_dim)
        out = torch.zeros_like(q)
        for span, at, tiles, bias in zip(self.spans, self._at, self._tiles, self._bias, strict=True):
            keys, values = self.cache.keys[layer][at], self.cache.values[layer][at]
            here = slice(span.row, span.row + span.length)
            if span.length == 1 and tiles == 1:
                out[span.row] = self._decode(q[span.row], keys, values, bias[0])
            else:
                self._prefill(q[here], keys, values, bias, out[here])
        return out.view(rows, heads * head_dim)

    @staticmethod
    def _decode(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """One position within the first tile: q [kv_heads, group, head_dim], all kv heads at once."""
        scores = torch.bmm(q, keys.permute(1, 2, 0)).add_(bias)
        weights = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
        return torch.bmm(weights, values.transpose(0, 1)).div_(weights.sum(-1, keepdim=True))

    def _prefill(self, q: Tensor, keys: Tensor, values: Tensor, bias: list[Tensor], out: Tensor) -> None:
        """Many positions or many tiles: q [length, kv_heads, group, head_dim]; the same products as `_decode`."""
        tile, length = self.cache.tile, q.shape[0]
        for head in range(q.shape[1]):
            key_tiles, value_tiles = keys[:, head].split(tile), values[:, head].split(tile)
            scores = [
                torch.bmm(q[:, head], key.t().expand(length, -1, -1)).add_(mask)
                for key, mask in zip(key_tiles, bias, strict=True)
            ]
            peak = torch.stack([s.amax(-1, keepdim=True) for s in scores]).amax(0)
            total: Tensor | None = None
            mixed: Tensor | None = None
            for score, value in zip(scores, value_tiles, strict=True):
                weights = score.sub_(peak).exp_()
                part, share = torch.bmm(weights, value.expand(length, -1, -1)), weights.sum(-1, keepdim=True)
                mixed, total = (part, share) if mixed is None or total is None else (mixed.add_(part), total.add_(share))
            assert mixed is not None and total is not None
            out[:, head] = mixed.div_(total)


class SdpaAttention(_Step):
    """Span by span with torch's own kernel; results may differ in the last bits with the shape of the step."""

    def __init__(self, cache: PagedKV, spans: Seq[Span], rows: int) -> None:
        super().__init__(cache, spans, rows)
        size = cache.page_size
        self._at = [self._where(span, -(-span.stop // size) * size) for span in spans]
        self._masks = [self._causal(span) for span in spans]

    def _causal(self, span: Span) -> Tensor | None:
        if span.length == 1:
            return None
        at = self.positions[span.row : span.row + span.length]
        return torch.arange(span.stop, device=at.device)[None] <= at[:, None]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.cache.write(layer, self.slots, k, v)
        rows, heads, head_dim = q.shape
        out = torch.zeros_like(q)
        for span, at, mask in zip(self.spans, self._at, self._masks, strict=True):
            here = slice(span.row, span.row + span.length)
            keys, values = (c[layer][at][: span.stop].transpose(0, 1)[None] for c in (self.cache.keys, self.cache.values))
            mixed = F.scaled_dot_product_attention(
                q[here].transpose(0, 1)[None], keys, values, attn_mask=mask, enable_gqa=k.shape[1] != heads
            )
            out[here] = mixed[0].transpose(0, 1)
        return out.view(rows, heads * head_dim)


class FlashAttention2(_Step):
    """One varlen call of flash-attn (Dao 2023, arXiv:2307.08691) over the step's keys, gathered from their pages."""

    def __init__(self, cache: PagedKV, spans: Seq[Span], rows: int) -> None:
        super().__init__(cache, spans, rows)
        from flash_attn import flash_attn_varlen_func

        self._kernel: Any = flash_attn_varlen_func
        size, device = cache.page_size, self.slots.device
        where = [s.pages[p // size] * size + p % size for s in spans for p in range(s.stop)]
        self._keys_at = torch.tensor(where, device=device)
        self._queries = sum(span.length for span in spans)
        self._cu_seqlens_q = self._cumulative([span.length for span in spans])
        self._cu_seqlens_k = self._cumulative([span.stop for span in spans])
        self._longest = max(span.length for span in spans), max(span.stop for span in spans)

    def _cumulative(self, lengths: list[int]) -> Tensor:
        return F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(self.slots.device, torch.int32)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.cache.write(layer, self.slots, k, v)
        keys, values = self.cache.keys[layer][self._keys_at], self.cache.values[layer][self._keys_at]
        out = torch.zeros_like(q)
        out[: self._queries] = self._kernel(
            q[: self._queries], keys, values, self._cu_seqlens_q, self._cu_seqlens_k, *self._longest, causal=True
        )
        return out.view(q.shape[0], -1)


def choose_backend(wanted: str, device: torch.device, dtype: torch.dtype, batch_invariant: bool) -> tuple[str, str]:
    """The backend to use and, when it is not the one wanted, why.

    `wanted` is "auto" or one of BACKENDS. Batch invariance needs `tiled`.
    """
    if batch_invariant:
        reason = "" if wanted in ("auto", "tiled") else f"batch_invariant needs the tiled kernel, so {wanted} is not used"
        return "tiled", reason
    if wanted == "tiled":
        return "tiled", ""
    if wanted in ("auto", "flash_attention_2"):
        missing = _flash_missing(device, dtype)
        if not missing:
            return "flash_attention_2", ""
        return "sdpa", "" if wanted == "auto" else f"flash_attention_2 is not available ({missing}); sdpa is used"
    return "sdpa", ""


def _flash_missing(device: torch.device, dtype: torch.dtype) -> str:
    if device.type != "cuda":
        return f"the device is {device.type}, not cuda"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it needs float16 or bfloat16, not {dtype}"
    if importlib.util.find_spec("flash_attn") is None:
        return "the package flash-attn is not installed"
    return ""


def attention_step(backend: str, cache: PagedKV, spans: Seq[Span], rows: int) -> AttentionInput:
    """The AttentionInput of one step for the named backend."""
    kinds: dict[str, type[TiledAttention | SdpaAttention | FlashAttention2]] = {
        "tiled": TiledAttention,
        "sdpa": SdpaAttention,
        "flash_attention_2": FlashAttention2,
    }
    return kinds[backend](cache, spans, rows)
