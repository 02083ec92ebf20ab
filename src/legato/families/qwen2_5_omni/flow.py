"""Qwen2.5-Omni's flow: codes → log-mel by a block-attention DiT, integrated from noise with guidance.

One `advance` is one evaluation of the net (36 per window with nine intervals of the 3/8 rule). Keys and values of the
last finished block are kept at the look-back layers, for every evaluation and both guidance branches: a window computes
its own blocks and its look-ahead, and nothing that was spoken is computed again. What a window cannot see is what lies
beyond its look-ahead, so a reply in one window is the offline result; every block of look-ahead makes the difference
at least twenty times smaller with random weights (benchmarks/qwen_look_ahead.py).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from legato.nn.dit import BlockDiT, DiTConfig, Neighbours, Stored
from legato.nn.dit_windows import WindowInput, evaluate, in_blocks, neighbours
from legato.nn.layers import freeze
from legato.nn.ode import EULER, RK4_38, Solver, Trajectory, guided, sway_grid
from legato.protocols import FlowFacts, FlowWindow

from .ecapa import Ecapa
from .parts import FlowConfig
from .voices import QwenVoice

BRANCHES = 2
"""With and without conditioning, for guidance."""

NO_CODE = 0
"""The code of the branch without conditioning: the release has no id of its own for it."""

TIME_FEATURES, NORM_EPS = 256, 1e-6
ROTARY_HEADS = 1
"""Only the first head was ever given positions."""

INTERVALS, GUIDANCE, SWAY = 9, 0.5, -1.0
SolverName = Literal["rk4", "euler"]
TABLEAUS = {"rk4": RK4_38, "euler": EULER}


@dataclass(frozen=True)
class Integration:
    """How the flow is integrated: so many intervals of a solver, on a grid with `sway`, with `guidance`."""

    solver: SolverName = "rk4"
    intervals: int = INTERVALS
    guidance: float = GUIDANCE
    sway: float = SWAY


@dataclass
class History:
    """Keys and values of the block that was finished last: by evaluation, then by look-back layer."""

    stored: list[list[Stored]] = field(default_factory=list)


@dataclass
class _State:
    """One window on its way: states [blocks, b, bins], `conditioning` [branches, blocks, b, D]."""

    way: Trajectory
    conditioning: Tensor
    near: Neighbours
    kept_blocks: int
    finished: History = field(default_factory=History)


class QwenFlow(nn.Module):
    """Code embedding, encoder of the reference, DiT, solver. Holds nothing of any utterance."""

    def __init__(self, config: FlowConfig, integration: Integration | None = None) -> None:
        super().__init__()
        self.config, self.integration = config, integration or Integration()
        self.embedding = nn.Embedding(config.codes + 1, config.code_width)
        self.ecapa = Ecapa(config.ecapa, config.mel_bins)
        self.dit = BlockDiT(dit_config(config))
        grid = sway_grid(self.integration.intervals, self.integration.sway)
        self._solver = Solver(TABLEAUS[self.integration.solver], grid)
        self.facts = FlowFacts(
            block_tokens=config.block_frames // config.frames_per_code,
            look_back_blocks=len(config.look_back_layers),
            look_ahead_blocks=len(config.look_ahead_layers),
            left_tokens=0,
            ode_steps=self._solver.evaluations,
            mel_bins=config.mel_bins,
        )

    def prepare(self, batch_invariant: bool) -> None:
        """Freeze for inference and tabulate what depends on the time grid only; once the weights are in place."""
        freeze(self)
        device = self.embedding.weight.device
        with torch.inference_mode():
            self._modulations = self.dit.modulations(self._solver.times.to(device))
        freeze(self.dit, self.config.block_frames if batch_invariant else 0)
        self._speakers: WeakKeyDictionary[QwenVoice, Tensor] = WeakKeyDictionary()

    @torch.inference_mode()
    def speaker(self, voice: QwenVoice) -> Tensor:
        """What both branches know of a voice, [branches, reference + speaker]: a pure function of it, kept while that
        lives. The branch without conditioning hears a reference of zeros, which is not a vector of zeros."""
        if (kept := self._speakers.get(voice)) is not None:
            return kept
        device = self.embedding.weight.device
        mel, vector = voice.mel.to(device), voice.vector.to(device)
        heard = torch.stack([self.ecapa(mel), self.ecapa(torch.zeros_like(mel))])
        known = torch.cat([heard, torch.stack([vector, torch.zeros_like(vector)])], -1)
        self._speakers[voice] = known
        return known

    def open(self, window: FlowWindow) -> None:
        device, block = self.embedding.weight.device, self.config.block_frames
        codes = window.tokens.to(device)
        embedded = self.embedding(torch.stack([codes, torch.full_like(codes, NO_CODE)]))
        frames = embedded.repeat_interleave(self.config.frames_per_code, 1)
        heard, speaker = self.speaker(window.voice.facts)[:, None].split(
            [self.config.ecapa.out_width, self.config.speaker_width], -1
        )
        length = frames.shape[1]
        given = torch.cat([heard.expand(-1, length, -1), frames, speaker.expand(-1, length, -1)], -1)
        window.state = _State(
            way=self._solver.begin(in_blocks(window.noise.to(device), block)),
            conditioning=self.dit.condition(in_blocks(given, block)),
            near=neighbours(length, block, BRANCHES, window.history is not None, device),
            kept_blocks=window.keep_frames // block,
        )

    @torch.inference_mode()
    def advance(self, windows: Seq[FlowWindow]) -> None:
        states: list[_State] = [window.state for window in windows]
        inputs = [
            WindowInput(self.dit.state_inputs(s.way.x) + s.conditioning, w.step, s.near, _stored(w))
            for w, s in zip(windows, states, strict=True)
        ]
        outputs = evaluate(self.dit, self._modulations, inputs)
        for window, state, output in zip(windows, states, outputs, strict=True):
            conditioned, free = output.velocity
            self._solver.advance(state.way, window.step, guided(conditioned, free, self.integration.guidance))
            if not window.final:
                state.finished.stored.append(output.block(state.kept_blocks - 1))
            window.step += 1

    def close(self, window: FlowWindow) -> tuple[Tensor, History | None]:
        state: _State = window.state
        window.state = None
        mel = state.way.x.flatten(0, 1)[: window.keep_frames]
        return mel, None if window.final else state.finished


def _stored(window: FlowWindow) -> list[Stored] | None:
    """What is kept of the block before a window, for its evaluation."""
    history: History | None = window.history
    return None if history is None else history.stored[window.step]


def dit_config(config: FlowConfig) -> DiTConfig:
    """The net's sizes. What a frame is given is its mel, the reference, its code and the speaker, in this order."""
    return DiTConfig(
        inputs=config.mel_bins + config.ecapa.out_width + config.code_width + config.speaker_width,
        width=config.width,
        layers=config.layers,
        heads=config.heads,
        inner=config.inner,
        outputs=config.mel_bins,
        block_frames=config.block_frames,
        look_back_layers=config.look_back_layers,
        look_ahead_layers=config.look_ahead_layers,
        rope_theta=config.rope_theta,
        rotary_heads=ROTARY_HEADS,
        time_features=TIME_FEATURES,
        time_whole_range=True,
        norm_eps=NORM_EPS,
    )
