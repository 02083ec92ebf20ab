"""Sound at 16 kHz, as it comes → log-mel blocks of Whisper's kind (Radford et al. 2022, arXiv:2212.04356 §2.2).

A frame needs 200 samples on either side of its centre, so a block is complete 40 samples behind its end. The one thing
that looks further is the floor: nothing lies more than 8 below the loudest of the whole clip (`Logs.floored`).

While the rest of a clip is still to be spoken, the loudest so far takes its place. Then quiet bins of an early block
that a louder one follows come out lower than they would have; the same when the loudest is in the first block.

All of it is numpy's: messages are read in the callers' threads, and a second team of torch threads would slow down the
one that speaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from legato.nn.mel import MelSpec, mel_filters

SAMPLE_HZ = 16000
FFT_SAMPLES, HOP_SAMPLES = 400, 160
HALF = FFT_SAMPLES // 2
QUIETEST = 1e-10
DEPTH = 8.0
"""Decades below the loudest that are kept."""

WINDOW = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT_SAMPLES) / FFT_SAMPLES)


@lru_cache(4)
def bands(bins: int) -> list[tuple[int, np.ndarray]]:
    """Mel filters without their zeros: where each begins, and its weights."""
    filters = mel_filters(MelSpec(SAMPLE_HZ, FFT_SAMPLES, HOP_SAMPLES, bins, 0.0, SAMPLE_HZ / 2)).double().numpy()
    out = []
    for row in filters:
        used = np.flatnonzero(row)
        start, stop = (used[0], used[-1] + 1) if len(used) else (0, 1)
        out.append((int(start), row[start:stop]))
    return out


@dataclass(frozen=True, eq=False)
class Logs:
    """Log-mel [frames, bins] of a block without its floor, and the largest value of the clip up to its end."""

    values: np.ndarray
    loudest: float

    def floored(self, loudest: float) -> np.ndarray:
        """The block float32 as the encoder wants it, where `loudest` is the largest value of the clip."""
        return ((np.maximum(self.values, loudest - DEPTH) + 4.0) / 4.0).astype(np.float32)


class LogMel:
    """One clip. `samples` counts what was pushed."""

    def __init__(self, bins: int, block_frames: int) -> None:
        self.block_frames = block_frames
        self._loudest = -np.inf
        self.samples = 0
        self._bands = bands(bins)
        self._head: list[np.ndarray] = []
        self._kept = np.zeros(0, np.float32)
        """From HALF samples before the next block on; empty until enough has come to reflect the start."""

    def push(self, wave: np.ndarray) -> list[Logs]:
        """Samples float32 [n] → the blocks of block_frames that are complete."""
        self.samples += len(wave)
        if len(self._kept):
            self._kept = np.concatenate([self._kept, wave])
        else:
            self._head.append(wave)
            if self.samples <= HALF:
                return []
            self._reflect()
        return self._blocks()

    def finish(self) -> list[Logs]:
        """The rest; the last block may be shorter. No blocks when nothing was pushed."""
        if not self.samples:
            return []
        if not len(self._kept):
            self._head.append(np.zeros(HALF + 1 - self.samples, np.float32))
            self._reflect()
        # From here on silence follows; two frames of it still touch the clip, so that they may be the loudest.
        frames = -(-(len(self._kept) - HALF - self._silence()) // HOP_SAMPLES)
        self._kept = np.concatenate([self._kept, np.zeros((self.block_frames + 3) * HOP_SAMPLES, np.float32)])
        blocks = []
        while frames > self.block_frames:
            blocks.append(self._block(self.block_frames))
            frames -= self.block_frames
        last = self._block(frames + 2)
        return [*blocks, Logs(last.values[:frames], last.loudest)]

    def _silence(self) -> int:
        """Samples that were added to reflect a clip shorter than half a frame."""
        return max(0, HALF + 1 - self.samples)

    def _reflect(self) -> None:
        wave = np.concatenate(self._head)
        self._kept = np.concatenate([wave[HALF:0:-1], wave]).astype(np.float32)
        self._head = []

    def _blocks(self) -> list[Logs]:
        blocks = []
        while len(self._kept) >= (self.block_frames - 1) * HOP_SAMPLES + FFT_SAMPLES:
            blocks.append(self._block(self.block_frames))
        return blocks

    def _block(self, frames: int) -> Logs:
        """Frames [frames, bins] from the start of what is kept; a block's worth of it is given up."""
        wave = self._kept[: (frames - 1) * HOP_SAMPLES + FFT_SAMPLES].astype(np.float64)
        windows = np.lib.stride_tricks.sliding_window_view(wave, FFT_SAMPLES)[::HOP_SAMPLES]
        spectrum = np.fft.rfft(windows * WINDOW)
        power = spectrum.real**2 + spectrum.imag**2
        mels = np.stack([power[:, start : start + len(w)] @ w for start, w in self._bands], 1)
        logs = np.log10(np.maximum(mels, QUIETEST))
        self._loudest = max(self._loudest, float(logs.max()))
        self._kept = self._kept[self.block_frames * HOP_SAMPLES :]
        return Logs(logs, self._loudest)


def log_mel_blocks(wave: np.ndarray, bins: int, block_frames: int) -> list[np.ndarray]:
    """Blocks of a whole clip float32 [n] at SAMPLE_HZ; ceil(n / HOP_SAMPLES) frames in all."""
    mel = LogMel(bins, block_frames)
    blocks = [*mel.push(wave), *mel.finish()]
    return [block.floored(blocks[-1].loudest) for block in blocks]
