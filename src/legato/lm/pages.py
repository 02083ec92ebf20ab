"""PagePool: fixed pages of KV slots, counted references, shared prompt prefixes. Integers only.

Page 0 belongs to nobody: rows that only fill a tile write there. A page is either free, or held by `references > 0`
holders (sequences and the prefix cache).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b

SCRATCH_PAGE = 0

KEY_BYTES = 16
"""Of the digest that names a shared page: nobody can make another prompt of the same name."""


@dataclass
class PageCounters:
    """How much the pool has worked since it was made."""

    allocated: int = 0
    released: int = 0
    shared: int = 0
    evicted: int = 0
    preempted: int = 0
    peak: int = 0

    @property
    def operations(self) -> int:
        return self.allocated + self.released + self.shared + self.evicted


class PagePool:
    """`pages` pages of `page_size` slots each, page 0 included."""

    def __init__(self, pages: int, page_size: int) -> None:
        if pages < 2:
            raise ValueError(f"a pool needs at least 2 pages, not {pages}")
        self.page_size = page_size
        self.pages = pages
        self.references = [0] * pages
        self.references[SCRATCH_PAGE] = 1
        self.counters = PageCounters()
        self._free = pages - 1
        self._prefixes: OrderedDict[bytes, int] = OrderedDict()

    @property
    def free(self) -> int:
        return self._free

    @property
    def used(self) -> int:
        """Pages that are not free, the scratch page aside."""
        return self.pages - 1 - self._free

    @property
    def capacity_tokens(self) -> int:
        return (self.pages - 1) * self.page_size

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def extend(self, held: list[int], tokens: int) -> bool:
        """Grow `held` so that it covers `tokens` slots. All or nothing; False when pages run short.

        A sequence's pages are laid side by side where possible, so that its keys can be read without gathering.
        """
        missing = self.pages_for(tokens) - len(held)
        if missing <= 0:
            return True
        if not self._make_room(missing):
            return False
        for wanted in range(missing, 0, -1):
            page = self._pick(held[-1] if held else None, wanted)
            self.references[page] = 1
            self._free -= 1
            held.append(page)
        self.counters.allocated += missing
        self.counters.peak = max(self.counters.peak, self.used)
        return True

    def _make_room(self, missing: int) -> bool:
        """Forget prefixes that nobody uses, the oldest first, if that frees enough; otherwise keep them."""
        short = missing - self._free
        if short <= 0:
            return True
        idle = [key for key, page in self._prefixes.items() if self.references[page] == 1]
        if short > len(idle):
            return False
        for key in idle[:short]:
            self._evict(key)
        return True

    def _pick(self, last: int | None, wanted: int) -> int:
        """The page after `last` if it is free, else the first of `wanted` in the largest gap, with room to grow."""
        if last is not None and last + 1 < self.pages and not self.references[last + 1]:
            return last + 1
        start, length = self._largest_gap()
        grows_into = start > SCRATCH_PAGE + 1
        return start + (max(0, length - wanted) // 2 if grows_into else 0)

    def _largest_gap(self) -> tuple[int, int]:
        best, start = (0, 0), None
        for page in range(1, self.pages + 1):
            free = page < self.pages and not self.references[page]
            if free and start is None:
                start = page
            elif not free and start is not None:
                best, start = max(best, (page - start, -start)), None
        return -best[1], best[0]

    def release(self, held: list[int]) -> None:
        """Give back one reference to each page and empty the list."""
        for page in held:
            self._drop_reference(page)
        self.counters.released += len(held)
        held.clear()

    def _drop_reference(self, page: int) -> None:
        if page == SCRATCH_PAGE or self.references[page] <= 0:
            raise ValueError(f"page {page} is not held by anyone")
        self.references[page] -= 1
        self._free += not self.references[page]

    # --- shared prefixes ---

    def share(self, share_key: str, ids: tuple[int, ...]) -> list[int]:
        """Pages that already hold a prefix of `ids` under this key; the caller holds a reference to each."""
        found: list[int] = []
        keys = self._keys(share_key, ids)
        for key in keys:
            page = self._prefixes.get(key)
            if page is None:
                break
            self.references[page] += 1
            found.append(page)
        for key in reversed(keys[: len(found)]):
            self._prefixes.move_to_end(key)
        self.counters.shared += len(found)
        return found

    def publish(self, share_key: str, ids: tuple[int, ...], held: list[int]) -> None:
        """Let later sequences share the full pages of `ids`, whose keys and values are computed in `held`."""
        for key, page in reversed([*zip(self._keys(share_key, ids), held, strict=False)]):
            if key not in self._prefixes:
                self._prefixes[key] = page
                self.references[page] += 1

    def _keys(self, share_key: str, ids: tuple[int, ...]) -> list[bytes]:
        """One key per full page: a digest of everything up to its end, since a later page alone is of no use."""
        size, keys = self.page_size, []
        digest = blake2b(share_key.encode(), digest_size=KEY_BYTES).digest()
        for start in range(0, len(ids) - size + 1, size):
            page = array("q", ids[start : start + size]).tobytes()
            digest = blake2b(digest + page, digest_size=KEY_BYTES).digest()
            keys.append(digest)
        return keys

    def _evict(self, key: bytes) -> None:
        self._drop_reference(self._prefixes.pop(key))
        self.counters.evicted += 1

    def forget_prefixes(self) -> None:
        """Empty the prefix cache."""
        for key in [*self._prefixes]:
            self._evict(key)
