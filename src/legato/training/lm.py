"""The language model's trainer: utterances as text-synchronous streams, as the model will meet them.

    prompt codes | language phonemes BOA p0 p1 | p2 c c p3 c p4 …

Phoneme k + lead enters when the audio enters phoneme k, known from the teacher's durations; the output before it is
ADVANCE, elsewhere a code, at the end END_OF_AUDIO. The prompt codes are another utterance of the same speaker.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.families.piccolo.config import ADVANCE, END_OF_AUDIO, FIRST_CODE, PiccoloConfig
from legato.families.piccolo.lm import PiccoloLM

from .corpus import TOKEN_S, Corpus, Spoken
from .loop import Learner

IGNORED = -100
SHORTEST_PROMPT = 25
LENGTH_NOISE = 12
"""Utterances of about one length are batched together; this much their order is shaken."""


@dataclass(frozen=True)
class LMSettings:
    """A batch is as many utterances as fill `positions`; `prompted` of them have a prompt."""

    positions: int = 3600
    rate: float = 1.5e-3
    dropout: float = 0.1
    prompted: float = 0.6
    average: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Stream:
    """Input ids [n] of an utterance, and what is to be predicted after each (IGNORED where nothing is)."""

    ids: np.ndarray
    targets: np.ndarray


def stream(spoken: Spoken, codes: np.ndarray, config: PiccoloConfig) -> Stream:
    """One utterance with its `codes` [n], without a prompt."""
    phonemes, lead = spoken.phonemes, config.lead_phonemes
    given = min(lead, len(phonemes))
    spoken_at = spoken.phoneme_at((np.arange(len(codes)) + 0.5) * TOKEN_S)
    head = [*config.language_ids(spoken.language), *phonemes, config.begin_of_audio]
    fed, targets = list(phonemes[:given]), []
    for code, phoneme in zip(codes, spoken_at, strict=True):
        while given < len(phonemes) and given <= phoneme + lead:
            targets.append(ADVANCE)
            fed.append(phonemes[given])
            given += 1
        targets.append(FIRST_CODE + int(code))
        fed.append(config.first_code_id + int(code))
    targets += [ADVANCE] * (len(phonemes) - given) + [END_OF_AUDIO]
    fed += phonemes[given:]
    ids = np.asarray([*head, *fed], np.int64)
    return Stream(ids, np.asarray([IGNORED] * (len(ids) - len(targets)) + targets, np.int64))


def prompted(plain: Stream, prompt: np.ndarray, config: PiccoloConfig) -> Stream:
    """A stream behind the codes [m] of a prompt."""
    nothing = np.full(len(prompt), IGNORED, np.int64)
    return Stream(np.concatenate([prompt + config.first_code_id, plain.ids]), np.concatenate([nothing, plain.targets]))


class _TeacherForced:
    """Attention over whole sequences side by side, padded at the end; nothing is kept."""

    def __init__(self, batch: int, length: int, device: torch.device) -> None:
        self._shape = batch, length
        self.positions = torch.arange(length, device=device).repeat(batch)
        self.slots = self.positions

    def attend(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """As AttentionInput says, without a cache."""
        batch, length = self._shape
        queries, both = (t.view(batch, length, t.shape[1], -1).transpose(1, 2) for t in (q, kv))
        keys, values = both.chunk(2, 1)
        grouped = queries.shape[1] != keys.shape[1]
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=grouped)
        return mixed.transpose(1, 2).reshape(batch * length, -1)


class LMTask:
    """Learns a PiccoloLM on a corpus with codes."""

    def __init__(
        self, net: PiccoloLM, config: PiccoloConfig, corpus: Corpus, settings: LMSettings, device: str = "cpu"
    ) -> None:
        self.config, self.corpus, self.settings, self.device = config, corpus, settings, torch.device(device)
        self._order = np.random.default_rng(settings.seed)
        self._learner = Learner(net.to(self.device).train(), settings.rate, average=settings.average)
        self.learners = {"lm": self._learner}
        self._plain: dict[int, Stream] = {}
        self._batches = self._endless(corpus.training)

    def step(self, factor: float) -> dict[str, float]:
        losses = self._losses(next(self._batches), self.settings.dropout)
        self._learner.update(losses["loss"], factor)
        return {name: float(value.detach()) for name, value in losses.items()}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        order = np.random.default_rng(0)
        chosen = self.corpus.held_out[:64]
        parts = [self._losses([self._stream(i, order)], dropout=0.0) for i in chosen]
        return {name: float(torch.stack([part[name] for part in parts]).mean()) for name in parts[0]}

    def _losses(self, streams: Seq[Stream], dropout: float) -> dict[str, Tensor]:
        """Cross-entropy of what follows, and of codes alone."""
        net: PiccoloLM = self._learner.net  # type: ignore[assignment]
        ids, targets = self._padded(streams)
        rows = F.dropout(net.embed(ids.flatten(), None), dropout, training=dropout > 0)
        hidden = net(rows, _TeacherForced(len(ids), ids.shape[1], self.device))
        wanted = targets.flatten() != IGNORED
        logits, targets = net.logits(hidden[wanted]), targets.flatten()[wanted]
        each = F.cross_entropy(logits, targets, reduction="none")
        is_code = targets >= FIRST_CODE
        return {"loss": each.mean(), "code": each[is_code].mean(), "advance": each[~is_code].mean()}

    def _padded(self, streams: Seq[Stream]) -> tuple[Tensor, Tensor]:
        longest = max(len(s.ids) for s in streams)
        ids = torch.full((len(streams), longest), self.config.begin_of_audio)
        targets = torch.full((len(streams), longest), IGNORED)
        for row, one in enumerate(streams):
            ids[row, : len(one.ids)], targets[row, : len(one.ids)] = map(torch.from_numpy, (one.ids, one.targets))
        return ids.to(self.device), targets.to(self.device)

    def _stream(self, index: int, order: np.random.Generator) -> Stream:
        if index not in self._plain:
            self._plain[index] = stream(self.corpus.utterances[index], self.corpus.codes(index), self.config)
        return prompted(self._plain[index], self._prompt(index, order), self.config)

    def _prompt(self, index: int, order: np.random.Generator) -> np.ndarray:
        """Some codes of another utterance of the same speaker, or none."""
        other = self.corpus.other_by_speaker(index, order)
        if not self.config.prompt_codes or other is None or order.random() >= self.settings.prompted:
            return np.zeros(0, np.int64)
        codes = self.corpus.codes(other)
        length = min(len(codes), int(order.integers(SHORTEST_PROMPT, self.config.prompt_codes + 1)))
        start = int(order.integers(0, len(codes) - length + 1))
        return codes[start : start + length]

    def _endless(self, indices: Seq[int]) -> Iterator[list[Stream]]:
        """Batches of about equal lengths, epoch after epoch."""
        lengths = np.array(
            [self.corpus.utterances[i].tokens + 2 * len(self.corpus.utterances[i].phonemes) for i in indices]
        )
        while True:
            shaken = np.argsort(lengths + self._order.uniform(-LENGTH_NOISE, LENGTH_NOISE, len(lengths)))
            batches = list(self._filled([(indices[i], int(lengths[i])) for i in shaken]))
            for at in self._order.permutation(len(batches)):
                yield [self._stream(index, self._order) for index in batches[at]]

    def _filled(self, sized: Seq[tuple[int, int]]) -> Iterator[list[int]]:
        """Utterances in order of length, as many per batch as fit."""
        batch: list[int] = []
        for index, length in sized:
            if batch and (len(batch) + 1) * (length + self.config.prompt_codes) > self.settings.positions:
                yield batch
                batch = []
            batch.append(index)
        yield batch


def learning_lm(config: PiccoloConfig) -> PiccoloLM:
    """A language model to be trained: small weights, smaller where layers add to what they read (GPT-2's)."""
    net = PiccoloLM(config)
    for name, parameter in net.named_parameters():
        if parameter.dim() == 2:
            adds = name.endswith((".out.weight", ".down.weight"))
            nn.init.normal_(parameter, 0.0, 0.02 / ((2 * config.lm.layers) ** 0.5 if adds else 1))
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return net


def phoneme_table(corpus: Corpus, phonemes: int, codes: int) -> Tensor:
    """log P(code | phoneme) − log P(code), float32 [phonemes, codes], counted over the training utterances."""
    counts = np.zeros((phonemes, codes))
    for index in corpus.training:
        spoken, ids = corpus.utterances[index], corpus.codes(index)
        at = np.asarray(spoken.phonemes)[spoken.phoneme_at((np.arange(len(ids)) + 0.5) * TOKEN_S)]
        np.add.at(counts, (at, ids), 1)
    shares = (counts.sum(0) + 1) / (counts.sum() + codes)
    smoothed = (counts + 50 * shares) / (counts.sum(1, keepdims=True) + 50)
    return torch.from_numpy(np.log(smoothed) - np.log(shares)).float()
