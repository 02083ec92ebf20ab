"""The vocoder stage: mel blocks in, samples out, so that the pieces are the whole.

A window loads `reach` frames on either side of what it keeps. If that covers the vocoder's receptive field, the kept
samples are final and pieces simply follow one another. A vocoder that declares itself inexact is blended: the samples
around a join are rendered by both windows and cross-faded, two renderings of the *same* samples, so no time is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from legato.protocols import ContinuingVocoder, Vocoder, VocoderPiece
from legato.types import MelBlock, Rates, Samples, UtteranceId


@dataclass
class _Track:
    """One utterance: `mel` holds frames [first_frame, …) that a window may still need."""

    mel: Tensor | None = None
    first_frame: int = 0
    done_frame: int = 0
    blocks: deque[MelBlock] = field(default_factory=deque)
    tail: np.ndarray | None = None
    history: Any = None


@dataclass(frozen=True)
class VocoderWindow:
    """Frames [load_start, …) of an utterance's mel, of which [keep_start, keep_stop) become samples.

    Its samples [keep_start − blend, keep_stop) are used: the first `blend_frames` are blended into the previous piece.
    `history` is what the vocoder kept of the utterance's past.
    """

    utterance: UtteranceId
    mel: Tensor
    load_start: int
    keep_start: int
    keep_stop: int
    final: bool
    history: Any = None


@dataclass(frozen=True)
class Rendered:
    """The used samples of a window, and what the vocoder keeps for the next one."""

    wave: np.ndarray
    history: Any


class VocoderStage:
    """One window per mel block that arrives, however many have arrived, so the cuts do not depend on timing."""

    def __init__(self, vocoder: Vocoder, rates: Rates, max_windows: int, overlap_ratio: float = 0.5) -> None:
        self.vocoder, self.rates, self.max_windows = vocoder, rates, max_windows
        self._left, self._right = vocoder.reach.left, vocoder.reach.right
        self.blend_frames = 0 if vocoder.exact else max(1, int(self._right * overlap_ratio))
        self._tracks: dict[UtteranceId, _Track] = {}

    def add(self, item: MelBlock) -> None:
        self._tracks.setdefault(item.utterance, _Track()).blocks.append(item)

    def ready(self) -> list[UtteranceId]:
        return [utterance for utterance, track in self._tracks.items() if track.blocks]

    def plan(self, order: Seq[UtteranceId]) -> list[VocoderWindow] | None:
        waiting = [(u, t) for u in order if (t := self._tracks.get(u)) is not None and t.blocks]
        return [self._cut(u, t) for u, t in waiting[: self.max_windows]] or None

    def _cut(self, utterance: UtteranceId, track: _Track) -> VocoderWindow:
        block = track.blocks.popleft()
        mel = block.mel if track.mel is None else torch.cat([track.mel, block.mel.to(track.mel.device)])
        end = track.first_frame + len(mel)
        stop = end if block.final else max(track.done_frame, end - self._right)
        needed = self._needed_from(track.done_frame)
        mel, track.first_frame = mel[max(0, needed - track.first_frame) :], max(needed, track.first_frame)
        window = VocoderWindow(utterance, mel, track.first_frame, track.done_frame, stop, block.final, track.history)
        track.mel, track.done_frame = mel, stop
        return window

    def _needed_from(self, done_frame: int) -> int:
        """The first frame that a window loads which keeps what follows `done_frame`."""
        return 0 if self._left is None else max(0, done_frame - self.blend_frames - self._left)

    @torch.inference_mode()
    def run(self, batch: list[VocoderWindow]) -> list[Rendered]:
        """The used samples of every window; empty where nothing is kept."""
        busy = [window for window in batch if window.keep_stop > window.keep_start]
        rendered = iter(self._render(busy))
        return [next(rendered) if w.keep_stop > w.keep_start else Rendered(_NOTHING, w.history) for w in batch]

    def _render(self, windows: list[VocoderWindow]) -> list[Rendered]:
        if not isinstance(self.vocoder, ContinuingVocoder):
            waves = self.vocoder.forward([window.mel for window in windows])
            return [Rendered(self._used(w, wave), None) for w, wave in zip(windows, waves, strict=True)]
        pieces = [VocoderPiece(w.mel, w.load_start, self._needed_from(w.keep_stop), w.history) for w in windows]
        results = self.vocoder.render(pieces)
        return [Rendered(self._used(w, wave), kept) for w, (wave, kept) in zip(windows, results, strict=True)]

    def _used(self, window: VocoderWindow, wave: Tensor) -> np.ndarray:
        """Samples from the blend before the kept part to the blend after it."""
        hop = self.rates.samples_per_frame
        start = max(window.load_start, window.keep_start - self.blend_frames)
        stop = window.keep_stop
        used: np.ndarray = (
            wave[(start - window.load_start) * hop : (stop - window.load_start) * hop].float().cpu().numpy()
        )
        return used

    def commit(self, batch: list[VocoderWindow], result: list[Rendered]) -> list[Samples]:
        for window, rendered in zip(batch, result, strict=True):
            self._tracks[window.utterance].history = rendered.history
        return [self._emit(window, rendered.wave) for window, rendered in zip(batch, result, strict=True)]

    def _emit(self, window: VocoderWindow, wave: np.ndarray) -> Samples:
        """Blend with what was held back, hold back what the next window will render again, hand on the rest."""
        hop = self.rates.samples_per_frame
        track = self._tracks[window.utterance]
        held = 0 if track.tail is None else len(track.tail)
        start = window.keep_start * hop - held
        if held and len(wave):
            wave = np.concatenate([cross_fade(track.tail, wave[:held]), wave[held:]])  # type: ignore[arg-type]
        elif held:
            wave = track.tail  # type: ignore[assignment]
        hold = 0 if window.final else min(self.blend_frames * hop, len(wave))
        track.tail = wave[len(wave) - hold :] if hold else None
        if window.final:
            del self._tracks[window.utterance]
        return Samples(window.utterance, start, wave[: len(wave) - hold], window.final)

    def drop(self, utterance: UtteranceId) -> None:
        self._tracks.pop(utterance, None)

    def __len__(self) -> int:
        return len(self._tracks)


_NOTHING = np.zeros(0, np.float32)


def cross_fade(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Two renderings of the same samples, the old one fading out and the new one in, along half a Hann window.

    Where they agree the result is what both say, bit for bit.
    """
    rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(len(old), dtype=np.float32) + 0.5) / len(old))
    faded: np.ndarray = (old + rise * (new - old)).astype(np.float32)
    return faded
