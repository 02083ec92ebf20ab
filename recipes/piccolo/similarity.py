"""How alike two voices are, by a speaker encoder that had no part in training: GE2E (Wan et al. 2017, arXiv:1710.10467)
with the weights in the package Resemblyzer (Apache-2.0). For the recipe's evaluation only.

The net is written out here because the package itself wants libraries that nothing else needs. Silences are not cut.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.mel import MelSpec, mel_filters
from legato.nn.resample import resample
from legato.training.corpus import SAMPLE_HZ

MEL = MelSpec(sample_hz=16_000, fft_samples=400, hop_samples=160, bins=40)
PART_FRAMES, STEP_FRAMES = 160, 77
"""Parts of 1.6 s, 1.3 of them a second."""

LEAST_LOUDNESS = 10 ** (-30 / 20)
"""Root mean square to which quieter speech is raised."""


class SpeakerMeter(nn.Module):
    """Waves → unit vectors; their product is the similarity, 0 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(MEL.bins, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)
        weights = torch.load(_weights(), map_location="cpu", weights_only=True)["model_state"]
        self.load_state_dict({name: weights[name] for name in self.state_dict()})

    @torch.inference_mode()
    def vector(self, wave: np.ndarray) -> np.ndarray:
        """Float32 [256] of samples [n] at the corpus' rate."""
        audio = resample(torch.from_numpy(np.array(wave, np.float32)), SAMPLE_HZ, MEL.sample_hz)
        audio = audio * max(1.0, LEAST_LOUDNESS / float(audio.square().mean().sqrt()))
        mel = self._mel(F.pad(audio, (0, max(0, PART_FRAMES * MEL.hop_samples - len(audio)))))
        parts = mel.unfold(0, PART_FRAMES, STEP_FRAMES).transpose(1, 2)
        _, (hidden, _) = self.lstm(parts)
        vectors = F.normalize(self.linear(hidden[-1]).relu(), dim=1)
        mean: np.ndarray = F.normalize(vectors.mean(0), dim=0).numpy()
        return mean

    def _mel(self, audio: Tensor) -> Tensor:
        """Mel power spectrogram [F, bins], without logarithm."""
        window = torch.hann_window(MEL.fft_samples)
        spectrum = torch.stft(
            audio, MEL.fft_samples, MEL.hop_samples, window=window, pad_mode="constant", return_complex=True
        )
        return (mel_filters(MEL) @ torch.view_as_real(spectrum).square().sum(-1)).t()


def _weights() -> Path:
    """The file inside the package, which is not imported."""
    spec = importlib.util.find_spec("resemblyzer")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("speaker similarity needs the weights in Resemblyzer: pip install --no-deps Resemblyzer")
    return Path(spec.submodule_search_locations[0]) / "pretrained.pt"
