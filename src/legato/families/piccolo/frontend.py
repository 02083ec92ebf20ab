"""Text → phoneme ids → prompt, for the first voice (English) and for voices with a reference (two languages)."""

from __future__ import annotations

from torch import Tensor

from legato.errors import RequestError, UnsupportedFeature
from legato.protocols import Prompt
from legato.text.marks import Mark, as_written, pieces
from legato.types import Utterance

from .config import PiccoloConfig
from .g2p import Phonemes, marked, spells_phonemes
from .lm import MAX_CODES_PER_UTTERANCE, TextSynchronous
from .mandarin import has_han
from .voices import PiccoloVoice

EDGE = 0
"""The id at both ends of an utterance."""

HAN_BLOCKS = ((0x3000, 0x303F), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xFF00, 0xFFEF))


class PiccoloFrontend:
    """Makes prompts; holds the g2p and the phoneme table, nothing of any request."""

    continues = False

    def __init__(self, config: PiccoloConfig, table: Tensor) -> None:
        self.config, self.table = config, table
        self.phonemes = Phonemes()

    def check(self, text: str) -> None:
        """Refuse letters that this voice does not read, and pronunciations that cannot be followed."""
        foreign = next((c for c in as_written(text) if c.isalpha() and not self._reads(ord(c))), None)
        if foreign is not None:
            spoken = "English and Mandarin" if self.config.languages else "English"
            raise UnsupportedFeature(f"this voice speaks {spoken}; it cannot read {foreign!r}", "input")
        for part in pieces(text):
            if isinstance(part, Mark):
                self._check_mark(part)

    def _check_mark(self, mark: Mark) -> None:
        if not spells_phonemes(mark) and "zh" not in self.config.languages:
            raise RequestError(f"{mark}: write phonemes between slashes, such as {{Qatar|/kˈʌtɚ/}}", "input")
        unknown = sorted(set(marked(mark)) - set(self.config.phonemes))
        if unknown:
            known = "".join(self.config.phonemes)
            raise RequestError(f"{mark}: {unknown[0]!r} is no phoneme of this voice; there are {known}", "input")

    def _reads(self, letter: int) -> bool:
        han = any(first <= letter <= last for first, last in HAN_BLOCKS)
        return letter <= _LAST_LATIN or (han and "zh" in self.config.languages)

    def prompt(self, utterance: Utterance) -> Prompt | None:
        self.check(utterance.text)
        vocabulary = self.config.phonemes
        spoken = [vocabulary[c] for c in self.phonemes(utterance.text) if c in vocabulary]
        if not any(i > vocabulary[" "] for i in spoken):
            return None
        ids = (EDGE, *spoken, EDGE)
        continuation = TextSynchronous(ids, self.config, self.table)
        voice: PiccoloVoice | None = utterance.voice.facts
        reference = tuple(self.config.first_code_id + code for code in voice.codes) if voice else ()
        language = self.config.language_ids("zh" if has_han(as_written(utterance.text)) else "en")
        return Prompt(
            utterance=utterance.id,
            token_ids=(*reference, *language, *ids, self.config.begin_of_audio, *ids[: continuation.given]),
            continuation=continuation,
            sampling=utterance.sampling or self.config.sampling,
            seed=utterance.seed,
            max_positions=len(reference) + len(language) + 2 * len(ids) + 1 + MAX_CODES_PER_UTTERANCE,
            shared_tokens=len(reference),
            use_cache=utterance.use_cache,
        )


_LAST_LATIN = 0x24F
