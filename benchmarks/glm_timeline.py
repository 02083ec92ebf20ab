"""When what happens while GLM-TTS speaks: benchmarks/glm_timeline.py [--device h200] [--plot FILE] [--json FILE]

The real engine core runs a tiny random checkpoint, but its clock is made up: every step of the language model, every
ODE step of flow windows and every vocoder window takes as long as it would at the released size on the named device.
So order, batching and deadlines are the engine's own, and only durations are modelled, from figures of the device
that `DEVICES` states. They are estimates, not measurements of that device.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from legato import families
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.protocols import LoadOptions, SpeechModel
from legato.types import AudioChunk, SpeechRequest, Voice

sys.path.insert(0, str(Path(__file__).resolve().parent))
import glm_random
from timeline import CHUNKS, Event, merged, plot, show, show_chunks

LANES = ("LM", "flow", "vocoder", CHUNKS)
TOKENS = 200


@dataclass(frozen=True)
class Device:
    """What a device reaches in practice. A call of a net takes the longest of starting its kernels one by one, reading
    its weights and computing."""

    name: str
    bytes_per_s: float
    half_flops: float
    single_flops: float
    launch_s: float
    lm_bytes_per_weight: int


DEVICES = {
    "h200": Device("H200 (estimate: 70 % of bandwidth, 40 % of TF32)", 3.4e12, 4e14, 1.6e14, 5e-6, 2),
    "cpu": Device("two CPU cores (AVX-512, bfloat16 LM)", 2.0e10, 1.5e11, 1.5e11, 4e-6, 2),
}


@dataclass(frozen=True)
class ReleasedSize:
    """What one call costs at the released sizes. Operations count a multiply-add as two."""

    lm_weights: float = 1.552e9
    lm_kernels: int = 28 * 11
    flow_weights: float = 0.18e9
    """Without the embedding, of which a window reads a few rows."""
    flow_kernels: int = 18 * 14 + 40
    flow_attention_flops: float = 18 * 4 * 768
    """For every pair of frames."""
    guidance_branches: int = 2
    vocoder_frame_flops: float = 0.61e9
    vocoder_weights: float = 20.8e6
    vocoder_kernels: int = 400


class Costs:
    """Seconds of one call of each stage."""

    def __init__(self, device: Device, size: ReleasedSize | None = None) -> None:
        self.device, self.size = device, size or ReleasedSize()

    def lm_s(self, rows: int) -> float:
        """One step over so many rows of any sequences."""
        weights = self.size.lm_weights
        flops = self.device.half_flops if self.device.lm_bytes_per_weight == 2 else self.device.single_flops
        read_s = weights * self.device.lm_bytes_per_weight / self.device.bytes_per_s
        return max(self.size.lm_kernels * self.device.launch_s, read_s, 2 * weights * rows / flops)

    def flow_s(self, windows: list[int]) -> float:
        """One ODE step of windows of so many frames."""
        linear = 2 * self.size.flow_weights * sum(windows)
        attention = self.size.flow_attention_flops * sum(frames**2 for frames in windows)
        work = self.size.guidance_branches * (linear + attention)
        return self._single_s(self.size.flow_kernels, self.size.flow_weights, work)

    def vocoder_s(self, windows: list[int]) -> float:
        """Windows of so many mel frames."""
        kernels = self.size.vocoder_kernels * len(windows)
        return self._single_s(kernels, self.size.vocoder_weights, self.size.vocoder_frame_flops * sum(windows))

    def _single_s(self, kernels: int, weights: float, work: float) -> float:
        read_s = 4 * weights / self.device.bytes_per_s
        return max(kernels * self.device.launch_s, read_s, work / self.device.single_flops)


class Timeline:
    """An engine core with a made-up clock, and what happened in it."""

    def __init__(self, model: SpeechModel, costs: Costs, **settings: Any) -> None:
        self.costs, self.now_s, self.tokens = costs, 0.0, 0
        self.events: list[Event] = []
        self.tokens_at_chunk: list[int] = []
        """Codec tokens that there were when each chunk left."""
        self.core = EngineCore(model, EngineConfig(**settings), self._chunk, self._error, lambda: self.now_s)
        self._time(self.core.lm, "LM", self._lm)
        self._time(self.core.flow, "flow", self._flow)
        self._time(self.core.vocoder, "vocoder", self._vocoder)

    def _time(self, stage: Any, lane: str, cost: Callable[[Any], tuple[float, float]]) -> None:
        """Let the clock go on by what every run of a stage costs."""
        run = stage.run

        def timed(batch: Any) -> Any:
            result = run(batch)
            cost_s, amount = cost(batch)
            requests = {(item.sequence.prompt if lane == "LM" else item).utterance.request for item in batch}
            request = requests.pop() if len(requests) == 1 else None
            self.events.append(Event(lane, self.now_s, self.now_s + cost_s, request, amount))
            self.now_s += cost_s
            return result

        stage.run = timed

    def _lm(self, batch: Any) -> tuple[float, float]:
        self.tokens += sum(scheduled.samples for scheduled in batch)
        rows = sum(scheduled.rows for scheduled in batch)
        return self.costs.lm_s(rows), rows

    def _flow(self, batch: Any) -> tuple[float, float]:
        windows = [len(window.state.x) for window in batch if window.keep_frames]
        return (self.costs.flow_s(windows) if windows else 0.0), sum(windows)

    def _vocoder(self, batch: Any) -> tuple[float, float]:
        windows = [len(window.mel) for window in batch if window.keep_stop > window.keep_start]
        return (self.costs.vocoder_s(windows) if windows else 0.0), sum(windows)

    def _chunk(self, request: int, chunk: AudioChunk) -> None:
        if len(chunk.pcm):
            self.tokens_at_chunk.append(self.tokens)
            self.events.append(Event("audio", self.now_s, self.now_s, request, 1000 * chunk.duration_s))

    def _error(self, _: int, error: Exception) -> None:
        raise error

    def speak(self, voice: Voice, requests: int) -> None:
        """All requests at once, to the end."""
        for number in range(requests):
            self.core.submit(number, SpeechRequest("the day", voice, seed=number))
            self.core.taken(number, 10**9)
        while self.core.step():
            pass

    def summary(self) -> dict[str, Any]:
        """The figures that the picture shows, of the first request."""
        chunks = [event for event in self.events if event.lane == "audio" and event.request == 0]
        lm = [event for event in self.events if event.lane == "LM"]
        audio_s = sum(chunk.amount for chunk in chunks) / 1000
        ends, gap_s = chunks[0].start_s, 0.0
        for chunk in chunks:
            gap_s = max(gap_s, chunk.start_s - ends)
            ends = max(ends, chunk.start_s) + chunk.amount / 1000
        return {
            "first_sound_s": chunks[0].start_s,
            "tokens_at_first_sound": self.tokens_at_chunk[0],
            "tokens": self.tokens,
            "lm_done_s": lm[-1].stop_s,
            "last_sound_s": chunks[-1].start_s,
            "audio_s": audio_s,
            "longest_gap_s": gap_s,
            "lm_step_ms": 1000 * self.costs.lm_s(1),
        }


def show_all(timeline: Timeline, console: Console) -> None:
    """The lanes as bars, and when every chunk left."""
    show(timeline.events, LANES, console)
    show_chunks(timeline.events, timeline.tokens_at_chunk, "tokens so far", console)


def run(device: str, requests: int, tokens: int, folder: Path, **settings: Any) -> Timeline:
    """A timeline of requests of that many codec tokens each."""
    tree = glm_random.build(folder, "tiny")
    together = device != "cpu"
    model = families.load(tree, LoadOptions(batch_invariant=not together))
    timeline = Timeline(glm_random.fixed_length(model, tokens), Costs(DEVICES[device]), **settings)
    timeline.speak(glm_random.voice(model), requests)
    return timeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(DEVICES), default="h200")
    parser.add_argument("--requests", type=int, default=1, help="spoken at the same time")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="codec tokens of each, 25 a second")
    parser.add_argument("--unheld", action="store_true", help="let the first sound go before it lasts to the next")
    parser.add_argument("--plot", type=Path, default=None, help="a picture; the ending chooses its format")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hold = not options.unheld
        timeline = run(options.device, options.requests, options.tokens, Path(folder), hold_first_sound=hold)
    device = DEVICES[options.device]
    show_all(timeline, Console())
    figures = {"device": asdict(device), "requests": options.requests} | timeline.summary()
    print(json.dumps({key: value for key, value in figures.items() if key != "device"}, indent=1))
    if options.json:
        events = [asdict(event) for event in merged(timeline.events)]
        options.json.write_text(json.dumps(figures | {"events": events}, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        title = f"GLM-TTS on {device.name}: durations modelled, order the engine's"
        plot(timeline.events, LANES, title, options.plot)


if __name__ == "__main__":
    main()
