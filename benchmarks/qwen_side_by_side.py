"""Qwen2.5-Omni here and in transformers, on the same random checkpoints: first sound, total, memory.

    benchmarks/qwen_side_by_side.py --python PYTHON --json benchmarks/results/qwen_side_by_side.json

PYTHON is an interpreter with transformers 5.24. It runs in a process of its own (qwen_reference_driver.py). Both answer
the same prompt with as many text ids and as many codes, on as many threads, with the same solver (36 evaluations),
taking turns; medians over the rounds. Ours runs in a process of its own too, so that memory can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from legato.bench.machine import machine_facts
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.types import AudioChunk, ChatRequest, Message, Part, TextDelta

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from qwen_random import IDS, QUESTION, SIZES, build, fixed_length  # noqa: E402

TEXT_IDS, CODES = 24, 400
NO_CODE = 10**6
"""An end that is never drawn."""

Figures = dict[str, float]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Ours:
    """A core that notes when pieces leave. The first sound leaves at once (`hold`: once it lasts to the next)."""

    def __init__(self, folder: Path, codes: int, hold: bool) -> None:
        self._pieces: list[tuple[float, AudioChunk | TextDelta]] = []
        self._number = 0
        self.model = fixed_length(folder, codes)
        self.core = EngineCore(self.model, EngineConfig(hold_first_sound=hold), self._piece, self._error)

    def _piece(self, _: int, piece: AudioChunk | TextDelta) -> None:
        self._pieces.append((time.perf_counter(), piece))

    def _error(self, _: int, error: Exception) -> None:
        raise error

    def speak(self, seed: int) -> Figures:
        assert self.model.writer is not None
        self._pieces.clear()
        start = time.perf_counter()
        request = ChatRequest((Message("user", (Part("text", QUESTION),)),), seed=seed, max_tokens=TEXT_IDS)
        self.core.submit_chat(self._number, request, self.model.writer.chat.prepare(request))
        self.core.taken(self._number, 10**9)
        while self.core.step():
            pass
        total_s = time.perf_counter() - start
        self._number += 1
        sound = [(at, piece) for at, piece in self._pieces if isinstance(piece, AudioChunk) and len(piece.pcm)]
        audio_s = sum(piece.duration_s for _, piece in sound)
        return {"first_s": sound[0][0] - start, "total_s": total_s, "audio_s": audio_s, "peak_mb": peak_mb()}


class Process:
    """A driver that answers a line with a line."""

    def __init__(self, command: list[str]) -> None:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=kept
        )
        self.loaded_mb = self._answer()["loaded_mb"]

    def _answer(self) -> Figures:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a driver stopped with code {self._process.wait()}: run it by hand to see why")
        answer: Figures = json.loads(line)
        return answer

    def speak(self, seed: int) -> Figures:
        assert self._process.stdin is not None
        print(seed, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def prompt_ids(folder: Path) -> list[int]:
    """The prompt as ids, so that both read the same."""
    model = fixed_length(folder, 1)
    assert model.writer is not None
    request = ChatRequest((Message("user", (Part("text", QUESTION),)),))
    pieces = model.writer.chat.prepare(request).pieces.take()
    return [id for piece in pieces for id in piece.ids]


def serve_ours(folder: Path, codes: int, threads: int, hold: bool) -> None:
    """Our side as a driver."""
    answers, sys.stdout = sys.stdout, sys.stderr
    torch.set_num_threads(threads)
    ours = Ours(folder, codes, hold)
    print(json.dumps({"loaded_mb": peak_mb()}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(ours.speak(int(line))), file=answers, flush=True)


def compare(size: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both in turns; the first round is not counted."""
    build(folder, SIZES[size])
    case = {
        "ids": prompt_ids(folder), "pad": IDS.pad, "tokens": TEXT_IDS, "codes": options.codes, "no_code": NO_CODE,
        "threads": options.threads,
    }  # fmt: skip
    (folder / "case.json").write_text(json.dumps(case), encoding="utf-8")
    us = [sys.executable, __file__, "--serve", str(folder), "--codes", str(options.codes)]
    us += ["--threads", str(options.threads)]
    them = [str(options.python), str(HERE / "qwen_reference_driver.py"), str(folder), str(folder / "case.json")]
    sides = {"ours": Process(us), "ours unheld": Process([*us, "--unheld"]), "transformers": Process(them)}
    found: dict[str, list[Figures]] = {name: [] for name in sides}
    for seed in range(options.rounds + 1):
        for name, side in sides.items():
            figures = side.speak(seed)
            if seed:
                found[name].append(figures)
    for side in sides.values():
        side.close()
    return summarised(found, {name: side.loaded_mb for name, side in sides.items()}) | {"prompt_ids": len(case["ids"])}


def summarised(found: dict[str, list[Figures]], loaded_mb: dict[str, float]) -> dict[str, Any]:
    """Medians of every side, and the ratios."""
    medians = {
        name: {key: median(figures[key] for figures in rounds) for key in rounds[0]} | {"loaded_mb": loaded_mb[name]}
        for name, rounds in found.items()
    }
    ours, theirs = medians["ours"], medians["transformers"]
    return {
        "medians": medians,
        "ratios": {
            "first sound, ours / transformers' only sound": ours["first_s"] / theirs["total_s"],
            "first sound, ours unheld / transformers'": medians["ours unheld"]["first_s"] / theirs["total_s"],
            "total, ours / transformers": ours["total_s"] / theirs["total_s"],
            "peak memory, ours / transformers": ours["peak_mb"] / theirs["peak_mb"],
        },
        "rounds": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the interpreter with transformers")
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=list(SIZES))
    parser.add_argument("--codes", type=int, default=CODES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--serve", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--unheld", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve_ours(options.serve, options.codes, options.threads, not options.unheld)
        return
    results: dict[str, Any] = {"machine": machine_facts(), "threads": options.threads, "codes": options.codes}
    results["load_average"] = os.getloadavg()[0]
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            results[size] = compare(size, options, Path(folder))
        print(size)
        for name, figures in results[size]["medians"].items():
            line = "  ".join(f"{key} {value:8.2f}" for key, value in figures.items())
            print(f"  {name:14} {line}")
        for name, ratio in results[size]["ratios"].items():
            print(f"  {name:54} {ratio:.3f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
