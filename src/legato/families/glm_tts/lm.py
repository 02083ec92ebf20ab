"""GLM-TTS's language model: a Llama over one vocabulary of text, phonemes, marks and codec ids.

    prompt text · text · BOA · prompt speech | speech … EOA

The prompt speech follows the text to be spoken, so only the prompt text is shared between utterances.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.attention import AttentionInput, KVShape
from legato.nn.decoder import Decoder
from legato.nn.layers import Linear, freeze
from legato.protocols import Prompt, Step
from legato.types import Sampling, UtteranceId

from .config import LMFacts
from .tokenizer import SpecialIds

RAS = Sampling(temperature=1.0, top_k=25, top_p=0.8, ras_window=10, ras_threshold=0.1)
"""As the release draws: one hit among the last ten ids is enough for a draw from the full distribution."""

TOP_K = Sampling(temperature=1.0, top_k=25)
"""The release's other way (`sample_method="topk"`)."""

MAX_REDRAWS = 64
"""Draws of a too early end before it is taken out of the choice."""

MIN_TOKENS_PER_TEXT_ID, MAX_TOKENS_PER_TEXT_ID = 2, 20


class GlmLM(nn.Module):
    """Decoder with one embedding; the head is the same matrix (`tied`) or its own."""

    row_tile: int = 0

    def __init__(self, facts: LMFacts) -> None:
        super().__init__()
        self.facts = facts
        self.embedding = nn.Embedding(facts.vocabulary, facts.decoder.width)
        self.decoder = Decoder(facts.decoder)
        self.head = Linear(facts.decoder.width, facts.vocabulary, bias=False)
        if facts.tied:
            self.head.weight = self.embedding.weight

    def freeze(self, row_tile: int) -> None:
        """Ready for inference. A tied embedding then shares the head's layout, so the matrix is kept once; but not in
        bfloat16 on a CPU, where the head has a copy of its own that is read a third faster."""
        self.row_tile = row_tile
        freeze(self, row_tile)
        if self.facts.tied and self.head.halved:
            self.head.freeze(row_tile)
        elif self.facts.tied:
            self.embedding.weight = self.head.weight

    @property
    def kv_shape(self) -> KVShape:
        sizes, weight = self.facts.decoder, self.head.weight
        return KVShape(sizes.layers, sizes.kv_heads, sizes.head_dim, weight.dtype, weight.device)

    def embed(self, ids: Tensor, vectors: Tensor | None) -> Tensor:
        rows = F.embedding(ids, self.embedding.weight)
        return rows if vectors is None else rows + vectors

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        hidden: Tensor = self.decoder(rows, attention)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(hidden)
        return scores.float()


@dataclass(frozen=True)
class LengthBounds:
    """Speech tokens an utterance must and may have."""

    least: int
    most: int

    @classmethod
    def of_text(cls, text_ids: int) -> LengthBounds:
        """The release's rule. `text_ids` counts the text to be spoken, phoneme ids included, without any prompt."""
        return cls(text_ids * MIN_TOKENS_PER_TEXT_ID, text_ids * MAX_TOKENS_PER_TEXT_ID)


class GlmSpeech:
    """Continuation of one utterance: every sampled id is a codec id and the next input, until EOA.

    EOA has no chance before `bounds.least` ids: it is taken out *after* the log-softmax or, with `redraw`, drawn again,
    as the release does in its two ways of sampling. With `audio_only` neither has any id that is not speech; the
    release only warns, and its flow then breaks.
    """

    def __init__(
        self, special: SpecialIds, bounds: LengthBounds, *, audio_only: bool = True, redraw: bool = False
    ) -> None:
        self.special, self.bounds, self.audio_only, self.redraw = special, bounds, audio_only, redraw
        self.count = self.redraws = 0

    @property
    def _too_early(self) -> bool:
        return self.count < self.bounds.least

    def constrain(self, logits: Tensor) -> Tensor:
        scores = logits.log_softmax(-1)
        if self._too_early and not (self.redraw and self.redraws < MAX_REDRAWS):
            scores[self.special.end_of_audio] = -torch.inf
        if self.audio_only:
            end = scores[self.special.end_of_audio].clone()
            scores[: self.special.first_speech] = -torch.inf
            scores[self.special.last_speech + 1 :] = -torch.inf
            scores[self.special.end_of_audio] = end
        return scores

    def accept(self, token: int) -> Step:
        if token == self.special.end_of_audio:
            self.redraws += self._too_early
            return Step(refused=True) if self._too_early else Step(final=True)
        self.count, self.redraws = self.count + 1, 0
        return Step(emit=token - self.special.first_speech, feed=(token,), final=self.count >= self.bounds.most)

    def draft(self, limit: int) -> tuple[int, ...]:
        return ()

    def poll(self) -> Step | None:
        return None


@dataclass(frozen=True)
class PromptIds:
    """What goes into one prompt. `speech_ids` are codec ids from 0; `speaker_ids` name the speaker of an SFT model."""

    prompt_text_ids: Seq[int]
    text_ids: Seq[int]
    speech_ids: Seq[int]
    speaker_ids: Seq[int] = ()

    def layout(self, special: SpecialIds) -> tuple[int, ...]:
        """All ids in order. Prompt speech becomes audio ids only beside a prompt text, as in the release."""
        offset = special.first_speech if len(self.speech_ids) and len(self.prompt_text_ids) else 0
        speech = (i + offset for i in self.speech_ids)
        return (*self.speaker_ids, *self.prompt_text_ids, *self.text_ids, special.begin_of_audio, *speech)


def speech_prompt(
    utterance: UtteranceId,
    ids: PromptIds,
    special: SpecialIds,
    seed: int,
    sampling: Sampling | None = None,
    *,
    use_cache: bool = True,
    audio_only: bool = True,
) -> Prompt:
    """The engine's prompt for one utterance; text ids must not be empty."""
    token_ids = ids.layout(special)
    bounds = LengthBounds.of_text(len(ids.text_ids))
    sampling = sampling or RAS
    redraw = not sampling.ras_window and sampling.temperature > 0
    return Prompt(
        utterance=utterance,
        token_ids=token_ids,
        continuation=GlmSpeech(special, bounds, audio_only=audio_only, redraw=redraw),
        sampling=sampling,
        seed=seed,
        max_positions=len(token_ids) + bounds.most,
        shared_tokens=len(ids.speaker_ids) + len(ids.prompt_text_ids),
        use_cache=use_cache,
    )
