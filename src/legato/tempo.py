"""Speaking rate: a pitch-preserving, streaming time-stretch by FFmpeg's `atempo` filter, through PyAV."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
from av.filter import Graph

from legato.errors import RequestError
from legato.types import AudioChunk

SLOWEST, FASTEST = 0.25, 4.0
_ONE_FILTER_SLOWEST = 0.5


def check_speed(speed: float) -> None:
    """Raise RequestError unless SLOWEST ≤ speed ≤ FASTEST."""
    if not SLOWEST <= speed <= FASTEST:
        raise RequestError(f"speed {speed:g} is outside {SLOWEST:g} to {FASTEST:g}", "speed")


class TempoStream:
    """Stretches a stream of samples by 1/speed. Push float32 [n], get float32 [m]; `finish` gives the rest.

    Raises RequestError when the speed is out of range.
    """

    def __init__(self, sample_rate_hz: int, speed: float) -> None:
        check_speed(speed)
        self._rate = sample_rate_hz
        self._pushed = 0
        self._graph = Graph()
        nodes = [self._graph.add_abuffer(sample_rate=sample_rate_hz, format="flt", layout="mono", time_base=self._base)]
        nodes += [self._graph.add("atempo", f"{factor:.6f}") for factor in _factors(speed)]
        nodes += [self._graph.add("aformat", "sample_fmts=flt:channel_layouts=mono"), self._graph.add("abuffersink")]
        self._graph.link_nodes(*nodes).configure()

    @property
    def _base(self) -> Fraction:
        return Fraction(1, self._rate)

    def push(self, pcm: np.ndarray) -> np.ndarray:
        """Samples that are ready after these."""
        if not len(pcm):
            return np.zeros(0, np.float32)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(pcm, np.float32)[None], format="flt", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = self._rate, self._pushed, self._base
        self._pushed += len(pcm)
        self._graph.push(frame)
        return self._pull()

    def finish(self) -> np.ndarray:
        """What was still held back."""
        if not self._pushed:
            return np.zeros(0, np.float32)
        self._graph.push(None)
        return self._pull()

    def _pull(self) -> np.ndarray:
        pieces = []
        while True:
            try:
                frame = self._graph.pull()
            except (av.BlockingIOError, av.EOFError):
                break
            pieces.append(frame.to_ndarray()[0])
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def _factors(speed: float) -> list[float]:
    """Speeds of the filters in a row; one filter goes down to a half only."""
    if speed >= _ONE_FILTER_SLOWEST:
        return [speed]
    return [_ONE_FILTER_SLOWEST, speed / _ONE_FILTER_SLOWEST]


class Retimer:
    """Chunks of a stream in, the same chunks at another speed out. Raises RequestError for the speed."""

    def __init__(self, sample_rate_hz: int, speed: float) -> None:
        self._tempo = None if speed == 1.0 else TempoStream(sample_rate_hz, speed)
        self._next_sample = 0

    def __call__(self, chunk: AudioChunk) -> AudioChunk:
        if self._tempo is None:
            return chunk
        pcm = self._tempo.push(chunk.pcm)
        if chunk.final:
            pcm = np.concatenate([pcm, self._tempo.finish()])
        start, self._next_sample = self._next_sample, self._next_sample + len(pcm)
        return replace(chunk, pcm=pcm, start_sample=start)
