"""PCM → bytes of one audio format. One encoder per response, open from the first sample to the last.

A new container per chunk would put silence at every join, and an encoder read before its flush would lose the tail; so
every encoder here is pushed sample by sample and ends with `finish`, which flushes resampler, codec and container.
Every format sees the same 16-bit samples: decoded flac, wav and pcm are equal.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Protocol, cast

import av
import numpy as np
import numpy.typing as npt

from legato.errors import UnsupportedFormat

PCM_RATE_HZ = 24000
"""Rate of the `pcm` format whatever the model's own: it has no header, and clients take 24 kHz for granted."""

SIZE_UNKNOWN = 0xFFFFFFFF
"""What a streamed wav says where a file says its sizes."""


@dataclass(frozen=True)
class Format:
    """One audio format: its HTTP type, file extensions and, for compressed ones, how PyAV makes it."""

    name: str
    content_type: str
    extensions: tuple[str, ...]
    container: str = ""
    codec: str = ""
    bit_rate: int | None = None
    stream_container_options: dict[str, str] = field(default_factory=dict)
    stream_codec_options: dict[str, str] = field(default_factory=dict)


_EQUAL_SOUND_EQUAL_BYTES = {"fflags": "+bitexact"}  # Ogg would draw a number for itself

# The stream options take out what a file may have and a stream must not wait for or carry before its first sound:
# tags and the Xing frame of mp3, Ogg's pages of a whole second, flac's long frames (96 ms at 24 kHz; 27 at level 2)
# and its 8 kB of padding.
_UNTAGGED = {"id3v2_version": "0", "write_xing": "0"}
FORMATS = {
    form.name: form
    for form in (
        Format("mp3", "audio/mpeg", (".mp3",), "mp3", "libmp3lame", 96_000, _UNTAGGED),
        Format("opus", "audio/ogg", (".opus", ".ogg"), "ogg", "libopus", 48_000, {"page_duration": "40000"}),
        Format("aac", "audio/aac", (".aac",), "adts", "aac", 96_000),
        Format(
            *("flac", "audio/flac", (".flac",), "flac", "flac", None),
            stream_container_options={"metadata_header_padding": "0"},
            stream_codec_options={"compression_level": "2"},
        ),
        Format("wav", "audio/wav", (".wav",)),
        Format("pcm", "audio/pcm", (".pcm", ".raw")),
    )
}


class Encoder(Protocol):
    """Push float32 samples [n] in [-1, 1] (beyond is clipped), get bytes; `finish` once, at the end."""

    def push(self, pcm: npt.NDArray[np.float32]) -> bytes:
        """Bytes that are final after these samples; may be empty."""

    def finish(self) -> bytes:
        """All bytes still held back."""


def find_format(name: str) -> Format:
    """The format of that name, or UnsupportedFormat."""
    if name not in FORMATS:
        raise UnsupportedFormat(name, tuple(FORMATS))
    return FORMATS[name]


def format_for(path: Path) -> Format:
    """The format a file's extension stands for, or UnsupportedFormat."""
    extension = path.suffix.lower()
    for form in FORMATS.values():
        if extension in form.extensions:
            return form
    raise UnsupportedFormat(extension or path.name, tuple(e for form in FORMATS.values() for e in form.extensions))


def open_encoder(form: Format, sample_rate_hz: int, *, whole: bool = False) -> Encoder:
    """An encoder for samples of that rate.

    A `whole` encoder gives every byte in `finish`, with exact sizes in the headers: a file rather than a stream.
    """
    if form.name == "pcm":
        return PcmEncoder(sample_rate_hz)
    if form.name == "wav":
        return WavEncoder(sample_rate_hz, whole)
    return CodecEncoder(form, sample_rate_hz, whole)


def encode_whole(pcm: npt.NDArray[np.float32], sample_rate_hz: int, form: Format) -> bytes:
    """A complete file of these samples."""
    encoder = open_encoder(form, sample_rate_hz, whole=True)
    return encoder.push(pcm) + encoder.finish()


def to_int16(pcm: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    """Little-endian 16-bit samples; what is beyond full scale is clipped, it does not wrap."""
    samples: npt.NDArray[np.int16] = np.rint(np.clip(pcm, -1.0, 1.0) * 32767.0).astype("<i2")
    return samples


class WavEncoder:
    """RIFF with 16-bit mono samples. The header leaves with the first samples: before them nothing is known to work."""

    def __init__(self, sample_rate_hz: int, whole: bool) -> None:
        self._rate_hz, self._whole = sample_rate_hz, whole
        self._held = bytearray()
        self._started = False

    def push(self, pcm: npt.NDArray[np.float32]) -> bytes:
        data = to_int16(pcm).tobytes()
        if self._whole:
            self._held += data
            return b""
        if self._started or not data:
            return data
        self._started = True
        return wav_header(self._rate_hz, None) + data

    def finish(self) -> bytes:
        if self._whole:
            return wav_header(self._rate_hz, len(self._held)) + bytes(self._held)
        return b"" if self._started else wav_header(self._rate_hz, None)


def wav_header(sample_rate_hz: int, data_bytes: int | None) -> bytes:
    """The 44 bytes before 16-bit mono samples; sizes of a stream (None) are unknown."""
    riff_bytes = SIZE_UNKNOWN if data_bytes is None else 36 + data_bytes
    fmt = struct.pack("<HHIIHH", 1, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16)
    data_size = SIZE_UNKNOWN if data_bytes is None else data_bytes
    return (
        struct.pack("<4sI4s4sI", b"RIFF", riff_bytes, b"WAVE", b"fmt ", len(fmt))
        + fmt
        + struct.pack("<4sI", b"data", data_size)
    )


class PcmEncoder:
    """Bare 16-bit mono samples at PCM_RATE_HZ."""

    def __init__(self, sample_rate_hz: int) -> None:
        self._frames = Frames(sample_rate_hz)
        self._resampler = av.AudioResampler("s16", "mono", PCM_RATE_HZ)

    def push(self, pcm: npt.NDArray[np.float32]) -> bytes:
        return self._resampled(self._frames.next(pcm)) if len(pcm) else b""

    def finish(self) -> bytes:
        return self._resampled(None) if self._frames.position_samples else b""

    def _resampled(self, frame: av.AudioFrame | None) -> bytes:
        return b"".join(out.to_ndarray().tobytes() for out in self._resampler.resample(frame))


class CodecEncoder:
    """A compressed format through PyAV, which resamples where the codec does not take the rate."""

    def __init__(self, form: Format, sample_rate_hz: int, whole: bool) -> None:
        self._frames = Frames(sample_rate_hz)
        self._file = io.BytesIO() if whole else None
        self._sink = Sink()
        self._container = av.open(
            self._sink if self._file is None else self._file,
            "w",
            format=form.container,
            container_options=_EQUAL_SOUND_EQUAL_BYTES | ({} if whole else form.stream_container_options),
        )
        rate_hz = codec_rate_hz(form.codec, sample_rate_hz)
        options = {} if whole else form.stream_codec_options
        stream = self._container.add_stream(form.codec, rate=rate_hz, options=options, layout="mono")
        self._stream = cast(av.AudioStream, stream)
        if form.bit_rate is not None:
            self._stream.bit_rate = form.bit_rate

    def push(self, pcm: npt.NDArray[np.float32]) -> bytes:
        if len(pcm):
            self._container.mux(self._stream.encode(self._frames.next(pcm)))
        return self._sink.take()

    def finish(self) -> bytes:
        self._container.start_encoding()  # so that an empty stream has its headers too
        if self._frames.position_samples:
            self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.take() if self._file is None else self._file.getvalue()


def codec_rate_hz(codec: str, sample_rate_hz: int) -> int:
    """The codec's lowest rate that keeps all of the sound, or its highest."""
    rates = av.codec.Codec(codec, "w").audio_rates
    if rates is None:
        return sample_rate_hz
    return min((rate for rate in rates if rate >= sample_rate_hz), default=max(rates))


class Frames:
    """Samples as PyAV frames with absolute time stamps."""

    def __init__(self, sample_rate_hz: int) -> None:
        self.sample_rate_hz = sample_rate_hz
        self.position_samples = 0

    def next(self, pcm: npt.NDArray[np.float32]) -> av.AudioFrame:
        frame = av.AudioFrame.from_ndarray(to_int16(pcm)[None, :], format="s16", layout="mono")
        frame.sample_rate, frame.time_base = self.sample_rate_hz, Fraction(1, self.sample_rate_hz)
        frame.pts = self.position_samples
        self.position_samples += len(pcm)
        return frame


class Sink:
    """A file that can be written and not sought in, so that PyAV streams into it."""

    def __init__(self) -> None:
        self._held = bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._held)
        self._held.clear()
        return data
