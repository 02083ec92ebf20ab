"""The speech tokenizer's trainer. Codes must give back the mel and also say, each by itself, which phoneme is spoken
and how high: that is what a language model can learn from them. Who speaks is told to the decoder alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.families.piccolo.codec import FRAMES_PER_TOKEN, CodecConfig, SpeechTokenizer
from legato.families.piccolo.speaker import SpeakerEncoder
from legato.nn.layers import Linear
from legato.nn.vocos import ConvNeXt

from .corpus import Corpus
from .loop import Learner

PITCH_SPREAD = 0.25
"""About one standard deviation of ln(Hz) within an utterance."""

SPEAKER_WIDTH = 128
FRAME_S = 0.02


@dataclass(frozen=True)
class CodecSettings:
    """Crops of `frames` mel frames; the weights of the losses beside the mel's L1."""

    batch: int = 24
    frames: int = 96
    rate: float = 1e-3
    phoneme_weight: float = 0.5
    pitch_weight: float = 0.3
    decoder_blocks: tuple[int, int] = (3, 3)
    head_width: int = 192
    seed: int = 0


class Codec(nn.Module):
    """Encoder, decoder and heads. Only the encoder outlives the training."""

    def __init__(self, config: CodecConfig, phonemes: int, settings: CodecSettings) -> None:
        super().__init__()
        width, levels = config.width, len(config.levels)
        self.config = config
        self.encoder = SpeechTokenizer(config)
        self.speaker = SpeakerEncoder(config.mel_bins, config.mel_mean, config.mel_std, SPEAKER_WIDTH)
        self.inputs, self.speaker_inputs = Linear(levels, width), Linear(SPEAKER_WIDTH, width)
        coarse, fine = settings.decoder_blocks
        self.coarse = nn.ModuleList(ConvNeXt(width, 3 * width) for _ in range(coarse))
        self.up = Linear(width, FRAMES_PER_TOKEN * width)
        self.fine = nn.ModuleList(ConvNeXt(width, 3 * width) for _ in range(fine))
        self.outputs = Linear(width, config.mel_bins)
        self.head = Linear(levels, settings.head_width)
        self.phonemes = Linear(settings.head_width, FRAMES_PER_TOKEN * phonemes)
        self.pitch = Linear(settings.head_width, FRAMES_PER_TOKEN * 2)
        for module in self.modules():
            if isinstance(module, ConvNeXt):
                nn.init.constant_(module.scale, 0.1)

    def decode(self, quantised: Tensor, speaker: Tensor) -> Tensor:
        """Values [B, T, levels] and who speaks [B, 128] → log-mels [B, 2T, bins]."""
        x = self.inputs(quantised) + self.speaker_inputs(speaker)[:, None]
        for block in self.coarse:
            x = block(x)
        x = self.up(x).reshape(len(x), FRAMES_PER_TOKEN * x.shape[1], -1)
        for block in self.fine:
            x = block(x)
        mels: Tensor = self.outputs(x)
        return mels * self.config.mel_std + self.config.mel_mean

    def read(self, quantised: Tensor) -> tuple[Tensor, Tensor]:
        """What each code says by itself: phoneme logits [B, 2T, phonemes]; pitch and voicing logit [B, 2T, 2]."""
        x = F.gelu(self.head(quantised))
        batch, tokens, _ = x.shape
        frames = FRAMES_PER_TOKEN * tokens
        return self.phonemes(x).view(batch, frames, -1), self.pitch(x).view(batch, frames, 2)


@dataclass(frozen=True)
class _Crops:
    """mels, others [B, F, bins] (the same speakers elsewhere), phonemes [B, F], pitch [B, F] (0: unvoiced)."""

    mels: Tensor
    others: Tensor
    phonemes: Tensor
    pitch: Tensor


class CodecTask:
    """Learns a Codec on crops of the corpus."""

    def __init__(self, net: Codec, corpus: Corpus, settings: CodecSettings, device: str = "cpu") -> None:
        self.corpus, self.settings, self.device = corpus, settings, torch.device(device)
        self._order = np.random.default_rng(settings.seed)
        self._learner = Learner(net.to(self.device).train(), settings.rate)
        self.learners = {"codec": self._learner}
        self._long = np.asarray(self._long_enough(corpus.training))
        self._known: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def step(self, factor: float) -> dict[str, float]:
        chosen = self._order.choice(self._long, self.settings.batch)
        losses = self._losses(self._crops([int(i) for i in chosen], self._order))
        s = self.settings
        loss = losses["mel"] + s.phoneme_weight * losses["phoneme"] + s.pitch_weight * losses["pitch"]
        self._learner.update(loss, factor)
        return {name: float(value.detach()) for name, value in losses.items()}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        chosen = self._long_enough(self.corpus.held_out)[: 4 * self.settings.batch]
        losses = self._losses(self._crops(chosen, np.random.default_rng(0)))
        return {name: float(value) for name, value in losses.items()}

    def _losses(self, crops: _Crops) -> dict[str, Tensor]:
        net: Codec = self._learner.net  # type: ignore[assignment]
        quantised, _ = net.encoder(crops.mels)
        mels = net.decode(quantised, net.speaker(crops.others))
        logits, pitch = net.read(quantised)
        voiced = crops.pitch != 0
        height = (pitch[..., 0] - crops.pitch).abs() * voiced
        voicing = F.binary_cross_entropy_with_logits(pitch[..., 1], voiced.float())
        return {
            "mel": (mels - crops.mels).abs().mean(),
            "phoneme": F.cross_entropy(logits.flatten(0, 1), crops.phonemes.flatten()),
            "pitch": height.sum() / voiced.sum().clamp_min(1) + voicing,
        }

    def _long_enough(self, indices: list[int]) -> list[int]:
        return [i for i in indices if self.corpus.utterances[i].frames >= self.settings.frames]

    def _crops(self, chosen: list[int], order: np.random.Generator) -> _Crops:
        frames = self.settings.frames
        parts: list[tuple[np.ndarray, ...]] = []
        for index in chosen:
            whole = self.corpus.utterances[index].frames
            start, other = (int(order.integers(0, (whole - frames) // 2 + 1)) * 2 for _ in range(2))
            said, height = self._labels(index)
            mel, elsewhere = (self.corpus.mel(index, at, frames) for at in (start, other))
            parts.append((mel, elsewhere, said[start : start + frames], height[start : start + frames]))
        stacked = (torch.from_numpy(np.stack(part)).to(self.device) for part in zip(*parts, strict=True))
        return _Crops(*stacked)

    def _labels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Phoneme ids and relative pitch [F] of an utterance, computed once."""
        if index not in self._known:
            spoken = self.corpus.utterances[index]
            times = (np.arange(spoken.frames) + 0.5) * FRAME_S
            said = np.asarray(spoken.phonemes)[spoken.phoneme_at(times)]
            self._known[index] = said, _relative(self.corpus.pitch(index))
        return self._known[index]


def _relative(pitch: np.ndarray) -> np.ndarray:
    """Pitch of an utterance against its median, in spreads; 0 where nothing is voiced."""
    voiced = pitch != 0
    middle = np.median(pitch[voiced]) if voiced.any() else 0.0
    height: np.ndarray = np.where(voiced, np.clip((pitch - middle) / PITCH_SPREAD, -4, 4) + 1e-6, 0.0)
    return height.astype(np.float32)
