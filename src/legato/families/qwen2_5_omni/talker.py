"""The talker: a decoder that reads the thinker's rows and speaks its reply in codes, 50 a second.

    rows 0 … L−1   the thinker's rows of the prompt, as it computes them; under them an id that has no embedding
    row L          codec pad + the embedding of the id that stands for the voice
    row L+1        codec start + the reply's first row; its logits give the first code
    then           the last code + the reply's next row; when there are no more, once the end of the text, then pad

So it begins with the thinker's second id and then eats a row per code. While the thinker is late it waits: padding
early would change what is said.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.attention import AttentionInput, KVShape
from legato.nn.decoder import Decoder
from legato.nn.layers import Linear, freeze
from legato.nn.weights import DECODER_GROUPS, DECODER_NAMES, Rules, Uninitialised, fuse_projections
from legato.protocols import Place, Step
from legato.types import Sampling

from .handover import Handover
from .parts import TalkerConfig, TalkerIds
from .weights import Tensors, load_part

PREFIX = "talker."
TALKER_NAMES: Rules = (
    (r"^thinker_to_talker_proj\.", "inputs."),
    (r"^model\.embed_tokens\.", "embedding."),
    (r"^codec_head\.", "head."),
    *DECODER_NAMES,
)

SAMPLING = Sampling(temperature=0.9, top_k=40, top_p=0.8, repetition_penalty=1.05)
"""As the reference draws codes."""

MAX_CODES = 4096
"""Of one reply: 82 seconds."""


def no_code(config: TalkerConfig) -> int:
    """The id under the thinker's rows, the first beyond the vocabulary: the reference's own for this place has an
    embedding, should the model ever draw it."""
    return config.vocabulary


class Talker(nn.Module):
    """Decoder over codes and rows of the thinker's width."""

    row_tile: int = 0

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.config = config
        self.no_code = no_code(config)
        self.embedding = nn.Embedding(config.vocabulary, config.embedding_width)
        self.inputs = Linear(config.embedding_width, config.decoder.width)
        self.decoder = Decoder(config.decoder)
        self.head = Linear(config.decoder.width, config.vocabulary, bias=False)

    def freeze(self, row_tile: int) -> None:
        """Ready for inference."""
        self.row_tile = row_tile
        freeze(self, row_tile)

    @property
    def kv_shape(self) -> KVShape:
        sizes, weight = self.config.decoder, self.embedding.weight
        return KVShape(sizes.layers, sizes.kv_heads, sizes.head_dim, weight.dtype, weight.device)

    def embed(self, ids: Tensor, vectors: Tensor | None) -> Tensor:
        """Inputs [R, width] of ids [R] plus rows [R, embedding_width]; `no_code` adds nothing."""
        nothing = ids == self.no_code
        rows = F.embedding(ids.masked_fill(nothing, 0), self.embedding.weight).masked_fill(nothing[:, None], 0.0)
        projected: Tensor = self.inputs(rows if vectors is None else rows + vectors.to(rows.dtype))
        return projected

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        hidden: Tensor = self.decoder(rows, attention)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(hidden)
        return scores.float()


def load_talker(tensors: Tensors, config: TalkerConfig, dtype: torch.dtype) -> Talker:
    """Raises CheckpointError for what does not fit."""
    raw = tensors.read(PREFIX, dtype)
    fuse_projections(raw, DECODER_GROUPS, str(tensors.folder))
    with Uninitialised():
        net = Talker(config)
    load_part(net, raw, TALKER_NAMES, tensors.folder)
    return net


@dataclass(frozen=True, eq=False)
class SpeechFacts:
    """What every reply needs to know of the model.

    `no_code` stands under the prompt's rows. Codes from 0 to `last_code` have a sound; with `known_codes_only` no other
    is ever drawn, which the reference does not prevent (its flow then breaks). `end` and `pad` [embedding_width] are
    what follows a reply's last row.
    """

    ids: TalkerIds
    no_code: int
    last_code: int
    end: Tensor
    pad: Tensor
    known_codes_only: bool = True
    max_codes: int = MAX_CODES


@dataclass(frozen=True, eq=False)
class Manner:
    """How one reply is spoken: the voice's row [embedding_width], how codes are drawn, and how many there may be.

    `first_key` names positions behind the prompt in a prefix cache; no other reply has it, since what is there is known
    to this one only.
    """

    voice: Tensor
    sampling: Sampling
    max_codes: int
    first_key: int


class Speaking:
    """Continuation of one reply: its prompt follows the handover, then every code is fed with a row of the reply."""

    def __init__(self, facts: SpeechFacts, manner: Manner, handover: Handover) -> None:
        self.facts, self.manner, self.handover = facts, manner, handover
        self.codes = 0
        self._seen = {facts.ids.codec_mask, facts.ids.codec_pad, facts.ids.codec_start}
        self._open, self._speechless, self._text_ended = True, False, False
        self._waiting: int | None = None
        self._fed = 0

    # --- the prompt ---

    def poll(self) -> Step | None:
        if self._open:
            return self._prompt()
        if self._waiting is None or (row := self._next_row()) is None:
            return None
        code, self._waiting = self._waiting, None
        return Step(feed=(code,), vectors=row[None], keys=self._keys(1))

    def _prompt(self) -> Step | None:
        """The thinker's rows that came since, or the two rows that close the prompt."""
        come = self.handover.take_prompt()
        if come is not None:
            ids = (self.facts.no_code,) * len(come.rows)
            return Step(feed=ids, vectors=come.rows, places=come.places, keys=come.keys, more=True)
        if not self.handover.prompt_taken:
            return None
        first = self.handover.take_reply()
        if first is None and not self.handover.exhausted:
            return None
        self._open, self._speechless = False, first is None
        rows = torch.stack([self.manner.voice, self.facts.end if first is None else first])
        place = self.handover.next_place
        places: tuple[Place, ...] = ((place,) * 3, (place + 1,) * 3)
        ids = (self.facts.ids.codec_pad, self.facts.ids.codec_start)
        return Step(feed=ids, vectors=rows, places=places, keys=self._keys(2))

    def _keys(self, count: int) -> tuple[int, ...]:
        first = self.manner.first_key + self._fed
        self._fed += count
        return tuple(range(first, first + count))

    # --- the reply ---

    def constrain(self, logits: Tensor) -> Tensor:
        """Logits as the reference draws from: penalty, ids that are never drawn, temperature, top k, top p.

        The ids behind the prompt's rows count as seen, the end among them, as in the reference.
        """
        ids = self.facts.ids
        if self._speechless:
            only = torch.full_like(logits, -torch.inf)
            only[ids.codec_end] = 0.0
            return only
        sampling = self.manner.sampling
        scores = penalized(logits, self._seen, sampling.repetition_penalty)
        scores[ids.codec_start] = -torch.inf
        if self.facts.known_codes_only:
            ends = scores[[ids.codec_pad, ids.codec_end]]
            scores[self.facts.last_code + 1 :] = -torch.inf
            scores[[ids.codec_pad, ids.codec_end]] = ends
        return scores if sampling.temperature <= 0 else narrowed(scores / sampling.temperature, sampling)

    def accept(self, token: int) -> Step:
        if token in (self.facts.ids.codec_pad, self.facts.ids.codec_end):
            return Step(final=True)
        self._seen.add(token)
        self.codes += 1
        sound = token if token <= self.facts.last_code else 0
        if self.codes >= self.manner.max_codes:
            return Step(emit=sound, final=True)
        row = self._next_row()
        if row is None:
            self._waiting = token
            return Step(emit=sound)
        return Step(emit=sound, feed=(token,), vectors=row[None], keys=self._keys(1))

    def _next_row(self) -> Tensor | None:
        """What goes in beside the next code; None while the thinker is late."""
        if self._text_ended:
            return self.facts.pad
        row = self.handover.take_reply()
        if row is None and self.handover.exhausted:
            self._text_ended = True
            return self.facts.end
        return row

    def draft(self, limit: int) -> tuple[int, ...]:
        return ()


def penalized(logits: Tensor, seen: set[int], penalty: float) -> Tensor:
    """A copy of logits [V] in which ids already seen are less likely."""
    ids = torch.tensor(sorted(seen), device=logits.device)
    scores, out = logits[ids], logits.clone()
    out[ids] = torch.where(scores < 0, scores * penalty, scores / penalty)
    return out


def narrowed(scores: Tensor, sampling: Sampling) -> Tensor:
    """Scores [V] with −inf for all but the `top_k` best and, of these, the fewest that reach `top_p`.

    Sums run from the least likely up, in float32, as in the reference: an id goes when the sum up to it is within
    1 − top_p.
    """
    if sampling.top_k:
        least = scores.topk(min(sampling.top_k, len(scores))).values[-1]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if sampling.top_p < 1.0:
        ascending, ids = scores.sort()
        gone = ascending.softmax(-1).cumsum(-1) <= 1 - sampling.top_p
        gone[-1] = False
        scores = scores.index_fill(0, ids[gone], -torch.inf)
    return scores
