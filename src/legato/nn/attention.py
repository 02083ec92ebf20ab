"""Attention over a paged KV cache, for packed spans of any sequences. One interface, three backends.

    tiled              every position by itself over whole key tiles, in products whose shape depends on the position
                       alone: its result does not depend on what shares the step or on how the prompt was cut into
                       spans (bit for bit). The CPU default.
    sdpa               torch's scaled_dot_product_attention, span by span. Runs everywhere.
    flash_attention_2  one variable-length kernel call for the whole step (package flash-attn, CUDA).

A span is `length` consecutive positions of one sequence. Nothing is padded and nothing masked is ever attended to.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

TILE_KEYS = 256
"""Keys per tile of the `tiled` backend."""

ALIGNMENT_BYTES = 64
"""Of torch's own tensors; kernels may sum in another order from an odd address on."""

BACKENDS = ("tiled", "sdpa", "flash_attention_2")


@dataclass(frozen=True)
class KVShape:
    """What a model keeps per position: `layers` × 2 × `kv_heads` × `head_dim` numbers of `dtype` on `device`, and
    `relay_width` more for a model that relays a row of every position to another one."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    relay_width: int = 0

    @property
    def bytes_per_position(self) -> int:
        return (2 * self.layers * self.kv_heads * self.head_dim + self.relay_width) * self.dtype.itemsize


class PagedKV:
    """Keys and values of every layer, [slots, 2 kv_heads, head_dim], keys first; page p owns slots from p · size on.

    Relayed rows, [slots, relay_width], lie beside them, so that a shared prefix brings its rows along.
    Page 0 is nobody's: rows that only fill a tile write there. One tile of spare slots follows the last page, so that
    whole tiles can be read from any page on.
    """

    def __init__(self, pages: int, page_size: int, shape: KVShape) -> None:
        self.page_size = page_size
        self.tile = -(-TILE_KEYS // page_size) * page_size
        self.kv_heads = shape.kv_heads
        size = (pages * page_size + self.tile, 2 * shape.kv_heads, shape.head_dim)
        self.layers = [_zeros(size, shape) for _ in range(shape.layers)]
        self.relayed = _zeros((size[0], shape.relay_width), shape)
        future = torch.ones(self.tile, self.tile, dtype=torch.bool, device=shape.device).triu(1)
        self._causal = torch.zeros(self.tile, 1, 1, self.tile, dtype=shape.dtype, device=shape.device)
        self._causal.masked_fill_(future[:, None, None], float("-inf"))

    def bias(self, start: int, length: int) -> Tensor:
        """Added to scores: 0 where positions [start, start + length), of one tile, may look; −inf where they may not.

        The result is [length, 1, 1, keys], for all keys up to the end of their tile.
        """
        before, first = start // self.tile * self.tile, start % self.tile
        rows = self._causal[first : first + length]
        return torch.cat([rows.new_zeros(length, 1, 1, before), rows], -1) if before else rows

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Store keys and values [R, 2 kv_heads, head_dim] at slots [R]."""
        self.layers[layer].index_copy_(0, slots, kv)

    def read(self, layer: int, slots: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [K, kv_heads, head_dim] each."""
        both = self.layers[layer][slots]
        return both[:, : self.kv_heads], both[:, self.kv_heads :]


def _zeros(size: tuple[int, ...], shape: KVShape) -> Tensor:
    """Zeros that take no memory on a CPU until they are written, where torch's own would be written at once."""
    length = math.prod(size) * shape.dtype.itemsize
    if shape.device.type != "cpu" or not length:
        return torch.zeros(size, dtype=shape.dtype, device=shape.device)
    buffer = np.zeros(length + ALIGNMENT_BYTES, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT_BYTES
    return torch.from_numpy(buffer[start : start + length]).view(shape.dtype).view(size)


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
    """What one step's forward needs to know about positions and memory; made anew for every step.

    `positions` are [R], or [axes, R] for a model that places its ids on several axes. `slots` [R] are their places in
    the cache.
    """

    positions: Tensor
    slots: Tensor

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """Write kv [R, 2 kv_heads, head_dim] and return attention of q [R, heads, head_dim] over all that is causal.

        The result is [R, heads × head_dim]. Rows that belong to no span come back as zeros.
        """


class _Step:
    """What all backends share: positions, slots and where each sequence's keys lie."""

    def __init__(self, cache: PagedKV, spans: Seq[Span], rows: int, places: Tensor | None = None) -> None:
        self.cache, self.spans = cache, spans
        size = cache.page_size
        positions, slots = [0] * rows, [0] * rows
        for span in spans:
            for offset in range(span.length):
                at = span.start + offset
                positions[span.row + offset] = at
                slots[span.row + offset] = span.pages[at // size] * size + at % size
        device = cache.layers[0].device
        at, self.slots = torch.tensor([positions, slots], device=device)
        self.positions = at if places is None else places.to(device)

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
    """Position by position, over whole key tiles: the shape of every product depends on the position alone.

    A span is cut where a position needs one tile more; within such a part all positions see the same number of keys.
    """

    def __init__(self, cache: PagedKV, spans: Seq[Span], rows: int, places: Tensor | None = None) -> None:
        super().__init__(cache, spans, rows, places)
        self._parts = [
            _Part(part, self._where(part, _tiles(part, cache.tile) * cache.tile)) for part in self._cut(spans)
        ]
        self._bias = [cache.bias(part.span.start, part.span.length) for part in self._parts]
        filled = sum(span.length for span in spans)
        self._fill = rows - filled

    def _cut(self, spans: Seq[Span]) -> list[Span]:
        """Parts of spans that lie within one key tile each."""
        parts, tile = [], self.cache.tile
        for span in spans:
            at = span.start
            while at < span.stop:
                stop = min(span.stop, (at // tile + 1) * tile)
                parts.append(Span(span.row + at - span.start, at, stop - at, span.pages))
                at = stop
        return parts

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        self.cache.write(layer, self.slots, kv)
        rows, heads, head_dim = q.shape
        grouped = q.reshape(rows, self.cache.kv_heads, -1, head_dim)
        mixed = [
            _attend(grouped[p.span.row : p.span.row + p.span.length], *self.cache.read(layer, p.slots), bias)
            for p, bias in zip(self._parts, self._bias, strict=True)
        ]
        if self._fill:
            mixed.append(grouped.new_zeros(self._fill, *grouped.shape[1:]))
        return torch.cat(mixed).view(rows, -1)


@dataclass(frozen=True)
class _Part:
    """A span within one key tile, and where its keys lie."""

    span: Span
    slots: slice | Tensor


def _tiles(span: Span, tile: int) -> int:
    return -(-span.stop // tile)


def _attend(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Positions as a batch: q [n, kv_heads, group, head_dim] over keys, values [K, kv_heads, head_dim].

    The kernel works on one position and one kv head at a time, so its shape is [group, K] whatever n is.
    """
    keys, values = (t.transpose(0, 1).expand(q.shape[0], -1, -1, -1) for t in (keys, values))
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)


class SdpaAttention(_Step):
    """Span by span with torch's own kernel; results may differ in the last bits with the shape of the step."""

    def __init__(self, cache: PagedKV, spans: Seq[Span], rows: int, places: Tensor | None = None) -> None:
        super().__init__(cache, spans, rows, places)
        size = cache.page_size
        self._at = [self._where(span, -(-span.stop // size) * size) for span in spans]
        self._masks = [self._causal(span) for span in spans]

    def _causal(self, span: Span) -> Tensor | None:
        if span.length == 1:
            return None
        at = torch.arange(span.start, span.stop, device=self.slots.device)
        return torch.arange(span.stop, device=at.device)[None] <= at[:, None]

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        self.cache.write(layer, self.slots, kv)
        rows, heads, _ = q.shape
        out = torch.zeros_like(q)
        for span, at, mask in zip(self.spans, self._at, self._masks, strict=True):
            here = slice(span.row, span.row + span.length)
            keys, values = (t[: span.stop].transpose(0, 1)[None] for t in self.cache.read(layer, at))
            mixed = F.scaled_dot_product_attention(
                q[here].transpose(0, 1)[None], keys, values, attn_mask=mask, enable_gqa=self.cache.kv_heads != heads
            )
            out[here] = mixed[0].transpose(0, 1)
        return out.view(rows, -1)


class FlashAttention2(_Step):
    """One varlen call of flash-attn (Dao 2023, arXiv:2307.08691) over the step's keys, gathered from their pages."""

    def __init__(self, cache: PagedKV, spans: Seq[Span], rows: int, places: Tensor | None = None) -> None:
        super().__init__(cache, spans, rows, places)
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

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        self.cache.write(layer, self.slots, kv)
        keys, values = (t.contiguous() for t in self.cache.read(layer, self._keys_at))
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
        reason = (
            "" if wanted in ("auto", "tiled") else f"batch_invariant needs the tiled kernel, so {wanted} is not used"
        )
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


def attention_step(
    backend: str, cache: PagedKV, spans: Seq[Span], rows: int, places: Tensor | None = None
) -> AttentionInput:
    """The AttentionInput of one step for the named backend. `places` [axes, R] are positions of the model's own."""
    kinds: dict[str, type[TiledAttention | SdpaAttention | FlashAttention2]] = {
        "tiled": TiledAttention,
        "sdpa": SdpaAttention,
        "flash_attention_2": FlashAttention2,
    }
    return kinds[backend](cache, spans, rows, places)
