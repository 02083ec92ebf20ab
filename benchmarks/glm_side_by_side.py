"""GLM-TTS here and as released, on the same random checkpoints: time to the first sound and in all.

    benchmarks/glm_side_by_side.py --reference DIR --python PYTHON --json benchmarks/results/glm_side_by_side.json

DIR is a clone of zai-org/GLM-TTS (c5dc7ae), PYTHON an interpreter with what it needs (torch, transformers,
x_transformers, einops). Its code runs in a process of its own (glm_reference_driver.py); none of it is here. Both speak
the same number of codec tokens with the same voice on as many threads, taking turns; medians over the rounds. On a
machine that others use too, `--threads 1 --cpu-time` counts processor seconds instead of the clock's.

    ours             streaming, as by default: the first sound is held until it lasts to the next
    ours unheld      streaming, the first sound leaves at once
    ours offline     the release's one-pass path
    released         its only reachable path
    released stream  its streaming function, for which all tokens must be there; see the driver
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from legato.bench.machine import machine_facts
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.families import glm_tts
from legato.families.glm_tts.frontend import glm_voice
from legato.protocols import LoadOptions, SpeechModel
from legato.types import AudioChunk, SpeechRequest, Voice

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import glm_random  # noqa: E402

TOKENS = 150
RELEASED = {"released": "plain", "released stream": "stream"}
Figures = dict[str, float]


class Ours:
    """One way of ours: a core that notes when chunks leave."""

    def __init__(self, model: SpeechModel, voice: Voice, clock: Callable[[], float], **settings: Any) -> None:
        self._chunks: list[tuple[float, AudioChunk]] = []
        self._voice, self._clock, self._number = voice, clock, 0
        self.core = EngineCore(model, EngineConfig(**settings), self._chunk, self._error)

    def _chunk(self, _: int, chunk: AudioChunk) -> None:
        if len(chunk.pcm):
            self._chunks.append((self._clock(), chunk))

    def _error(self, _: int, error: Exception) -> None:
        raise error

    def speak(self, seed: int) -> Figures:
        self._chunks.clear()
        start = self._clock()
        self.core.submit(self._number, SpeechRequest("the day", self._voice, seed=seed))
        self.core.taken(self._number, 10**9)
        while self.core.step():
            pass
        end = self._clock()
        self._number += 1
        audio_s = sum(chunk.duration_s for _, chunk in self._chunks)
        return {"first_s": self._chunks[0][0] - start, "total_s": end - start, "audio_s": audio_s}


class Released:
    """The reference's process."""

    def __init__(self, python: Path, reference: Path, tree: Path, case: Path) -> None:
        command = [str(python), str(HERE / "glm_reference_driver.py"), str(reference), str(tree), str(case)]
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=kept
        )
        self._answer()

    def _answer(self) -> Figures:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(
                f"the reference stopped with code {self._process.wait()}: run its driver by hand to see why"
            )
        answer: Figures = json.loads(line)
        return answer

    def speak(self, way: str, seed: int) -> Figures:
        assert self._process.stdin is not None
        print(way, seed, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def write_case(model: SpeechModel, voice: Voice, size: str, options: argparse.Namespace, path: Path) -> Path:
    """What the reference is to speak, and the sizes of its nets."""
    special, facts, sizes = model.frontend.special, glm_voice(voice), glm_random.SIZES[size]  # type: ignore[attr-defined]
    case = {
        "special": {
            "ats": special.first_speech, "ate": special.last_speech, "boa": special.begin_of_audio,
            "eoa": special.end_of_audio, "pad": special.padding,
        },
        "text": glm_random.text_ids(model.frontend), "prompt_text": list(facts.text_ids),
        "speech": list(facts.speech_ids), "mel": facts.mel.tolist(), "speaker": facts.speaker.tolist(),
        "codes": special.speech_tokens, "tokens": options.tokens, "threads": options.threads,
        "cpu_time": options.cpu_time,
        "flow": {
            "dit": {
                "trans_dim": sizes.dit_width, "depth": sizes.dit_layers,
                "heads": sizes.dit_width // sizes.dit_head_dim, "dim_head": sizes.dit_head_dim,
            },
            "token_width": sizes.token_width, "codes": sizes.flow_codes,
        },
        "hift": {"width": sizes.hift_width, "f0_width": sizes.f0_width},
    }  # fmt: skip
    path.write_text(json.dumps(case), encoding="utf-8")
    return path


def compare(size: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All ways on one checkpoint, in turns; the first round is not counted."""
    tree = glm_random.build(folder, size)
    loaded = glm_tts.load(tree, LoadOptions())
    offline = glm_tts.load(tree, LoadOptions(), glm_tts.Choices(mode="offline"))
    voice = glm_random.voice(loaded)
    case = write_case(loaded, voice, size, options, folder / "case.json")
    model, whole = (glm_random.fixed_length(each, options.tokens) for each in (loaded, offline))
    released = Released(options.python, options.reference, tree, case)
    clock = time.thread_time if options.cpu_time else time.perf_counter
    ways: dict[str, Callable[[int], Figures]] = {
        "ours": Ours(model, voice, clock).speak,
        "ours unheld": Ours(model, voice, clock, hold_first_sound=False).speak,
        "ours offline": Ours(whole, voice, clock).speak,
        **{name: lambda seed, way=way: released.speak(way, seed) for name, way in RELEASED.items()},  # type: ignore[misc]
    }
    found: dict[str, list[Figures]] = {name: [] for name in ways}
    for seed in range(options.rounds + 1):
        for name, speak in ways.items():
            figures = speak(seed)
            if seed:
                found[name].append(figures)
    released.close()
    return summarised(found)


def summarised(found: dict[str, list[Figures]]) -> dict[str, Any]:
    """Medians of every way, and how ours compares with the release."""
    medians = {
        name: {key: median(figures[key] for figures in rounds) for key in rounds[0]} for name, rounds in found.items()
    }
    ours, released = medians["ours"], medians["released"]
    return {
        "medians": medians,
        "ratios": {
            "first sound, ours / released": ours["first_s"] / released["first_s"],
            "first sound, ours unheld / released": medians["ours unheld"]["first_s"] / released["first_s"],
            "first sound, ours / released stream": ours["first_s"] / medians["released stream"]["first_s"],
            "total, ours / released": ours["total_s"] / released["total_s"],
            "total, ours offline / released": medians["ours offline"]["total_s"] / released["total_s"],
            "total, ours / released stream": ours["total_s"] / medians["released stream"]["total_s"],
        },
        "rounds": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True, help="a clone of zai-org/GLM-TTS")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="the interpreter that runs it")
    parser.add_argument("--sizes", nargs="+", choices=tuple(glm_random.SIZES), default=list(glm_random.SIZES))
    parser.add_argument("--tokens", type=int, default=TOKENS, help="a multiple of 15")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor seconds of one thread, not those of the clock"
    )
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    if options.tokens % glm_random.TEXT_IDS:
        parser.error(f"--tokens {options.tokens} is not a multiple of {glm_random.TEXT_IDS}")
    if options.cpu_time and options.threads != 1:
        parser.error("--cpu-time counts one thread: add --threads 1")
    torch.set_num_threads(options.threads)
    results: dict[str, Any] = {"machine": machine_facts(), "threads": options.threads, "tokens": options.tokens}
    results["cpu_time"] = options.cpu_time
    results["load_average"] = os.getloadavg()[0]
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            results[size] = compare(size, options, Path(folder))
        print(size)
        for name, figures in results[size]["medians"].items():
            print(f"  {name:16} first {figures['first_s']:7.3f} s   total {figures['total_s']:7.3f} s")
        for name, ratio in results[size]["ratios"].items():
            print(f"  {name:36} {ratio:.2f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
