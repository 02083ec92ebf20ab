"""The vocoder's trainer: mel distance first, then against discriminators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from legato.nn.early_vocos import EarlyVocos

from .corpus import SAMPLE_HZ, SAMPLES_PER_FRAME, Corpus
from .discriminators import Judges
from .loop import Learner
from .losses import feature_distance, fooling_loss, judges_loss, mel_distance

EDGE_FRAMES = 4
"""Loaded on either side of what is judged, so that padding is not learned."""

MEL_WEIGHT, FOOLING_WEIGHT, FEATURE_WEIGHT = 15.0, 1.0, 2.0
BETAS = (0.8, 0.99)
QUIET = 0.02
"""Pieces whose peak is lower are mostly left out."""


@dataclass(frozen=True)
class VocoderSettings:
    """`alone_steps` are trained by mel distance only, before the discriminators join in."""

    batch: int = 8
    frames: int = 24
    rate: float = 8e-4
    judges_rate: float = 4e-4
    alone_steps: int = 1000
    periods: tuple[int, ...] = (2, 3, 5, 7)
    ffts: tuple[int, ...] = (1024, 512)
    channels: tuple[int, ...] = (16, 32, 64, 128)
    spectrum_width: int = 16
    autocast: bool = False
    seed: int = 0


class VocoderTask:
    """Learns an EarlyVocos on pieces of the corpus."""

    def __init__(self, net: EarlyVocos, corpus: Corpus, settings: VocoderSettings, device: str = "cpu") -> None:
        self.corpus, self.settings, self.device = corpus, settings, torch.device(device)
        torch.manual_seed(settings.seed)
        self._order = np.random.default_rng(settings.seed)
        judges = Judges(settings.periods, settings.ffts, settings.channels, settings.spectrum_width)
        self._vocoder = Learner(net.to(self.device).train(), settings.rate, BETAS, clip=10.0, average=0.998)
        self._judges = Learner(judges.to(self.device), settings.judges_rate, BETAS, clip=10.0)
        self.learners = {"vocoder": self._vocoder, "judges": self._judges}
        self._span = settings.frames + 2 * EDGE_FRAMES
        self._long = np.asarray([i for i in corpus.training if corpus.utterances[i].frames >= self._span])

    def step(self, factor: float) -> dict[str, float]:
        mels, real = self._batch()
        made = self._render(mels)
        distance = mel_distance(made, real, SAMPLE_HZ)
        loss, losses = MEL_WEIGHT * distance, {"mel": float(distance.detach())}
        if self._vocoder.updates >= self.settings.alone_steps:
            against, more = self._against(made, real, factor)
            loss, losses = loss + against, losses | more
        self._vocoder.update(loss, factor)
        return losses

    def _against(self, made: Tensor, real: Tensor, factor: float) -> tuple[Tensor, dict[str, float]]:
        """An update of the discriminators, then what they add to the vocoder's loss. Features of the real waves are
        those from before that update, which saves a pass over them."""
        judges = self._judges.net
        with self._autocast():
            both = judges(torch.cat([real, made.detach()]))
        seen_real = [(scores[: len(real)], [f[: len(real)] for f in features]) for scores, features in both]
        seen_made = [(scores[len(real) :], features) for scores, features in both]
        learned = judges_loss(seen_real, seen_made)
        self._judges.update(learned, factor)
        judges.requires_grad_(False)
        with self._autocast():
            judged = judges(made)
        fooling, features = fooling_loss(judged), feature_distance(seen_real, judged)
        judges.requires_grad_(True)
        losses = {"judges": learned, "fooling": fooling, "features": features}
        return FOOLING_WEIGHT * fooling + FEATURE_WEIGHT * features, {k: float(v.detach()) for k, v in losses.items()}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Mel distance of whole held-out utterances, with the averaged weights."""
        net: EarlyVocos = self._vocoder.net  # type: ignore[assignment]
        learned = {name: t.clone() for name, t in net.state_dict().items()}
        net.load_state_dict(self._vocoder.weights())
        distances = []
        for index in self.corpus.held_out[:20]:
            mel, wave = (torch.from_numpy(get(index)).to(self.device) for get in (self.corpus.mel, self.corpus.wave))
            distances.append(float(mel_distance(net(mel)[None], wave[None], SAMPLE_HZ)))
        net.load_state_dict(learned)
        return {"mel": float(np.mean(distances))}

    def _render(self, mels: Tensor) -> Tensor:
        net: EarlyVocos = self._vocoder.net  # type: ignore[assignment]
        with self._autocast():
            waves = net.waves(mels)
        edge = EDGE_FRAMES * SAMPLES_PER_FRAME
        return waves.float()[:, edge:-edge]

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Log-mels [B, F + 2 edges, bins] and the waves [B, n] of their middles."""
        mels: list[np.ndarray] = []
        waves: list[np.ndarray] = []
        while len(mels) < self.settings.batch:
            index = int(self._order.choice(self._long))
            start = int(self._order.integers(0, self.corpus.utterances[index].frames - self._span + 1))
            samples = self.settings.frames * SAMPLES_PER_FRAME
            wave = self.corpus.wave(index, (start + EDGE_FRAMES) * SAMPLES_PER_FRAME, samples)
            if np.abs(wave).max() > QUIET or self._order.random() < 0.1:
                mels.append(self.corpus.mel(index, start, self._span))
                waves.append(wave)
        return torch.from_numpy(np.stack(mels)).to(self.device), torch.from_numpy(np.stack(waves)).to(self.device)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.autocast)
