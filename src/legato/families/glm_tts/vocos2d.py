"""Vocos2D: log-mel → 32 kHz samples by a TorchScript file whose inside is not known.

Its hop and its reach are measured when it is loaded. (Facts: zai-org/GLM-TTS, utils/vocos_util.py.)
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from pathlib import Path

import torch
from torch import Tensor

from legato.errors import CheckpointError
from legato.types import Reach

from .files import DOWNLOAD, need_file

LOG_SHIFT = -7.847762537473608
"""−ln 2560: the file was trained on spectra divided by the FFT's length."""

PROBE_FRAMES, PROBE_AT, PROBES = 192, 96, 3
LONGEST_REACH = 48
"""Frames. A net that sees further is cut here, and its joins are blended."""

QUIET = 1e-5
"""Relative to the largest sample: what is changed by less is not changed."""


class Vocos2D:
    """The scripted net, its hop, and what it sees. `exact`: nothing outside `reach` changes a sample."""

    def __init__(self, net: torch.jit.ScriptModule, mel_bins: int, device: torch.device, source: Path) -> None:
        self.net, self.device, self.mel_bins = net, device, mel_bins
        samples = len(self._render(torch.zeros(PROBE_FRAMES, mel_bins)))
        self.hop, rest = divmod(samples, PROBE_FRAMES)
        if rest or not self.hop:
            raise CheckpointError(f"{source} gives {samples} samples for {PROBE_FRAMES} mel frames: not a whole hop")
        left, right = self._measured()
        self.exact = max(left, right) <= LONGEST_REACH
        self.reach = Reach(min(left, LONGEST_REACH), min(right, LONGEST_REACH))

    @torch.inference_mode()
    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        """Waves [F × hop] of log-mels [F, bins], one by one."""
        return [self._render(mel)[: len(mel) * self.hop] for mel in mels]

    @torch.inference_mode()
    def _render(self, mel: Tensor) -> Tensor:
        """A lone frame is given twice, as the release does."""
        mel = mel.expand(2, -1) if len(mel) == 1 else mel
        wave: Tensor = self.net(mel.to(self.device)[None] + LOG_SHIFT)
        return wave[0]

    def _measured(self) -> tuple[int, int]:
        """Frames to the left and right whose change is heard in a frame's samples: the most of some random probes."""
        left = right = 0
        generator = torch.Generator().manual_seed(0)
        for _ in range(PROBES):
            mel = 2 * torch.randn(PROBE_FRAMES, self.mel_bins, generator=generator) - 5
            other = mel.clone()
            other[PROBE_AT] = 2 * torch.randn(self.mel_bins, generator=generator) - 5
            old, new = self._render(mel), self._render(other)
            loud = float(old.abs().max().clamp_min(1e-9))
            changed = ((new - old).abs() > QUIET * loud).view(-1, self.hop).any(1).nonzero()[:, 0]
            if len(changed):
                left, right = max(left, int(changed[-1]) - PROBE_AT), max(right, PROBE_AT - int(changed[0]))
        return left, right


def load_vocos2d(folder: Path, mel_bins: int, device: torch.device) -> Vocos2D:
    """The vocoder in `vocos2d/`. Raises CheckpointError when the file is missing, damaged or not such a net."""
    path = need_file(folder / "generator_jit.ckpt")
    try:
        net = torch.jit.load(str(path), map_location=device).eval()
        return Vocos2D(net, mel_bins, device, path)
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a TorchScript vocoder. To fetch the checkpoint again: {DOWNLOAD}"
        ) from error
