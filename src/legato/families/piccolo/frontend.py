"""English text → phoneme ids → prompt. Phonemes are misaki's (Kokoro's alphabet), by the g2p of hibari-tts."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from legato.errors import UnsupportedFeature
from legato.protocols import Prompt
from legato.types import Utterance

from .config import PiccoloConfig
from .lm import MAX_CODES_PER_UTTERANCE, TextSynchronous

EDGE = 0
"""The id at both ends of an utterance."""


class PiccoloFrontend:
    """Makes prompts; holds the g2p and the phoneme table, nothing of any request."""

    continues = False

    def __init__(self, config: PiccoloConfig, table: Tensor) -> None:
        from hibari.g2p import G2P

        self.config, self.table = config, table
        self._g2p: Any = G2P()

    def check(self, text: str) -> None:
        foreign = next((c for c in text if c.isalpha() and ord(c) > _LAST_LATIN), None)
        if foreign is not None:
            raise UnsupportedFeature(f"this voice speaks English; it cannot read {foreign!r}", "input")

    def phonemes(self, text: str) -> str:
        """Phoneme characters of one utterance. The g2p takes the stop after a final "A.P.I." for part of the word."""
        phonemes, mark = str(self._g2p(text)), text.rstrip()[-1:]
        return phonemes + mark if mark in _END_MARKS and not phonemes.endswith(mark) else phonemes

    def prompt(self, utterance: Utterance) -> Prompt | None:
        self.check(utterance.text)
        vocabulary = self.config.phonemes
        spoken = [vocabulary[c] for c in self.phonemes(utterance.text) if c in vocabulary]
        if not any(i > vocabulary[" "] for i in spoken):
            return None
        ids = (EDGE, *spoken, EDGE)
        continuation = TextSynchronous(ids, self.config, self.table)
        return Prompt(
            utterance=utterance.id,
            token_ids=(*ids, self.config.begin_of_audio, *ids[: continuation.given]),
            continuation=continuation,
            sampling=utterance.sampling or self.config.sampling,
            seed=utterance.seed,
            max_positions=2 * len(ids) + 1 + MAX_CODES_PER_UTTERANCE,
            use_cache=utterance.use_cache,
        )


_END_MARKS = (".", "!", "?")
_LAST_LATIN = 0x24F
