"""Eight listeners in one engine: their windows and steps share batches, and each gets what it would get alone."""

from __future__ import annotations

import asyncio

import numpy as np

import legato

SENTENCES = [f"This is listener number {number}." for number in range(1, 9)]


async def main() -> None:
    with legato.load() as engine:
        together = await asyncio.gather(*(engine.agenerate(text, seed=1) for text in SENTENCES))
        alone = [await engine.agenerate(text, seed=1) for text in SENTENCES]
    same = all(np.array_equal(a.samples, b.samples) for a, b in zip(together, alone, strict=True))
    print("together and alone, the same samples:", same)


if __name__ == "__main__":
    asyncio.run(main())
