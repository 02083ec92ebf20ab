"""The flow stage: codec tokens in, mel blocks out. One step is one ODE step of the most urgent windows."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import torch

from legato.protocols import Flow, FlowWindow
from legato.types import MelBlock, Ramp, Rates, SpeechTokens, UtteranceId, Voice

from .noise import NoiseTape
from .windows import Window, WindowCutter


@dataclass
class _Track:
    """One utterance in this stage."""

    cutter: WindowCutter
    noise: NoiseTape
    voice: Voice
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    history: Any = None
    window: FlowWindow | None = None


class FlowStage:
    """Windows of different utterances, at different ODE steps, advance together; each utterance has one at a time.

    At most `max_windows` share a step.
    """

    def __init__(self, flow: Flow, rates: Rates, ramp: Ramp, max_windows: int) -> None:
        self.flow, self.rates, self.max_windows = flow, rates, max_windows
        block = flow.facts.block_tokens
        self._keep_tokens = tuple(blocks * block for blocks in ramp.keep_blocks)
        self._ahead_tokens = tuple(blocks * block for blocks in ramp.ahead_blocks)
        self._tracks: dict[UtteranceId, _Track] = {}

    def start(self, utterance: UtteranceId, seed: int, voice: Voice) -> None:
        """Expect tokens of this utterance."""
        facts = self.flow.facts
        cutter = WindowCutter(self._keep_tokens, facts.left_tokens, self._ahead_tokens)
        block_frames = facts.block_tokens * self.rates.frames_per_token
        self._tracks[utterance] = _Track(cutter, NoiseTape(seed, facts.mel_bins, block_frames), voice)

    def add(self, item: SpeechTokens) -> None:
        track = self._tracks[item.utterance]
        if item.start_token != len(track.tokens):
            raise ValueError(f"tokens of {item.utterance} start at {item.start_token}, expected {len(track.tokens)}")
        track.tokens.extend(item.ids)
        track.ended = track.ended or item.final

    def ready(self) -> list[UtteranceId]:
        return [utterance for utterance, track in self._tracks.items() if self._window(utterance, track) is not None]

    def _window(self, utterance: UtteranceId, track: _Track) -> FlowWindow | None:
        """The window on its way, or the next one if its tokens are there."""
        if track.window is None:
            cut = track.cutter.next(len(track.tokens), track.ended)
            track.window = None if cut is None else self._load(utterance, track, cut)
        return track.window

    def _load(self, utterance: UtteranceId, track: _Track, cut: Window) -> FlowWindow:
        frames = self.rates.frames_per_token
        noise = track.noise.read(cut.keep_start * frames, cut.load_stop * frames)
        return FlowWindow(
            utterance=utterance,
            start_frame=cut.keep_start * frames,
            keep_frames=(cut.keep_stop - cut.keep_start) * frames,
            tokens=torch.tensor(track.tokens[cut.load_start : cut.load_stop], dtype=torch.long),
            left_tokens=cut.keep_start - cut.load_start,
            noise=noise,
            voice=track.voice,
            history=track.history,
            final=cut.final,
        )

    def plan(self, order: Seq[UtteranceId]) -> list[FlowWindow] | None:
        tracks = ((utterance, self._tracks.get(utterance)) for utterance in order)
        windows = [w for u, track in tracks if track is not None and (w := self._window(u, track)) is not None]
        return windows[: self.max_windows] or None

    @torch.inference_mode()
    def run(self, batch: list[FlowWindow]) -> None:
        batch = [window for window in batch if window.keep_frames]
        for window in batch:
            if window.step == 0:
                self.flow.open(window)
        if batch:
            self.flow.advance(batch)

    @torch.inference_mode()
    def commit(self, batch: list[FlowWindow], _: None) -> list[MelBlock]:
        finished = [w for w in batch if w.step >= self.flow.facts.ode_steps or not w.keep_frames]
        return [self._finish(window) for window in finished]

    def _finish(self, window: FlowWindow) -> MelBlock:
        track = self._tracks[window.utterance]
        if window.keep_frames:
            mel, track.history = self.flow.close(window)
        else:
            mel = window.noise[:0]
        track.window = None
        if window.final:
            del self._tracks[window.utterance]
        return MelBlock(window.utterance, window.start_frame, mel, window.final)

    def blocks(self, batch: list[FlowWindow]) -> int:
        """Blocks that one ODE step of these windows computes."""
        frames = self.flow.facts.block_tokens * self.rates.frames_per_token
        return sum(-(-len(window.noise) // frames) for window in batch)

    def drop(self, utterance: UtteranceId) -> None:
        self._tracks.pop(utterance, None)

    def __len__(self) -> int:
        return len(self._tracks)
