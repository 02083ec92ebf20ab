"""The listener's end of a stream: chunks measured where they are taken, and played as they come."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from legato.errors import SpeechError
from legato.report import StreamReport
from legato.streams import SpeechStream
from legato.tempo import Retimer
from legato.types import AudioChunk

PLAY_PIECE_S = 0.05
"""Samples are handed to the device in pieces of this length, so that stopping is heard at once."""

PLAY_AHEAD_PIECES = 600
"""Half a minute may wait for the device; then `push` waits, and with it whoever makes the sound."""


class Heard:
    """Chunks of one stream, in order, with a report filled as they are taken.

    Read it once. Leaving its context (`with`) calls `close`, which stops a stream that has not ended.
    """

    def __init__(
        self,
        chunks: Iterable[AudioChunk],
        report: StreamReport,
        close: Callable[[], None],
        began_s: float | None = None,
    ) -> None:
        self.report = report
        self.close = close
        self._began_s = time.perf_counter() if began_s is None else began_s
        self._chunks = chunks

    def __iter__(self) -> Iterator[AudioChunk]:
        for chunk in self._chunks:
            self.report.add(time.perf_counter() - self._began_s, len(chunk.pcm))
            yield chunk

    def __enter__(self) -> Heard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hear(stream: SpeechStream, speed: float = 1.0) -> Heard:
    """The engine's stream, at another speed if wanted, measured at its reader. Raises RequestError for the speed."""
    retime = Retimer(stream.sample_rate_hz, speed)
    report = replace(stream.report, chunks=[], wall_s=0.0)

    def chunks() -> Iterator[AudioChunk]:
        for chunk in stream:
            report.usage = stream.report.usage
            yield retime(chunk)

    return Heard(chunks(), report, stream.cancel)


class Player:
    """Plays samples on the default output device as they are pushed.

    A thread of its own feeds the device, so that a pause of the pusher is no pause of the sound. Raises SpeechError
    when there is no way to play, here or at the next call.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self._device = sounddevice()
        self._stream = _open_stream(self._device, sample_rate_hz)
        self._piece = max(1, round(PLAY_PIECE_S * sample_rate_hz))
        self._pieces: queue.Queue[np.ndarray | None] = queue.Queue(PLAY_AHEAD_PIECES)
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._play, name="legato-player", daemon=True)
        self._thread.start()

    def push(self, pcm: np.ndarray) -> None:
        """Play float32 samples [n] after those before; waits only when half a minute waits already."""
        for start in range(0, len(pcm), self._piece):
            self._put(pcm[start : start + self._piece])

    def finish(self) -> None:
        """Wait until everything has been heard."""
        self._put(None)
        self._thread.join()
        self._raise_failure()

    def stop(self) -> None:
        """Be silent now."""
        self._stopped.set()
        self._thread.join()

    def _put(self, piece: np.ndarray | None) -> None:
        while True:
            self._raise_failure()
            try:
                return self._pieces.put(piece, timeout=0.2)
            except queue.Full:
                continue

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise SpeechError(f"the sound device failed: {self._failure}")

    def _play(self) -> None:
        """Feed the device until the end or a stop. Its failure is kept for the pusher."""
        try:
            while not self._stopped.is_set():
                try:
                    piece = self._pieces.get(timeout=PLAY_PIECE_S)
                except queue.Empty:
                    continue
                if piece is None:
                    self._stream.stop()  # after what the device still holds
                    break
                self._stream.write(np.ascontiguousarray(piece, np.float32).reshape(-1, 1))
            self._stream.close(ignore_errors=True)
        except self._device.PortAudioError as error:
            self._failure = error


def sounddevice() -> ModuleType:
    """The sounddevice package. Raises SpeechError saying what to install."""
    try:
        import sounddevice as module
    except ImportError:
        raise SpeechError("sound devices need the package sounddevice: pip install 'legato-speech[play]'") from None
    except OSError as error:
        # Its wheels for Linux come without the library that they load.
        raise SpeechError(f"sounddevice cannot play here ({error}); on Debian: apt install libportaudio2") from None
    return module  # type: ignore[no-any-return]


def check_device() -> str:
    """The name of the default output device. Raises SpeechError when nothing can play."""
    module = sounddevice()
    try:
        return str(module.query_devices(kind="output")["name"])
    except (module.PortAudioError, ValueError) as error:
        raise SpeechError(f"no sound output device was found ({error}); use -o to write a file instead") from None


def _open_stream(module: ModuleType, sample_rate_hz: int) -> Any:
    try:
        stream = module.OutputStream(samplerate=sample_rate_hz, channels=1, dtype="float32")
        stream.start()
    except (module.PortAudioError, ValueError) as error:
        raise SpeechError(f"the sound device cannot be opened ({error}); use -o to write a file instead") from None
    return stream
