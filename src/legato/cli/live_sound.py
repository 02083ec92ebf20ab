"""Sound that is still coming: a wav stream on stdin, the microphone; and how it is put into a conversation."""

from __future__ import annotations

import os
import queue
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from legato.errors import RequestError, SpeechError
from legato.playback import sounddevice
from legato.streams import ChatStream
from legato.types import Part

Stretch = tuple[np.ndarray, int]
"""Samples float32 [n] and their rate."""

READ_BYTES = 1 << 14
EXTENSIBLE = 0xFFFE
"""A wav header that says the kind of its samples further on."""

_KINDS = {(1, 16): ("<i2", 2**15), (1, 32): ("<i4", 2**31), (3, 32): ("<f4", 1)}
"""Kind and bits of wav samples → how numpy reads them, and full scale."""


class Recording:
    """Pushes sound into a stream as it comes, in a thread of its own, and keeps it for the next turns."""

    def __init__(self, stream: ChatStream, sound: Iterable[Stretch]) -> None:
        self._stream, self._sound = stream, sound
        self._heard: list[Stretch] = []
        self._thread = threading.Thread(target=self._push, name="legato-sound", daemon=True)
        self._thread.start()

    def parts(self) -> tuple[Part, ...]:
        """What was heard, once it has ended."""
        self._thread.join()
        if not self._heard:
            return ()
        return (Part("audio", np.concatenate([wave for wave, _ in self._heard]), self._heard[0][1]),)

    def _push(self) -> None:
        """A source that breaks fails the request."""
        try:
            for wave, rate_hz in self._sound:
                if self._stream.ended:
                    return
                self._heard.append((wave, rate_hz))
                self._stream.push_audio(wave, rate_hz)
        except SpeechError as error:
            self._stream.fail(error)
            self._stream.cancel()
            return
        self._stream.end_audio()


def stdin_sound() -> Iterator[Stretch]:
    """The wav stream on stdin, as soon as each part is there. Raises RequestError when it is none."""
    # Not sys.stdin.read1: a thread that waits inside Python's buffered reader crashes the interpreter when it exits.
    if sys.stdin is None:
        raise RequestError("stdin is closed: --audio - reads a wav stream from it", "messages")
    descriptor = sys.stdin.fileno()
    return wav_stretches(lambda most: os.read(descriptor, most))


def wav_stretches(read: Callable[[int], bytes]) -> Iterator[Stretch]:
    """A wav stream, mixed down to one channel. `read` gives at most so many bytes, none at the end.

    Sizes of 0, and those of streams that did not know theirs, mean all that comes.
    """
    header = _read_header(read)
    left = header.data_bytes or sys.maxsize
    held = b""
    while left and (data := read(min(READ_BYTES, left))):
        left -= len(data)
        held += data
        whole = len(held) - len(held) % header.frame_bytes
        if whole:
            yield header.samples(held[:whole]), header.rate_hz
            held = held[whole:]


@dataclass(frozen=True)
class _Header:
    """What a wav header says."""

    kind: int
    bits: int
    channels: int
    rate_hz: int
    data_bytes: int

    @property
    def frame_bytes(self) -> int:
        return self.channels * self.bits // 8

    def samples(self, data: bytes) -> np.ndarray:
        name, full_scale = _KINDS[self.kind, self.bits]
        frames = np.frombuffer(data, name).reshape(-1, self.channels)
        mixed: np.ndarray = (frames.mean(1, dtype=np.float64) / full_scale).astype(np.float32)
        return mixed


def _read_header(read: Callable[[int], bytes]) -> _Header:
    """Everything before the samples. Raises RequestError."""
    start = _exactly(read, 12)
    if start[:4] != b"RIFF" or start[8:] != b"WAVE":
        raise RequestError(f"stdin holds no wav stream: it begins with {start[:12]!r}", "audio")
    form: tuple[int, int, int, int] | None = None
    while True:
        name, size = struct.unpack("<4sI", _exactly(read, 8))
        if name == b"data" and form is not None:
            kind, channels, rate_hz, bits = form
            return _Header(kind, bits, channels, rate_hz, size)
        content = _exactly(read, size + size % 2)
        if name == b"fmt ":
            form = _read_form(content)


def _read_form(content: bytes) -> tuple[int, int, int, int]:
    """Kind, channels, rate and bits. Raises RequestError for samples of another kind."""
    if len(content) < 16:
        raise RequestError("the header of the wav stream on stdin is damaged", "audio")
    kind, channels, rate_hz, _, _, bits = struct.unpack("<HHIIHH", content[:16])
    if kind == EXTENSIBLE and len(content) >= 26:
        kind = struct.unpack("<H", content[24:26])[0]
    if (kind, bits) not in _KINDS or not channels or not rate_hz:
        raise RequestError(
            f"the wav stream on stdin has {channels} channels of {bits}-bit samples of kind {kind} at {rate_hz} Hz; "
            "send 16-bit or 32-bit integers, or 32-bit floats",
            "audio",
        )
    return kind, channels, rate_hz, bits


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = read(min(READ_BYTES, count - len(data)))
        if not more:
            raise RequestError("the wav stream on stdin ends before its first sample", "audio")
        data += more
    return data


class Microphone:
    """Sound from the default input device, at the device's own rate, from now until `stop`. Iterate once.

    Raises SpeechError when there is no way to record.
    """

    def __init__(self) -> None:
        device = sounddevice()
        self._pieces: queue.Queue[np.ndarray | None] = queue.Queue()
        try:
            self._rate_hz = round(device.query_devices(kind="input")["default_samplerate"])
            self._stream = device.InputStream(
                samplerate=self._rate_hz, channels=1, dtype="float32", callback=self._on_samples
            )
            self._stream.start()
        except (device.PortAudioError, ValueError) as error:
            raise SpeechError(f"no microphone can be used ({error}); --audio FILE sends a recording") from None

    def __iter__(self) -> Iterator[Stretch]:
        while (piece := self._pieces.get()) is not None:
            yield piece, self._rate_hz

    def stop(self) -> None:
        """End the recording; what was heard until now is still given."""
        self._stream.close()
        self._pieces.put(None)

    def _on_samples(self, samples: np.ndarray, *_: object) -> None:
        """Called by the device with float32 [n, 1], which it will write into again."""
        self._pieces.put(samples[:, 0].copy())


def check_microphone() -> None:
    """Raise SpeechError, before anything is loaded, when nothing can record."""
    device = sounddevice()
    try:
        device.query_devices(kind="input")
    except (device.PortAudioError, ValueError) as error:
        raise SpeechError(f"no microphone was found ({error}); --audio FILE sends a recording") from None
