"""GLM-TTS's flow: codec ids → log-mel, by Euler steps with guidance, after the voice's own recording.

    streaming   windows: the prompt, the last `history_tokens` spoken, the new tokens, a constant look-ahead. Frames
                that were handed on are held, step for step, on the path they took, so what follows fits what was
                heard; noise belongs to the absolute frame. The cost of a window does not grow. Ours, the default.
    offline     the whole utterance at once, as the release's only reachable path: lengths and all.

Why windows are approximate: the net attends to everything and norms over all time, so every frame depends on all
others, and streaming cannot equal offline. What is exact: a schedule of windows gives the same mel however its tokens
arrive and whatever is computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.ode import cosine_grid, guided
from legato.protocols import FlowFacts, FlowWindow

from .blocks import BLOCK_TOKENS, sees_until
from .config import FlowSettings
from .dit import NO_FRAME, DiT, Rows, padded, stack
from .voices import GlmVoice

GUIDANCE = 0.7
ODE_STEPS = 10
GRID_TOKENS = 5
"""Streaming windows are multiples of this."""

LOOK_AHEAD_BLOCKS = 2
HISTORY_TOKENS = 50
LONGEST_TOKENS = 2048
"""An offline window: beyond it all token positions look alike."""

PROMPT_NOISE_SEED = 0

Mode = Literal["streaming", "offline"]


def prompt_noise(frames: int, bins: int) -> Tensor:
    """Noise [frames, bins] under the prompt, the same for every utterance: its mel is known."""
    return torch.randn(frames, bins, generator=torch.Generator().manual_seed(PROMPT_NOISE_SEED))


@dataclass(frozen=True)
class Held:
    """Frames whose path is known: before ODE step s, x[:, positions] is path[s], of [steps, n, bins]."""

    positions: Tensor
    path: Tensor


@dataclass
class Path:
    """One window on its way: x [T, bins]; `rows` has both guidance branches; `trace` holds x before every step."""

    x: Tensor
    rows: Rows
    held: Held | None
    step: int = 0
    trace: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class History:
    """Paths of the prompt's frames and of the last frames spoken: [steps, n, bins] each."""

    prompt: Tensor
    past: Tensor


@dataclass(frozen=True)
class Place:
    """Where a streaming window's parts lie among its positions."""

    frames: Tensor
    prompt: int
    past: slice
    fresh: slice


class GlmFlow(nn.Module):
    """The net, its time grid and the ways to cut. Holds nothing of any utterance.

    With `together` windows of one step share one call, filled up to the longest; without, each is computed by itself,
    so its bits do not depend on what is beside it.
    """

    def __init__(
        self,
        dit: DiT,
        settings: FlowSettings,
        mode: Mode = "streaming",
        *,
        steps: int = ODE_STEPS,
        history_tokens: int = HISTORY_TOKENS,
        together: bool = False,
    ) -> None:
        super().__init__()
        self.dit, self.settings, self.mode, self.together = dit, settings, mode, together
        self.per_token = settings.frame_hz // settings.token_hz
        self.prompt_noise: Callable[[int, int], Tensor] = prompt_noise
        self._history_frames = history_tokens * self.per_token
        self._times, self._strides = time_grid(steps, cosine=settings.cosine_time)
        streaming = mode == "streaming"
        block = GRID_TOKENS if streaming else LONGEST_TOKENS
        self.facts = FlowFacts(
            block_tokens=block,
            look_back_blocks=history_tokens // block if streaming else 0,
            look_ahead_blocks=LOOK_AHEAD_BLOCKS if streaming else 0,
            left_tokens=history_tokens if streaming else 0,
            ode_steps=steps,
            mel_bins=dit.sizes.mel_bins,
        )

    @property
    def _device(self) -> torch.device:
        return self.dit.outputs.weight.device

    # --- the contract ---

    @torch.inference_mode()
    def open(self, window: FlowWindow) -> None:
        voice: GlmVoice = window.voice.facts
        opened = self._open_streaming if self.mode == "streaming" else self._open_offline
        window.state = opened(window, voice)

    @torch.inference_mode()
    def advance(self, windows: Seq[FlowWindow]) -> None:
        self.step([window.state for window in windows])
        for window in windows:
            window.step += 1

    @torch.inference_mode()
    def close(self, window: FlowWindow) -> tuple[Tensor, History | None]:
        voice: GlmVoice = window.voice.facts
        path: Path = window.state
        if self.mode == "offline":
            return path.x[len(voice.mel) :], None
        place = self._place(window, voice)
        kept = slice(place.fresh.start, place.fresh.start + window.keep_frames)
        if window.final:
            return path.x[kept], None
        trace = torch.stack(path.trace)
        spoken = trace[:, place.past.start : kept.stop][:, -self._history_frames :]
        return path.x[kept], History(trace[:, : place.prompt], spoken)

    # --- streaming ---

    def _open_streaming(self, window: FlowWindow, voice: GlmVoice) -> Path:
        place = self._place(window, voice)
        codes = torch.tensor([*voice.speech_ids, *window.tokens.tolist()])
        past = place.past.stop - place.past.start
        at = torch.cat([torch.arange(place.prompt), torch.arange(place.past.start, len(place.frames))])
        x = torch.zeros(len(place.frames), self.facts.mel_bins)
        x[: place.prompt] = self.prompt_noise(place.prompt, self.facts.mel_bins)
        x[place.fresh] = window.noise.cpu()
        mel = torch.zeros_like(x)
        known = voice.mel[: place.prompt]
        mel[: len(known)] = known.cpu()
        ids = torch.zeros(len(place.frames), dtype=torch.long)
        ids[at] = codes.repeat_interleave(self.per_token)
        history: History | None = window.history
        held = None
        if history is not None:
            positions = torch.cat([torch.arange(place.prompt), torch.arange(place.past.start, place.past.stop)])
            path = torch.cat([history.prompt, history.past[:, history.past.shape[1] - past :]], 1)
            held = Held(positions.to(self._device), path)
        blocks = [len(voice.speech_ids), *BLOCK_TOKENS]
        rows = self.rows(ids, place.frames, mel, voice.speaker, blocks)
        return Path(x.to(self._device), rows, held)

    def _place(self, window: FlowWindow, voice: GlmVoice) -> Place:
        """The prompt, then what is left of the past, then the fresh frames; a gap where frames between are forgotten.

        The gap is as wide as the widest convolution sees, so that nothing is mixed across it.
        """
        prompt = len(voice.speech_ids) * self.per_token
        past = window.left_tokens * self.per_token
        first = window.start_frame - past
        gap = self.dit.sizes.conv_kernel // 2 if first and prompt else 0
        frames = torch.arange(past + len(window.noise)) + prompt + first
        start = prompt + gap
        return Place(
            frames=torch.cat([torch.arange(prompt), torch.full((gap,), NO_FRAME), frames]),
            prompt=prompt,
            past=slice(start, start + past),
            fresh=slice(start + past, start + len(frames)),
        )

    # --- offline ---

    def _open_offline(self, window: FlowWindow, voice: GlmVoice) -> Path:
        if not window.final or window.start_frame:
            raise ValueError(f"an offline utterance is one window of at most {LONGEST_TOKENS} tokens")
        codes = torch.tensor([*voice.speech_ids, *window.tokens.tolist()])
        frames = self.length(len(codes))
        lead = max(0, frames - len(window.noise))
        x = torch.cat([self.prompt_noise(lead, self.facts.mel_bins), window.noise.cpu()[:frames]])
        return self.whole(codes, voice, x)

    def length(self, tokens: int) -> int:
        """Mel frames of that many tokens, rounded down as the release does: sometimes one less than twice as many."""
        return int(tokens / self.settings.token_hz * self.settings.frame_hz)

    def whole(self, codes: Tensor, voice: GlmVoice, x: Tensor, blocks: Seq[int] | None = None) -> Path:
        """The path of all tokens, prompt included, from noise x [frames, bins]. `blocks` as in `sees_until`."""
        frames = torch.arange(len(x))
        mel = torch.zeros_like(x)
        known = voice.mel[-len(x) :]
        mel[: len(known)] = known.cpu()
        ids = codes.repeat_interleave(self.per_token)[: len(x)]
        return Path(x.to(self._device), self.rows(ids, frames, mel, voice.speaker, blocks), None)

    # --- the net ---

    def rows(self, ids: Tensor, frames: Tensor, mel: Tensor, speaker: Tensor, blocks: Seq[int] | None) -> Rows:
        """Both guidance branches of one window: with prompt mel and speaker, and without."""
        device = self._device
        ids, frames, mel = ids.to(device)[None], frames.to(device)[None], mel.to(device)[None]
        tokens = self.dit.tokens(ids, frames)
        without = self.dit.tokens(torch.zeros_like(ids), frames) if self.settings.token_guidance else tokens
        mels, features = torch.cat([mel, torch.zeros_like(mel)]), torch.cat([tokens, without])
        voice = F.normalize(speaker.to(device).float()[None], dim=1)
        mask = self._mask(frames[0], blocks)
        return Rows(
            fixed=self.dit.fixed(mels, features),
            frames=frames.expand(2, -1),
            mask=None if mask is None else mask.expand(2, -1, -1, -1),
            speaker=torch.cat([voice, torch.zeros_like(voice)]),
        )

    @staticmethod
    def _mask(frames: Tensor, blocks: Seq[int] | None) -> Tensor | None:
        """Where attention may look, [1, 1, 1 or T, T]; None if it may look everywhere."""
        real = frames >= 0
        last = int(frames.max()) + 1
        until = None if blocks is None else sees_until(last, blocks).to(frames.device)[frames.clamp(min=0)]
        if until is None or bool((until >= last).all()):
            return None if bool(real.all()) else real[None, None, None]
        return ((frames[None] < until[:, None]) & real[None])[None, None]

    def step(self, paths: Seq[Path]) -> None:
        """One ODE step of every path, each at its own."""
        for path in paths:
            if path.held is not None:
                path.x[path.held.positions] = path.held.path[path.step]
            path.trace.append(path.x)
        for group in [paths] if self.together else [[path] for path in paths]:
            for path, velocity in zip(group, self._velocities(group), strict=True):
                path.x = path.x + self._strides[path.step] * velocity
                path.step += 1

    def _velocities(self, paths: Seq[Path]) -> list[Tensor]:
        longest = max(len(path.x) for path in paths)
        x = torch.cat([padded(path.x.expand(2, -1, -1), longest) for path in paths])
        times = torch.tensor([self._times[path.step] for path in paths], device=x.device).repeat_interleave(2)
        velocity = self.dit(x, times, stack([path.rows for path in paths])).unflatten(0, (-1, 2))
        mixed = guided(velocity[:, 0], velocity[:, 1], GUIDANCE)
        return [row[: len(path.x)] for row, path in zip(mixed, paths, strict=True)]


def time_grid(steps: int, *, cosine: bool) -> tuple[list[float], list[float]]:
    """Times and strides of the Euler steps, summed up in float32 as the release sums them."""
    grid = cosine_grid(steps) if cosine else torch.linspace(0, 1, steps + 1)
    time, times, strides = grid[0], [], []
    for following in grid[1:]:
        stride = following - time
        times.append(float(time))
        strides.append(float(stride))
        time = time + stride
    return times, strides
