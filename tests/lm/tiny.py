"""A tiny random decoder and continuations that write down every row of logits they are sampled from."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor, nn

from legato.lm.scheduler import SchedulerLimits
from legato.lm.sequence import Scheduled
from legato.lm.stage import LMStage
from legato.nn.attention import AttentionInput, KVShape
from legato.nn.decoder import Decoder, DecoderConfig
from legato.nn.layers import Linear, freeze
from legato.protocols import Prompt, Step
from legato.types import Sampling, SpeechTokens, UtteranceId

VOCAB = 97
SECTIONS = (2, 3, 3)
"""Of the rotary frequencies, by axis."""
CONFIG = DecoderConfig(
    width=64, layers=3, heads=4, kv_heads=2, head_dim=16, inner=176, rope_theta=10_000.0, norm_eps=1e-6, qkv_bias=True
)


class TinyLM(nn.Module):
    """Random weights, large enough that every id matters."""

    def __init__(self, row_tile: int = 4) -> None:
        super().__init__()
        self.row_tile = row_tile
        generator = torch.Generator().manual_seed(5)
        self.embedding = nn.Embedding(VOCAB, CONFIG.width)
        self.decoder = Decoder(CONFIG)
        self.head = Linear(CONFIG.width, VOCAB, bias=False)
        for parameter in self.parameters():
            scale = 1.0 if parameter.dim() == 1 else 2 * parameter.shape[-1] ** -0.5
            parameter.data = torch.randn(parameter.shape, generator=generator) * scale
        freeze(self, row_tile)

    @property
    def kv_shape(self) -> KVShape:
        return KVShape(CONFIG.layers, CONFIG.kv_heads, CONFIG.head_dim, torch.float32, torch.device("cpu"))

    def embed(self, ids: Tensor, vectors: Tensor | None) -> Tensor:
        rows: Tensor = self.embedding(ids)
        return rows if vectors is None else rows + vectors

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        hidden: Tensor = self.decoder(rows, attention)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(hidden)
        return scores.float()


LM = TinyLM()


class RelayingLM(TinyLM):
    """TinyLM with positions on three axes that leaves a row for every position."""

    def __init__(self) -> None:
        super().__init__()
        folded = self.decoder.state_dict()
        self.decoder = Decoder(replace(CONFIG, rope_sections=SECTIONS))
        self.decoder.load_state_dict(folded)
        freeze(self, self.row_tile)

    @property
    def kv_shape(self) -> KVShape:
        return replace(super().kv_shape, relay_width=CONFIG.width)

    def relay(self, ids: Tensor, embedded: Tensor, hidden: Tensor) -> Tensor:
        return hidden + embedded * (ids[:, None] % 2)


class Talker:
    """Feeds what was sampled, or what its host makes of it, and keeps all logits.

    `late` polls pass before the host answers a token that 3 divides. `vectors`: the host adds one to each id it feeds.
    `script` are the ids that will be sampled; guessing from it, one guess in `wrong` is spoilt.
    """

    def __init__(
        self, tokens: int, *, late: int = 0, vectors: bool = False, script: Seq[int] = (), wrong: int = 0
    ) -> None:
        self.tokens, self.late, self.vectors, self.script, self.wrong = tokens, late, vectors, script, wrong
        self.seen: list[Tensor] = []
        self.said: list[int] = []
        self.owed: Step | None = None
        self.polls = self.guesses = 0

    def constrain(self, logits: Tensor) -> Tensor:
        self.seen.append(logits.clone())
        return logits

    def accept(self, token: int) -> Step:
        self.said.append(token)
        final = len(self.said) >= self.tokens
        answer = Step(feed=(token,), vectors=vector(token)[None] if self.vectors else None)
        if self.late and token % 3 == 0 and not final:
            self.owed, self.polls = answer, 0
            return Step(emit=token)
        return Step(emit=token, final=final, feed=answer.feed, vectors=answer.vectors)

    def draft(self, limit: int) -> tuple[int, ...]:
        guesses = list(self.script[len(self.said) : len(self.said) + limit])
        for index in range(len(guesses)):
            self.guesses += 1
            if self.wrong and self.guesses % self.wrong == 0:
                guesses[index] = (guesses[index] + 1) % VOCAB
        return tuple(guesses)

    def poll(self) -> Step | None:
        self.polls += 1
        if self.owed is None or self.polls < self.late:
            return None
        step, self.owed = self.owed, None
        return step

    @property
    def logits(self) -> Tensor:
        return torch.stack(self.seen)


def vector(token: int) -> Tensor:
    """What a host adds to the embedding of an id."""
    return torch.linspace(-1, 1, CONFIG.width) * (1 + token % 5)


def ids(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


def stage(
    *,
    lm: TinyLM = LM,
    pages: int = 200,
    page_size: int = 16,
    budget: int = 512,
    beside: int = 16,
    sequences: int = 16,
    backend: str = "tiled",
) -> LMStage:
    return LMStage(lm, pages, page_size, SchedulerLimits(budget, beside, sequences), backend)


def step(stage: LMStage, order: Iterable[UtteranceId] | None = None) -> tuple[list[Scheduled], list[SpeechTokens]]:
    """One step, most urgent first as given, else first come first. Sequences that are not ready are left out."""
    ready = stage.ready()
    batch = stage.plan(ready if order is None else [u for u in order if u in ready])
    return ([], []) if batch is None else (batch, stage.commit(batch, stage.run(batch)))


def finish(stage: LMStage, most_steps: int = 3000) -> list[SpeechTokens]:
    """Step until nothing is left."""
    out: list[SpeechTokens] = []
    for _ in range(most_steps):
        if not len(stage):
            return out
        out += step(stage)[1]
    raise AssertionError("it does not end")


def speak(stage: LMStage, prompt: Prompt) -> Talker:
    """Run one prompt by itself to its end."""
    stage.add(prompt)
    finish(stage)
    assert isinstance(prompt.continuation, Talker)
    return prompt.continuation


@dataclass(frozen=True)
class Case:
    """A prompt, how much it says, and how its host behaves."""

    number: int
    length: int
    tokens: int = 8
    late: int = 0
    vectors: bool = False
    temperature: float = 0.8

    @property
    def utterance(self) -> UtteranceId:
        return UtteranceId(self.number, 0)

    @property
    def ids(self) -> tuple[int, ...]:
        return ids(self.length, self.number)

    def talker(self, script: Seq[int] = (), wrong: int = 0) -> Talker:
        return Talker(self.tokens, late=self.late, vectors=self.vectors, script=script, wrong=wrong)

    def prompt(
        self, talker: Talker | None = None, *, token_ids: tuple[int, ...] = (), use_cache: bool = True, shared: int = 0
    ) -> Prompt:
        known = token_ids or self.ids
        return Prompt(
            utterance=self.utterance,
            token_ids=known,
            continuation=talker or self.talker(),
            sampling=Sampling(temperature=self.temperature),
            seed=self.number,
            max_positions=len(known) + self.tokens,
            vectors=torch.stack([vector(i) for i in known]) if self.vectors else None,
            shared_tokens=shared,
            share_key="voice",
            use_cache=use_cache,
        )

    def alone(self) -> Talker:
        """By itself in a roomy stage, in one prefill."""
        return _alone(self)


@cache
def _alone(case: Case) -> Talker:
    return speak(stage(), case.prompt())
