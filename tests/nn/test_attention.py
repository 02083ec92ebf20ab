"""Paged attention apart from a model: what lies around a sequence's pages does not matter; which backend is chosen."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from legato.nn.attention import TILE_KEYS, KVShape, PagedKV, Span, attention_step, choose_backend

CPU = torch.device("cpu")
SHAPE = KVShape(layers=1, kv_heads=2, head_dim=8, dtype=torch.float32, device=CPU)
SIZE = 4


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attend(cache: PagedKV, pages: list[int], length: int, backend: str = "tiled", fill: int = 2) -> torch.Tensor:
    """All positions of one sequence in one span, and rows that only fill a tile."""
    rows = length + fill
    q, kv = randn(rows, 4, 8, seed=1), randn(rows, 4, 8, seed=2)
    return attention_step(backend, cache, [Span(0, 0, length, pages)], rows).attend(0, q, kv)


def plain(length: int) -> torch.Tensor:
    q, kv = randn(length + 2, 4, 8, seed=1)[:length], randn(length + 2, 4, 8, seed=2)[:length]
    keys, values = (t.repeat_interleave(2, 1).transpose(0, 1) for t in kv.split(2, 1))
    return F.scaled_dot_product_attention(q.transpose(0, 1), keys, values, is_causal=True).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("backend", ["tiled", "sdpa"])
@pytest.mark.parametrize("length", [1, 4, 9, TILE_KEYS + 3])
def test_is_causal_attention(backend: str, length: int) -> None:
    pages = [*range(1, 3 + length // SIZE)]
    out = attend(PagedKV(200, SIZE, SHAPE), pages, length, backend)
    torch.testing.assert_close(out[:length], plain(length), rtol=1e-5, atol=1e-6)
    assert not out[length:].any()


@pytest.mark.parametrize("backend", ["tiled", "sdpa"])
def test_other_pages_do_not_matter(backend: str) -> None:
    """In a row or scattered, in an empty cache or one full of others' large values: the same bits."""
    clean, full = PagedKV(30, SIZE, SHAPE), PagedKV(30, SIZE, SHAPE)
    full.layers[0].copy_(1e4 * randn(*full.layers[0].shape, seed=7))
    expected = attend(clean, [1, 2, 3], 10, backend)
    for cache, pages in ((full, [1, 2, 3]), (full, [27, 28, 29]), (full, [9, 4, 20]), (clean, [3, 2, 1])):
        assert torch.equal(attend(cache, pages, 10, backend), expected)


def test_fill_is_written_to_the_page_of_nobody() -> None:
    cache = PagedKV(5, SIZE, SHAPE)
    attend(cache, [2], 3, fill=5)
    written = cache.layers[0].abs().sum((1, 2)) > 0
    assert written.nonzero().flatten().tolist() == [0, 8, 9, 10]


@pytest.mark.parametrize(
    ("wanted", "device", "dtype", "invariant", "kernel", "note"),
    [
        ("auto", "cpu", torch.float32, True, "tiled", ""),
        ("tiled", "cpu", torch.float32, True, "tiled", ""),
        ("sdpa", "cpu", torch.float32, True, "tiled", "batch_invariant needs the tiled kernel, so sdpa is not used"),
        ("auto", "cpu", torch.float32, False, "sdpa", ""),
        ("tiled", "cpu", torch.float32, False, "tiled", ""),
        ("sdpa", "cuda", torch.bfloat16, False, "sdpa", ""),
        ("flash_attention_2", "cpu", torch.bfloat16, False, "sdpa", "the device is cpu, not cuda"),
        ("flash_attention_2", "cuda", torch.float32, False, "sdpa", "it needs float16 or bfloat16, not torch.float32"),
    ],
)
def test_choice_of_backend(
    wanted: str, device: str, dtype: torch.dtype, invariant: bool, kernel: str, note: str
) -> None:
    chosen, reason = choose_backend(wanted, torch.device(device), dtype, invariant)
    assert chosen == kernel
    assert note in reason and bool(note) == bool(reason)
