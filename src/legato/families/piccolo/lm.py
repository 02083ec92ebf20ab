"""Piccolo's language model: phonemes and codec tokens in one stream, in step with the text.

    phonemes BOA p0 p1 | p2 c c p3 c p4 …

The model either emits a code or asks for the next phoneme (ADVANCE), which the host then feeds. The end cannot be
sampled before the text is used up, so nothing is skipped, repeated or invented.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor, nn

from legato.nn.attention import AttentionInput, KVShape
from legato.nn.decoder import Decoder
from legato.nn.layers import Linear
from legato.protocols import Step

from .config import ADVANCE, END_OF_AUDIO, FIRST_CODE, PiccoloConfig
from .said import pack, window

MAX_CODES_PER_PHONEME = 45
"""1.8 s on one phoneme is a runaway: the next phoneme is forced, or the end."""

MAX_CODES_PER_UTTERANCE = 1000


class PiccoloLM(nn.Module):
    """Decoder over one vocabulary of phonemes, marks and codes; the head knows only marks and codes."""

    row_tile: int = 0

    def __init__(self, config: PiccoloConfig) -> None:
        super().__init__()
        self._sizes = config.lm
        self.embedding = nn.Embedding(config.ids, config.lm.width)
        self.decoder = Decoder(config.lm)
        self.head = Linear(config.lm.width, FIRST_CODE + config.codes, bias=False)

    @property
    def kv_shape(self) -> KVShape:
        weight = self.head.weight
        return KVShape(self._sizes.layers, self._sizes.kv_heads, self._sizes.head_dim, weight.dtype, weight.device)

    def embed(self, ids: Tensor, vectors: Tensor | None) -> Tensor:
        rows: Tensor = self.embedding(ids)
        return rows if vectors is None else rows + vectors

    def forward(self, rows: Tensor, attention: AttentionInput) -> Tensor:
        hidden: Tensor = self.decoder(rows, attention)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(hidden)
        return scores.float()


class TextSynchronous:
    """Continuation of one utterance: `phonemes` are its ids, of which `lead` were given ahead in the prompt.

    `table` [phonemes, codes] holds log P(code | phoneme) − log P(code), added to the logits with `weight`.
    """

    def __init__(self, phonemes: Seq[int], config: PiccoloConfig, table: Tensor | None) -> None:
        self.phonemes = phonemes
        self.lead = config.lead_phonemes
        self.given = min(self.lead, len(phonemes))
        self.first_code_id = config.first_code_id
        self.around = config.phonemes_around
        self.table, self.weight = table, config.phoneme_table_weight
        self.codes = self.codes_on_phoneme = 0

    @property
    def _more_text(self) -> bool:
        return self.given < len(self.phonemes)

    @property
    def _stuck(self) -> bool:
        return self.codes_on_phoneme >= MAX_CODES_PER_PHONEME

    def constrain(self, logits: Tensor) -> Tensor:
        if self.table is not None:
            logits[FIRST_CODE:].add_(self.table[self.phonemes[self._spoken()]], alpha=self.weight)
        logits[END_OF_AUDIO if self._more_text else ADVANCE] = -torch.inf
        if self._more_text and self._stuck:
            logits[FIRST_CODE:] = -torch.inf
        return logits

    def _spoken(self) -> int:
        """Index of the phoneme being spoken now: `lead` behind the last one given; at the end, about two codes each."""
        behind = self.given - 1 - self.lead
        if not self._more_text:
            behind += min(self.lead, self.codes_on_phoneme // 2)
        return min(max(behind, 0), len(self.phonemes) - 1)

    def accept(self, token: int) -> Step:
        if token == END_OF_AUDIO:
            return Step(final=True)
        if token == ADVANCE:
            phoneme = self.phonemes[self.given]
            self.given, self.codes_on_phoneme = self.given + 1, 0
            return Step(feed=(phoneme,))
        said = window(self.phonemes, self._spoken(), self.around) if self.around else ()
        self.codes, self.codes_on_phoneme = self.codes + 1, self.codes_on_phoneme + 1
        if not self._more_text and self._stuck:
            return Step(final=True)
        code = token - FIRST_CODE
        return Step(
            emit=pack(code, said), feed=(self.first_code_id + code,), final=self.codes >= MAX_CODES_PER_UTTERANCE
        )

    def draft(self, limit: int) -> tuple[int, ...]:
        """The phonemes that come next, should the model ask for them: a third of all steps, often several in a row."""
        return tuple(self.phonemes[self.given : self.given + limit])

    def poll(self) -> Step | None:
        return None
