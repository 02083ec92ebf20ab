"""The engine's promises in figures, from one run: benchmarks/promises.py [--script DIR] [--out results.json]

    first sound     by text length, one stream, warm
    script          the first script that ran these weights (--script, the folder of its infer.py), interleaved
    invariance      what `batch_invariant` costs, on and off interleaved, one stream and eight
    position        time per token at position 50 and 1000, with the cache and without
    mixed           gaps between tokens of four streams while a 2,000-token prompt is computed

Medians. Everything that is compared runs interleaved, because machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from legato.config import EngineConfig
from legato.core import EngineCore
from legato.families import load
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.protocols import LoadOptions, Prompt, SampledTokens, SpeechModel
from legato.types import AudioChunk, Sampling, SpeechRequest, UtteranceId

SENTENCE = "The museum will be closed on Thursday because of a public holiday."
SHORT = "Hi there!!"
LONG = " ".join([SENTENCE] * 15)[:1000]


class Clock:
    """A core that notes when chunks leave."""

    def __init__(self, model: SpeechModel, **settings: Any) -> None:
        self.chunks: list[tuple[float, AudioChunk]] = []
        self.core = EngineCore(model, EngineConfig(admit_by_deadline=False, **settings), self._chunk, self._error)
        self.numbers = iter(range(10**9))

    def _chunk(self, _: int, chunk: AudioChunk) -> None:
        self.chunks.append((time.perf_counter(), chunk))

    def _error(self, _: int, error: Exception) -> None:
        raise error

    def speak(self, texts: list[str], seed: int = 0, first_only: bool = False) -> dict[str, float]:
        """Seconds to first sound and in all, and seconds of audio, for texts spoken at once."""
        self.chunks.clear()
        start = time.perf_counter()
        numbers = [next(self.numbers) for _ in texts]
        for number, text in zip(numbers, texts, strict=True):
            self.core.submit(number, SpeechRequest(text, seed=seed))
        while self.core.step() and not (first_only and self.chunks):
            pass
        for number in numbers:
            self.core.cancel(number) if first_only else None
        audio_s = sum(chunk.duration_s for _, chunk in self.chunks)
        return {"ttfa_s": self.chunks[0][0] - start, "wall_s": self.chunks[-1][0] - start, "audio_s": audio_s}


def ignore_cancelled(clock: Clock) -> Clock:
    clock.core._on_error = lambda *_: None
    return clock


def first_sound(model: SpeechModel, rounds: int) -> dict[str, Any]:
    clock = ignore_cancelled(Clock(model))
    texts = {"10 characters": SHORT, "66 characters": SENTENCE, "1000 characters": LONG}
    times: dict[str, list[float]] = {name: [] for name in texts}
    for seed in range(rounds):
        for name, text in texts.items():
            times[name].append(clock.speak([text], seed, first_only=True)["ttfa_s"])
    result: dict[str, Any] = {name: _quantiles(values) for name, values in times.items()}
    result["ratio 1000 to 10"] = median(times["1000 characters"]) / median(times["10 characters"])
    return result


def against_script(model: SpeechModel, folder: Path, rounds: int) -> dict[str, Any]:
    script = _load_script(folder)
    clock = Clock(model)
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for seed in range(rounds):
        theirs.append(script(SENTENCE, seed))
        ours.append(clock.speak([SENTENCE], seed))
    result: dict[str, Any] = {}
    for name, runs in (("ours", ours[1:]), ("script", theirs[1:])):
        result[name] = {
            "ttfa_s": median(r["ttfa_s"] for r in runs),
            "rtf": median(r["wall_s"] / r["audio_s"] for r in runs),
        }
    for figure in ("ttfa_s", "rtf"):
        result[f"{figure} ours/script"] = result["ours"][figure] / result["script"][figure]
    return result


def _load_script(folder: Path) -> Callable[[str, int], dict[str, float]]:
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    from infer import load as load_voice  # type: ignore[import-not-found]

    voice = load_voice(str(folder))

    def run(text: str, seed: int) -> dict[str, float]:
        start, first, samples = time.perf_counter(), 0.0, 0
        generator = torch.Generator().manual_seed(seed)
        codes = voice.lm.generate(
            voice.ids(text), temperature=0.2, gen=generator, rt=voice.rt, ptab=voice.ptab, pw=voice.pw
        )
        for piece in voice.stream(codes, 6, 0.7, seed):
            first = first or time.perf_counter() - start
            samples += len(piece)
        return {"ttfa_s": first, "wall_s": time.perf_counter() - start, "audio_s": samples / 24000}

    return run


def invariance(rounds: int) -> dict[str, Any]:
    clocks = {on: Clock(load("piccolo", LoadOptions(batch_invariant=on)), batch_invariant=on) for on in (True, False)}
    rtf: dict[tuple[bool, int], list[float]] = {}
    for seed in range(rounds + 1):
        for streams in (1, 8):
            for on, clock in clocks.items():
                run = clock.speak([SENTENCE] * streams, seed)
                if seed:
                    rtf.setdefault((on, streams), []).append(run["wall_s"] / run["audio_s"])
    return {
        f"{streams} stream(s)": {
            "on, RTF": median(rtf[True, streams]),
            "off, RTF": median(rtf[False, streams]),
            "cost": median(rtf[True, streams]) / median(rtf[False, streams]) - 1,
        }
        for streams in (1, 8)
    }


def stage_of(model: SpeechModel, beside: int = EngineConfig().prefill_tokens_beside_decodes) -> LMStage:
    return LMStage(model.lm, 1024, 16, SchedulerLimits(512, beside, 32), "tiled")


def prompt(index: int, tokens: int, use_cache: bool = True) -> Prompt:
    ids = tuple(183 + (i * 37) % 900 for i in range(tokens))
    end = SampledTokens(frozenset(), 10_000, first_codec_id=0)
    return Prompt(UtteranceId(index, 0), ids, end, Sampling(0.0), 0, tokens + 2000, use_cache=use_cache)


def step(stage: LMStage, utterances: list[UtteranceId]) -> tuple[float, int]:
    """Seconds of one step, and tokens that came out of it."""
    start = time.perf_counter()
    batch = stage.plan(utterances)
    tokens = stage.commit(batch, stage.run(batch)) if batch else []
    return time.perf_counter() - start, len(tokens)


def position(model: SpeechModel, rounds: int) -> dict[str, Any]:
    """Each round takes one token at either position, in turn."""
    times: dict[str, list[float]] = {}
    stages = {}
    for name, tokens, cached in (
        ("50", 50, True),
        ("1000", 1000, True),
        ("50 bare", 50, False),
        ("1000 bare", 1000, False),
    ):
        stage = stage_of(model)
        stage.add(prompt(0, tokens, cached))
        while not step(stage, [UtteranceId(0, 0)])[1]:
            pass
        stages[name] = stage
    for turn in range(rounds):
        for name, stage in stages.items():
            if "bare" in name and turn % 10:
                continue
            took, done = step(stage, [UtteranceId(0, 0)])
            while not done:
                more, done = step(stage, [UtteranceId(0, 0)])
                took += more
            times.setdefault(name, []).append(took)
    medians = {name: median(values) for name, values in times.items()}
    return {
        "ms per token, cache": {n: 1000 * medians[n] for n in ("50", "1000")},
        "ms per token, no cache": {n: 1000 * medians[f"{n} bare"] for n in ("50", "1000")},
        "ratio 1000 to 50, cache": medians["1000"] / medians["50"],
        "ratio 1000 to 50, no cache": medians["1000 bare"] / medians["50 bare"],
    }


def mixed(model: SpeechModel) -> dict[str, Any]:
    """Four streams decode; after 60 steps a 2,000-token prompt arrives."""
    stage = stage_of(model)
    streams = [UtteranceId(i, 0) for i in range(4)]
    for utterance in streams:
        stage.add(prompt(utterance.request, 40))
    gaps, skipped, late, arrived = [], 0, UtteranceId(9, 0), False
    while len(gaps) < 400:
        if len(gaps) == 60:
            stage.add(prompt(9, 2000))
            arrived = True
        before = {u: stage.usage[u].generated_tokens for u in streams}
        took, _ = step(stage, [*streams, late] if arrived else streams)
        moved = [stage.usage[u].generated_tokens - before[u] for u in streams]
        skipped += moved.count(0) if len(gaps) > 5 else 0
        gaps.append(took)
        if arrived and stage.usage[late].generated_tokens:
            break
    after = gaps[10:]
    return {
        "steps with prefill": len(gaps) - 60,
        "decode steps skipped": skipped,
        "median gap ms": 1000 * median(after),
        "median gap before ms": 1000 * median(gaps[10:60]),
        "p99 gap / median": sorted(after)[int(0.99 * len(after))] / median(after),
        "largest gap / median": max(after) / median(after),
    }


def _quantiles(values: list[float]) -> dict[str, float]:
    ranked = sorted(values)
    return {"p50_s": median(ranked), "p95_s": ranked[int(0.95 * (len(ranked) - 1))]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", type=Path, help="folder of the first script (infer.py and its weights)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out.resolve() if options.out else None
    torch.set_num_threads(options.threads)
    model = load("piccolo", LoadOptions())
    Clock(model).speak([SENTENCE])
    results = {"first sound": first_sound(model, options.rounds)}
    if options.script:
        results["script"] = against_script(model, options.script, options.rounds)
    results["invariance"] = invariance(max(3, options.rounds // 4))
    results["position"] = position(model, 20 * options.rounds)
    results["mixed"] = mixed(model)
    text = json.dumps(results, indent=1)
    print(text)
    if out:
        out.write_text(text)


if __name__ == "__main__":
    main()
