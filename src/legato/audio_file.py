"""Sound files in: any common format, rate and channel count, decoded by PyAV."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from legato.errors import RequestError

MAX_SECONDS = 600


def read_audio(path: Path) -> tuple[np.ndarray, int]:
    """Samples float32 [channels, n] and sample rate of a sound file.

    Raises RequestError when there is no such file, when it is not sound, or when it is longer than MAX_SECONDS.
    """
    if not path.is_file():
        raise RequestError(f"there is no sound file at {path}", "prompt_audio")
    try:
        with av.open(str(path)) as container:
            return _decode(container, path)
    except av.FFmpegError as error:
        raise RequestError(f"{path} cannot be read as sound: {error.strerror}", "prompt_audio") from error


def _decode(container: av.container.InputContainer, path: Path) -> tuple[np.ndarray, int]:
    if not container.streams.audio:
        raise RequestError(f"{path} holds no sound", "prompt_audio")
    stream = container.streams.audio[0]
    rate, pieces, length = stream.rate, [], 0
    to_float = av.AudioResampler(format="fltp")
    for frame in container.decode(stream):
        for part in to_float.resample(frame):
            pieces.append(part.to_ndarray())
            length += part.samples
        if length > MAX_SECONDS * rate:
            raise RequestError(f"{path} is longer than {MAX_SECONDS} s", "prompt_audio")
    if not pieces:
        raise RequestError(f"{path} holds no samples", "prompt_audio")
    return np.concatenate(pieces, axis=1), rate
