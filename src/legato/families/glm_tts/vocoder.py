"""GLM-TTS's vocoders as the engine wants them: HiFT with the phase carried from window to window, and Vocos2D.

HiFT's excitation noise belongs to the absolute sample and is the same for every utterance.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from legato.errors import CheckpointError
from legato.nn.weights import Uninitialised, load_strict
from legato.protocols import VocoderPiece
from legato.types import Reach

from .files import telling_what_to_run
from .hift import PITCH_REACH_FRAMES, REACH_FRAMES, Hift, hift_sizes
from .weights import fold_weight_norm, read_released

NOISE_GROUP_FRAMES = 50
"""Noise is drawn in groups of this many frames, each with its own seed."""

EARLY_REACH_FRAMES = 8
"""Right reach with `exact_joins = false`: 240 ms earlier; joins are then blended."""


@dataclass(frozen=True)
class Phase:
    """Where the sines stood at the middle of a frame: turns [harmonics], float64 on the CPU."""

    frame: int
    turns: Tensor


class HiftVocoder:
    """Runs each piece by itself: its samples depend on its own mel and past only."""

    exact: bool

    def __init__(self, net: Hift, right_frames: int = REACH_FRAMES) -> None:
        self.net = net
        self.reach = Reach(left=REACH_FRAMES, right=right_frames)
        self.exact = right_frames >= REACH_FRAMES
        self.noise: Callable[[int, int], Tensor] = self._noise

    def _noise(self, start_frame: int, frames: int) -> Tensor:
        """Standard normal noise [frames × hop, harmonics] of frames [start_frame, start_frame + frames)."""
        first, last = start_frame // NOISE_GROUP_FRAMES, (start_frame + frames - 1) // NOISE_GROUP_FRAMES
        size = (NOISE_GROUP_FRAMES * self.net.sizes.hop, self.net.sizes.harmonics)
        groups = [torch.randn(size, generator=torch.Generator().manual_seed(g)) for g in range(first, last + 1)]
        skip = (start_frame - first * NOISE_GROUP_FRAMES) * self.net.sizes.hop
        return torch.cat(groups)[skip : skip + frames * self.net.sizes.hop]

    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        """Waves of whole utterances."""
        return [wave for wave, _ in self.render([VocoderPiece(mel, 0, 0, None) for mel in mels])]

    @torch.inference_mode()
    def render(self, pieces: Seq[VocoderPiece]) -> list[tuple[Tensor, Phase]]:
        """Waves [F × hop] of the pieces, and where their phases stand for the pieces that follow."""
        return [self._render(piece) for piece in pieces]

    def _render(self, piece: VocoderPiece) -> tuple[Tensor, Phase]:
        mel = piece.mel.to(self.net.window.device)
        pitch = self.net.pitch(mel)
        turns = self._turns(pitch, piece)
        noise = self.noise(piece.start_frame, len(mel)).to(mel.device)
        wave: Tensor = self.net(mel, self.net.excitation(pitch, turns.float().to(mel.device), noise))
        anchor = min(piece.next_start_frame + PITCH_REACH_FRAMES, piece.start_frame + len(mel) - 1)
        return wave, Phase(anchor, turns[anchor - piece.start_frame])

    def _turns(self, pitch: Tensor, piece: VocoderPiece) -> Tensor:
        """Phase at the middle of each frame in turns [F, harmonics], float64 on the CPU.

        A piece that does not begin the utterance is told the phase at one of its frames by the piece before it.
        """
        per_frame = self.net.turns_per_sample(pitch).cpu().double() * self.net.sizes.hop
        turns = per_frame.cumsum(0)
        known: Phase | None = piece.history
        if piece.start_frame and known is not None:
            turns = turns + (known.turns - turns[known.frame - piece.start_frame])
        return turns % 1


@telling_what_to_run()
def load_hift(folder: Path) -> Hift:
    """The vocoder in `hift/`. Raises CheckpointError naming the file that is missing, damaged or does not fit."""
    raw, path = read_released(folder, "hift")
    try:
        tensors = fold_weight_norm({name.removeprefix("generator."): tensor for name, tensor in raw.items()})
        sizes = hift_sizes(tensors)
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} lacks {error}, or it has another shape than this vocoder's") from error
    with Uninitialised():
        net = Hift(sizes)
    load_strict(net, tensors, path)
    return net
