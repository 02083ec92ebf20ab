"""The flow's trainer: velocities on straight paths from noise to mel (Lipman et al. 2022, arXiv:2210.02747), in the
very net that speaks, so the attention blocks it learns under are the ones it will run with.

A crop begins either where its utterance does not (as any window but the first), or with blocks of another utterance of
the same speaker: the past that a cloned voice gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.families.piccolo.config import PiccoloConfig
from legato.families.piccolo.flow import PiccoloFlow
from legato.families.piccolo.said import pack, unknown, window, without_code
from legato.nn.dit import DiTLayer, Neighbours, modulated_norm

from .corpus import FRAMES_PER_TOKEN, TOKEN_S, Corpus
from .loop import Learner

PAST_BLOCKS = 2
GUESS_WEIGHT = 0.3


@dataclass(frozen=True)
class FlowTraining:
    """Crops of `blocks` attention blocks. `unconditioned` of the crops come without codes and speaker, `spliced` of
    the batches begin with another utterance, `unseen` of the blocks do not see the one after them. Where phonemes are
    told, `uncoded` of the crops and as many of all tokens come without their code, so that phonemes are listened to."""

    batch: int = 24
    blocks: int = 8
    rate: float = 1e-3
    unconditioned: float = 0.1
    spliced: float = 0.5
    unseen: float = 0.15
    uncoded: float = 0.2
    speaker_frames: int = 150
    average: float = 0.998
    seed: int = 0


class _LearningLayer(DiTLayer):
    """The same layer; what runs works in place, which gradients do not allow."""

    def mix(self, x: Tensor, attended: Tensor, modulation: tuple[Tensor, ...]) -> Tensor:  # type: ignore[override]
        gate, shift, scale, gate_mlp = modulation
        x = x + gate * self.out(attended.transpose(1, 2).reshape(x.shape))
        inner = F.gelu(self.inner(modulated_norm(x, shift, scale, self.norm_eps)), approximate="tanh")
        mixed: Tensor = x + gate_mlp * self.outer(inner)
        return mixed


def learning_flow(config: PiccoloConfig) -> PiccoloFlow:
    """A flow to be trained: modulations and outputs start at zero (DiT's adaLN-zero)."""
    flow = PiccoloFlow(config)
    layers = [_LearningLayer(config.dit) for _ in range(config.dit.layers)]
    flow.dit.layers = nn.ModuleList(layers)
    for weight in flow.encoder.said.parameters():
        nn.init.zeros_(weight)
    for linear in (*(layer.modulation for layer in layers), flow.dit.final_modulation, flow.dit.outputs):
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    return flow


@dataclass(frozen=True)
class _Crops:
    """mels [B, F, bins] normalised, tokens `codes` [B, F / 2], references [B, R, bins] (log-mel as it is), and how many
    frames at the start are of another utterance."""

    mels: Tensor
    codes: Tensor
    references: Tensor
    spliced_frames: int


class FlowTask:
    """Learns a PiccoloFlow (from `learning_flow`) on a corpus with codes."""

    def __init__(
        self, net: PiccoloFlow, config: PiccoloConfig, corpus: Corpus, settings: FlowTraining, device: str = "cpu"
    ) -> None:
        self.config, self.corpus, self.settings, self.device = config, corpus, settings, torch.device(device)
        self._order = np.random.default_rng(settings.seed)
        self._noise = torch.Generator().manual_seed(settings.seed)
        self._learner = Learner(net.to(self.device).train(), settings.rate, average=settings.average)
        self.learners = {"flow": self._learner}
        self._frames = settings.blocks * config.dit.block_frames
        self._past_frames = PAST_BLOCKS * config.dit.block_frames
        self._long = np.asarray(self._long_enough(corpus.training))

    def step(self, factor: float) -> dict[str, float]:
        chosen = [int(i) for i in self._order.choice(self._long, self.settings.batch)]
        crops = self._crops(chosen, self._order, self._order.random() < self.settings.spliced)
        losses = self._losses(crops, self._times(), self._noise, self.settings.unconditioned)
        self._learner.update(losses["velocity"] + GUESS_WEIGHT * losses["guess"], factor)
        return {name: float(value.detach()) for name, value in losses.items()}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """With the averaged weights, at times spread evenly, half of the crops spliced."""
        net = self._learner.net
        learned = {name: t.clone() for name, t in net.state_dict().items()}
        net.load_state_dict(self._learner.weights())
        chosen, order = self._long_enough(self.corpus.held_out)[:48], np.random.default_rng(0)
        noise, parts = torch.Generator().manual_seed(0), []
        for spliced in (False, True):
            crops = self._crops(chosen, order, spliced)
            parts.append(self._losses(crops, torch.linspace(0.05, 0.95, len(chosen)), noise, unconditioned=0.0))
        net.load_state_dict(learned)
        return {name: float(torch.stack([part[name] for part in parts]).mean()) for name in parts[0]}

    def _losses(self, crops: _Crops, times: Tensor, noise: torch.Generator, unconditioned: float) -> dict[str, Tensor]:
        net: PiccoloFlow = self._learner.net  # type: ignore[assignment]
        batch, size = len(crops.mels), self.config.dit.block_frames
        without = torch.rand(batch, generator=noise) < unconditioned
        start = torch.randn(crops.mels.shape, generator=noise).to(self.device)
        times = times.to(self.device)
        features = self._features(net, crops, without.to(self.device), noise, learning=unconditioned > 0)
        t = times[:, None, None]
        noisy = (1 - t) * start + t * crops.mels
        x = (net.dit.state_inputs(noisy) + net.dit.condition(features)).unflatten(1, (-1, size)).flatten(0, 1)
        owner = torch.arange(batch, device=self.device).repeat_interleave(self.settings.blocks)
        near = self._neighbours(batch, noise)
        velocity, _ = net.dit(
            x, net.dit.modulations(times), owner, near, [None] * len(self.config.dit.look_back_layers)
        )
        wanted = (crops.mels - start).unflatten(1, (-1, size)).flatten(0, 1)
        guess = features[..., : self.config.mel_bins][~without.to(self.device)]
        told = crops.mels[~without.to(self.device)]
        return {"velocity": (velocity - wanted).square().mean(), "guess": (guess - told).abs().mean()}

    def _features(
        self, net: PiccoloFlow, crops: _Crops, without: Tensor, noise: torch.Generator, learning: bool
    ) -> Tensor:
        """Conditioning [B, F, bins + width]; what is spliced is encoded by itself, as a voice's past will be."""
        assert net.speaker is not None
        speaker = net.speaker(crops.references) * ~without[:, None]
        codes = torch.where(
            without[:, None], net.nothing, self._without_some(crops.codes, noise) if learning else crops.codes
        )
        split = crops.spliced_frames // FRAMES_PER_TOKEN
        parts = [part for part in (codes[:, :split], codes[:, split:]) if part.shape[1]]
        return torch.cat([net.features(part, speaker) for part in parts], 1)

    def _without_some(self, tokens: Tensor, noise: torch.Generator) -> Tensor:
        """Tokens [B, n] some of which tell their phonemes only."""
        if not self.config.phonemes_around:
            return tokens
        crops, single = torch.rand(len(tokens), 1, generator=noise), torch.rand(tokens.shape, generator=noise)
        dropped = ((crops < self.settings.uncoded) | (single < self.settings.uncoded)).to(tokens.device)
        return torch.where(dropped, without_code(tokens) + self.config.codes, tokens)

    def _neighbours(self, batch: int, noise: torch.Generator) -> Neighbours:
        """Blocks in order, crop after crop; some do not see the next one, as at the end of a window."""
        blocks = self.settings.blocks
        place = torch.arange(batch * blocks).view(batch, blocks)
        before = torch.where(torch.arange(blocks) > 0, place - 1, -1).flatten()
        seen = (torch.arange(blocks) < blocks - 1) & (
            torch.rand(batch, blocks, generator=noise) >= self.settings.unseen
        )
        after = torch.where(seen, place + 1, -1).flatten()
        valid = torch.ones(batch * blocks, self.config.dit.block_frames, dtype=torch.bool)
        none = torch.full((batch * blocks,), -1)
        return Neighbours(*(tensor.to(self.device) for tensor in (valid, before, after, none)))

    def _times(self) -> Tensor:
        """Logit-normal mostly (Stable Diffusion 3, arXiv:2403.03206), uniform for the rest."""
        batch = self.settings.batch
        middle = torch.sigmoid(torch.randn(batch, generator=self._noise))
        even = torch.rand(batch, generator=self._noise)
        return torch.where(torch.rand(batch, generator=self._noise) < 0.7, middle, even)

    def _long_enough(self, indices: list[int]) -> list[int]:
        return [i for i in indices if self.corpus.utterances[i].frames >= self._frames]

    def _crops(self, chosen: list[int], order: np.random.Generator, spliced: bool) -> _Crops:
        past = self._past_frames if spliced else 0
        mels, codes, references = [], [], []
        for index in chosen:
            other = self.corpus.other_by_speaker(index, order, self._past_frames // FRAMES_PER_TOKEN)
            other = index if other is None else other
            pieces = [self._piece(index, self._frames - past, order)]
            if spliced:
                pieces.insert(0, self._piece(other, past, order, told=False))
            mels.append(np.concatenate([mel for mel, _ in pieces]))
            codes.append(np.concatenate([ids for _, ids in pieces]))
            references.append(self._reference(other, order))
        whole, ids, heard = (torch.from_numpy(np.stack(part)).to(self.device) for part in (mels, codes, references))
        return _Crops((whole - self.config.mel_mean) / self.config.mel_std, ids, heard, past)

    def _piece(
        self, index: int, frames: int, order: np.random.Generator, told: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log-mel [frames, bins] and tokens [frames / 2] from anywhere in an utterance, on whole tokens; the phonemes
        around them are told, or as in a reference they are not."""
        start = int(order.integers(0, (self.corpus.utterances[index].frames - frames) // FRAMES_PER_TOKEN + 1))
        mel = self.corpus.mel(index, start * FRAMES_PER_TOKEN, frames)
        codes = self.corpus.codes(index, start, frames // FRAMES_PER_TOKEN)
        around = self.config.phonemes_around
        if not around:
            return mel, codes
        if not told:
            return mel, codes + unknown(around)
        spoken = self.corpus.utterances[index]
        at = spoken.phoneme_at((start + np.arange(len(codes)) + 0.5) * TOKEN_S)
        said = (window(spoken.phonemes, int(i), around) for i in at)
        return mel, np.array([pack(int(code), phonemes) for code, phonemes in zip(codes, said, strict=True)])

    def _reference(self, index: int, order: np.random.Generator) -> np.ndarray:
        """Log-mel [speaker_frames, bins] of an utterance, said again from its start if it is shorter."""
        wanted, frames = self.settings.speaker_frames, self.corpus.utterances[index].frames
        start = int(order.integers(0, max(0, frames - wanted) + 1))
        return np.resize(self.corpus.mel(index, start), (wanted, self.config.mel_bins))
