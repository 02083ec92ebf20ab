"""Sound files in: any common format, rate and channel count, decoded by PyAV. What is in a file is never trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np

from legato.errors import RequestError

MAX_SECONDS = 600

MAX_CHANNELS = 8
"""PyAV reads beyond its memory when it is asked for the samples of more."""

FORMATS = "aac,aiff,amr,avi,caf,flac,flv,matroska,webm,mov,mp4,m4a,mp3,mpeg,mpegts,ogg,wav,w64"
"""Containers that hold their own content. Those that name other files or addresses are not among them."""

NOWHERE = {"format_whitelist": FORMATS, "protocol_whitelist": "none"}


@contextmanager
def opened(content: bytes | Path, name: str, param: str) -> Iterator[av.container.InputContainer]:
    """A media file's container. It reads nothing but the content. Raises RequestError when that cannot be read."""
    try:
        data = content if isinstance(content, bytes) else content.read_bytes()
    except OSError as error:
        raise RequestError(f"{name} cannot be opened: {error.strerror}", param) from error
    if not data:
        raise RequestError(f"{name} is empty", param)
    try:
        with av.open(BytesIO(data), "r", options=NOWHERE, metadata_errors="replace") as container:
            yield container
    except av.FFmpegError as error:
        raise RequestError(f"{name} cannot be read: {error.strerror}", param) from error


def readable(tracks: Sequence[Any]) -> bool:
    """Whether there are tracks, the first of them in a codec that is known."""
    return bool(tracks) and tracks[0].codec_context is not None


def decoded(
    container: av.container.InputContainer, name: str, param: str, most_seconds: float
) -> Iterator[tuple[np.ndarray, int]]:
    """Pieces float32 [channels, n] of the first sound track, each with the rate, which stays the same.

    Raises RequestError when there is no sound, it changes its shape, or is longer than `most_seconds`.
    """
    if not readable(container.streams.audio):
        raise RequestError(f"{name} holds no sound that can be read", param)
    track = container.streams.audio[0]
    rate, samples, channels = track.rate, 0, None
    to_float = av.AudioResampler(format="fltp")
    for frame in container.decode(track):
        count = frame.layout.nb_channels
        if count > MAX_CHANNELS:
            raise RequestError(f"{name} has {count} channels; at most {MAX_CHANNELS} are read", param)
        if frame.sample_rate != rate or (channels or count) != count:
            raise RequestError(f"{name} changes its rate or its channels on the way", param)
        channels = count
        for part in to_float.resample(frame):
            samples += part.samples
            yield part.to_ndarray(), rate
        if samples > most_seconds * rate:
            raise RequestError(f"{name} is longer than {most_seconds:g} s", param)
    if not samples:
        raise RequestError(f"{name} holds no samples", param)


def read_audio(path: Path) -> tuple[np.ndarray, int]:
    """Samples float32 [channels, n] and sample rate of a sound file.

    Raises RequestError when there is no such file, when it is not sound, or when it is longer than MAX_SECONDS.
    """
    if not path.is_file():
        raise RequestError(f"there is no sound file at {path}", "prompt_audio")
    with opened(path, str(path), "prompt_audio") as container:
        pieces, rates = zip(*decoded(container, str(path), "prompt_audio", MAX_SECONDS), strict=True)
    return np.concatenate(pieces, axis=1), rates[0]
