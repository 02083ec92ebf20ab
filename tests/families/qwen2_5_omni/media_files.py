"""Small media files made on the spot."""

from __future__ import annotations

from io import BytesIO

import av
import numpy as np
import soundfile
import torch
from PIL import Image
from torch import Tensor


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pixels(seed: int, *shape: int) -> Tensor:
    """Random bytes."""
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def sine(seconds: float, sample_hz: int = 16000, hz: float = 440.0, level: float = 0.3) -> np.ndarray:
    at = np.arange(round(seconds * sample_hz)) / sample_hz
    return (level * np.sin(2 * np.pi * hz * at)).astype(np.float32)


def sound_file(wave: np.ndarray, sample_hz: int, kind: str = "WAV") -> bytes:
    out = BytesIO()
    subtype = "FLOAT" if kind == "WAV" else None
    soundfile.write(out, wave.T if wave.ndim == 2 else wave, sample_hz, format=kind, subtype=subtype)
    return out.getvalue()


def picture_file(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    """pixels uint8 [height, width, 3]"""
    out = BytesIO()
    Image.fromarray(pixels).save(out, format=kind)
    return out.getvalue()


def film_file(pictures: np.ndarray, picture_hz: int, wave: np.ndarray | None = None, sample_hz: int = 16000) -> bytes:
    """Pictures uint8 [n, height, width, 3], kept without loss, and perhaps a sound track, as Matroska."""
    out = BytesIO()
    with av.open(out, "w", format="matroska") as container:
        film = container.add_stream("ffv1", rate=picture_hz)
        film.height, film.width, film.pix_fmt = pictures.shape[1], pictures.shape[2], "bgr0"
        track = None if wave is None else container.add_stream("pcm_s16le", rate=sample_hz, layout="mono")
        for picture in pictures:
            container.mux(film.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(film.encode())
        if track is not None and wave is not None:
            frame = av.AudioFrame.from_ndarray((wave[None] * 32767).astype(np.int16), format="s16", layout="mono")
            frame.sample_rate = sample_hz
            container.mux(track.encode(frame))
            container.mux(track.encode())
    return out.getvalue()
