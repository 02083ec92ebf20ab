"""Piccolo's flow: codec tokens → log-mel by a block-attention DiT and Euler steps.

The past of a window is kept in one of two ways:

    kv          keys and values of the last finished block at the look-back layers, for every ODE step and guidance
                branch. Only new frames are computed. The default.
    recompute   the last `look_back` blocks are computed again with every window, held on the straight path between
                their noise and their mel. Twice the work; it is how the first script ran these weights.

A voice with a reference starts every utterance with a past: the last blocks of the reference, held in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.dit import BlockDiT, Neighbours, Stored
from legato.nn.dit_windows import WindowInput, evaluate, in_blocks, neighbours
from legato.nn.layers import Linear
from legato.nn.ode import cosine_grid, guided
from legato.protocols import FlowFacts, FlowWindow

from .config import PiccoloConfig
from .said import UNKNOWN, unknown, unpack
from .speaker import SpeakerEncoder
from .voices import PiccoloVoice

BRANCHES = 2
"""With and without conditioning, for guidance."""

REFERENCE_SEED = 0
"""Of the noise that a reference is held to; the same for every utterance, so it is computed once per voice."""

Past = Literal["kv", "recompute"]


class TokenEncoder(nn.Module):
    """Codes at the token rate → conditioning and a first guess of the mel at twice that rate.

    With `around`, tokens are packed with the phonemes around them (see said.py), each place with its own embedding.
    """

    KERNELS = (5, 5, 3)
    REACH_TOKENS = sum(kernel // 2 for kernel in KERNELS)

    def __init__(self, codes: int, width: int, mel_bins: int, around: int = 0) -> None:
        super().__init__()
        self.around = around
        self.embedding = nn.Embedding(codes + 1, width)
        self.said = nn.ModuleList(nn.Embedding(UNKNOWN + 1, width) for _ in range(2 * around + 1 if around else 0))
        self.depthwise = nn.ModuleList(nn.Conv1d(width, width, k, padding=k // 2, groups=width) for k in self.KERNELS)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.KERNELS)
        self.inner = nn.ModuleList(Linear(width, 2 * width) for _ in self.KERNELS)
        self.outer = nn.ModuleList(Linear(2 * width, width) for _ in self.KERNELS)
        self.upsample, self.guess = Linear(width, 2 * width), Linear(width, mel_bins)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [branches, n] → [branches, 2n, bins + width]: the guess, then the conditioning."""
        codes, phonemes = unpack(tokens, self.around) if self.around else (tokens, tokens[..., None])
        x = self.embedding(codes)
        for place, embedding in enumerate(self.said):
            x = x + embedding(phonemes[..., place])
        for depthwise, norm, inner, outer in zip(self.depthwise, self.norms, self.inner, self.outer, strict=True):
            y = norm(depthwise(x.transpose(1, 2)).transpose(1, 2))
            x = x + outer(F.gelu(inner(y)))
        h = self.upsample(x).reshape(x.shape[0], 2 * x.shape[1], -1)
        return torch.cat([self.guess(h), h], -1)


@dataclass
class _History:
    """What is kept of an utterance's past: stored[step][layer] (kv), or the last blocks' noise and mel (recompute)."""

    stored: list[list[Stored]]
    noise: Tensor
    mel: Tensor


@dataclass
class _State:
    """One window on its way: `x` and `noise` [blocks, b, bins], `conditioning` [branches, blocks, b, D].

    The first `past` blocks are held (recompute only).
    """

    x: Tensor
    noise: Tensor
    conditioning: Tensor
    near: Neighbours
    past: int
    kept: int
    known: Tensor
    stored: list[list[Stored]]


class PiccoloFlow(nn.Module):
    """Token encoder, DiT, time grid."""

    def __init__(self, config: PiccoloConfig, past: Past = "kv") -> None:
        super().__init__()
        self.config, self.past = config, past
        self.encoder = TokenEncoder(config.codes, config.dit.width, config.mel_bins, config.phonemes_around)
        self.nothing = unknown(config.phonemes_around) + config.codes
        """The token that stands for none."""

        self.dit = BlockDiT(config.dit)
        self.speaker: SpeakerEncoder | None = None
        if config.speaker_width:
            self.speaker = SpeakerEncoder(config.mel_bins, config.mel_mean, config.mel_std, config.speaker_width)
            self.speaker_inputs = Linear(config.speaker_width, config.dit.width)
        self._block = config.dit.block_frames
        self._block_tokens = self._block // config.rates.frames_per_token
        self._back_blocks = len(config.dit.look_back_layers)
        recomputed = self._back_blocks * self._block_tokens
        self.facts = FlowFacts(
            block_tokens=self._block_tokens,
            look_back_blocks=self._back_blocks,
            look_ahead_blocks=len(config.dit.look_ahead_layers),
            left_tokens=recomputed if past == "recompute" else TokenEncoder.REACH_TOKENS,
            ode_steps=config.ode_steps,
            mel_bins=config.mel_bins,
        )

    def prepare(self) -> None:
        """Tabulate what depends on the fixed time grid only; to be called once the weights are in place."""
        grid = cosine_grid(self.config.ode_steps)
        self._grid = [float(t) for t in grid]
        self._modulations = self.dit.modulations(grid[:-1].to(self.dit.time_in.weight.device))
        self._references: WeakKeyDictionary[PiccoloVoice, _History] = WeakKeyDictionary()

    def features(self, tokens: Tensor, speaker: Tensor | None) -> Tensor:
        """Conditioning [B, 2n, bins + width] of tokens [B, n] and who speaks [B, speaker_width]."""
        features: Tensor = self.encoder(tokens)
        if speaker is None:
            return features
        return features + F.pad(self.speaker_inputs(speaker), (self.config.mel_bins, 0))[:, None]

    def _branches(self, tokens: Tensor, voice: PiccoloVoice | None) -> Tensor:
        """Features [branches, 2n, bins + width] with the tokens and without."""
        device = self.dit.condition.weight.device
        tokens = tokens.to(device)
        branches = torch.stack([tokens, torch.full_like(tokens, self.nothing)])
        if voice is None:
            return self.features(branches, None)
        speaker = voice.speaker.to(device)
        return self.features(branches, torch.stack([speaker, torch.zeros_like(speaker)]))

    def open(self, window: FlowWindow) -> None:
        device = self.dit.condition.weight.device
        fresh = window.noise.to(device)
        voice: PiccoloVoice | None = window.voice.facts
        features = self._branches(window.tokens, voice)
        history: _History | None = window.history
        if history is None and voice is not None:
            history = window.history = self._reference(voice)
        empty = fresh.new_zeros(0, self._block, self.config.mel_bins)
        recompute = self.past == "recompute" and history is not None
        known, noise = (history.mel, history.noise) if recompute and history is not None else (empty, empty)
        first_frame = (window.left_tokens - known.shape[0] * self._block_tokens) * self.config.rates.frames_per_token
        frames = known.shape[0] * self._block + len(fresh)
        noise = torch.cat([noise, self._blocks(fresh)])
        window.state = _State(
            x=noise.clone(),
            noise=noise,
            conditioning=self.dit.condition(self._blocks(features[:, first_frame : first_frame + frames])),
            near=neighbours(frames, self._block, BRANCHES, history is not None and not recompute, device),
            past=known.shape[0],
            kept=window.keep_frames // self._block,
            known=known,
            stored=[],
        )

    def _blocks(self, frames: Tensor) -> Tensor:
        """[…, F, C] → […, blocks, b, C], the last block filled with zeros."""
        return in_blocks(frames, self._block)

    @torch.inference_mode()
    def _reference(self, voice: PiccoloVoice) -> _History:
        """The past that a voice gives to its utterances: a pure function of the voice, kept while that lives."""
        if (kept := self._references.get(voice)) is not None:
            return kept
        device = self.dit.condition.weight.device
        known = self._blocks(((voice.mel - self.config.mel_mean) / self.config.mel_std).to(device))
        noise = torch.randn(known.shape, generator=torch.Generator().manual_seed(REFERENCE_SEED)).to(device)
        tokens = torch.tensor(voice.mel_codes) + unknown(self.config.phonemes_around)
        conditioning = self.dit.condition(self._blocks(self._branches(tokens, voice)))
        near = neighbours(len(voice.mel), self._block, BRANCHES, False, device)
        stored = []
        for step, t in enumerate(self._grid[:-1]):
            x = self.dit.state_inputs((1 - t) * noise + t * known) + conditioning
            (output,) = evaluate(self.dit, self._modulations, [WindowInput(x, step, near, None)])
            stored.append(output.block(len(known) - 1))
        self._references[voice] = _History(stored=stored, noise=noise, mel=known)
        return self._references[voice]

    @torch.inference_mode()
    def advance(self, windows: Seq[FlowWindow]) -> None:
        states: list[_State] = [window.state for window in windows]
        for window, state in zip(windows, states, strict=True):
            self._hold_past(state, self._grid[window.step])
        inputs = [
            WindowInput(self.dit.state_inputs(s.x) + s.conditioning, w.step, s.near, self._stored(w))
            for w, s in zip(windows, states, strict=True)
        ]
        outputs = evaluate(self.dit, self._modulations, inputs)
        for window, state, output in zip(windows, states, outputs, strict=True):
            with_codes, without = output.velocity
            dt = self._grid[window.step + 1] - self._grid[window.step]
            state.x = state.x + dt * guided(with_codes, without, self.config.guidance)
            if not window.final and self.past == "kv":
                state.stored.append(output.block(state.kept - 1))
            window.step += 1

    def _hold_past(self, state: _State, t: float) -> None:
        """Frames already spoken stay on the straight path between their noise and their mel."""
        if state.past:
            state.x[: state.past] = (1 - t) * state.noise[: state.past] + t * state.known

    def _stored(self, window: FlowWindow) -> list[Stored] | None:
        """What is kept of the block before a window, for its ODE step; None when the past is computed again."""
        history: _History | None = window.history
        return None if history is None or self.past == "recompute" else history.stored[window.step]

    def close(self, window: FlowWindow) -> tuple[Tensor, _History | None]:
        state: _State = window.state
        window.state = None
        mel = state.x[state.past :].flatten(0, 1)[: window.keep_frames] * self.config.mel_std + self.config.mel_mean
        if window.final:
            return mel, None
        blocks = slice(max(0, state.past + state.kept - self._back_blocks), state.past + state.kept)
        done = torch.cat([state.known, state.x[state.past :]])
        return mel, _History(stored=state.stored, noise=state.noise[blocks], mel=done[blocks])
