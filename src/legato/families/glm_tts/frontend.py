"""One utterance and its voice → the language model's prompt.

The layout and the bounds are in lm.py (`speech_prompt`), and so is the continuation (`GlmSpeech`). Here: text to ids,
and with `continues` the earlier utterances of the request as a longer prompt, which the release calls `use_cache`.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import name

from legato.errors import RequestError, UnsupportedFeature
from legato.protocols import Prompt
from legato.types import Utterance, Voice

from .lm import PromptIds, speech_prompt
from .phonemes import Phonemes, known_phonemes
from .pinyin import Marked, read_marks
from .text_front import TextFront
from .text_split import split_text
from .tokenizer import SpecialIds, Tokenizer
from .voices import GlmVoice

MOST_SPEECH_TOKENS = 750
"""30 s: earlier utterances are let go, the oldest first, until the prompt's speech and the new one's fit in here."""

CACHED_TEXTS = 256
SHOWN_CHARS = 20
FOREIGN_SCRIPTS = ("CYRILLIC", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "HEBREW", "THAI", "DEVANAGARI")


@dataclass(frozen=True)
class Said:
    """Text ids and the codec ids that were spoken for them."""

    text_ids: tuple[int, ...]
    speech_ids: tuple[int, ...]


class GlmFrontend:
    """Makes prompts; holds the tables, nothing of any request.

    `phonemes` is what phoneme mode needs, for the utterances that ask for it. Pronunciations written into the text,
    {行|hang2}, are always followed.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        special: SpecialIds,
        text_front: TextFront,
        *,
        continues: bool = False,
        phonemes: Phonemes | None = None,
    ) -> None:
        self.tokenizer, self.special, self.text_front = tokenizer, special, text_front
        self.continues = continues
        self.phonemes = phonemes
        self._known = known_phonemes(tokenizer)
        self._ids = lru_cache(CACHED_TEXTS)(self._text_ids)

    def check(self, text: str) -> None:
        """Refuse text that is mostly in a script the model cannot read, and pronunciations that cannot be followed."""
        self._marked(text)
        check_script(text, "input")

    def prompt(self, utterance: Utterance) -> Prompt | None:
        """The prompt for an utterance; None when nothing in it can be spoken.

        Raises RequestError when the voice is not one of this model's or a pronunciation cannot be followed.
        """
        voice = self.facts_of(utterance.voice)
        hybrid = utterance.pronunciation == "phonemes"
        ids = self._ids(utterance.text, hybrid)
        if not ids:
            return None
        past = self._past(utterance, hybrid) if self.continues else ()
        items = remembered(Said(voice.text_ids, voice.speech_ids), past, ids)
        return speech_prompt(
            utterance.id,
            PromptIds(
                prompt_text_ids=[id for item in items for id in item.text_ids],
                text_ids=ids,
                speech_ids=[id for item in items for id in item.speech_ids],
                speaker_ids=voice.speaker_ids,
            ),
            self.special,
            utterance.seed,
            utterance.sampling,
            use_cache=utterance.use_cache,
        )

    def facts_of(self, voice: Voice) -> GlmVoice:
        """The facts of a voice. Raises RequestError when it was not made for this checkpoint."""
        facts = glm_voice(voice)
        if max(facts.speech_ids, default=0) >= self.special.speech_tokens:
            raise RequestError(
                f"the voice {voice.name} has codec ids up to {max(facts.speech_ids)}, but this model has "
                f"{self.special.speech_tokens}: it was made with another checkpoint; make it again",
                "voice",
            )
        return facts

    def voice_ids(self, text: str) -> tuple[int, ...]:
        return voice_ids(self.tokenizer, self.text_front, text)

    def pieces(self, text: str) -> list[str]:
        """A whole text cut as the release cuts it: normalised first, then 30 to 60 characters a piece.

        Each piece is normalised again on its way to a prompt. Pronunciations in the text stay written in it.
        """
        marked = self._marked(text)
        return [marked.restored(piece) for piece in split_text(self.text_front.normalize(marked.text))]

    def splitter(self) -> WholeText:
        """What cuts one request's text into these pieces."""
        return WholeText(self)

    def spoken(self, text: str, hybrid: bool = False) -> str:
        """What the tokenizer gets to see of one piece; "" when there is nothing to say."""
        marked = self._marked(text)
        normal = self.text_front.normalize(marked.text)
        if hybrid:
            normal = self._phonemes().hybrid(normal)
        return marked.spoken(normal)

    def _text_ids(self, text: str, hybrid: bool) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(self.spoken(text, hybrid)))

    def _past(self, utterance: Utterance, hybrid: bool) -> tuple[Said, ...]:
        return tuple(Said(self._ids(text, hybrid), tuple(ids)) for text, ids in utterance.history)

    def _phonemes(self) -> Phonemes:
        if self.phonemes is None:
            raise UnsupportedFeature(
                "phoneme mode is not available: pip install 'legato-speech[glm-tts]' and load the model again"
            )
        return self.phonemes

    def _marked(self, text: str) -> Marked:
        marked = read_marks(text)
        for place, names in marked.said.items():
            lacking = [each for each in names if each not in self._known]
            if lacking:
                raise RequestError(f"the model has no phoneme {lacking[0]}, of {marked.written[place]}", "input")
        return marked


class WholeText:
    """Cuts a text as the release does, which needs all of it: nothing is spoken before the text has ended."""

    def __init__(self, frontend: GlmFrontend) -> None:
        self._frontend = frontend
        self._text = ""

    def push(self, piece: str) -> list[str]:
        self._text += piece
        return []

    def finish(self) -> list[str]:
        text, self._text = self._text, ""
        return self._frontend.pieces(text)


def voice_ids(tokenizer: Tokenizer, text_front: TextFront, text: str) -> tuple[int, ...]:
    """Ids of what a reference recording says: normalised, and unlike other text with a space at its end.

    Raises RequestError for a text that cannot be spoken.
    """
    check_script(text, "prompt_text")
    normal = text_front.normalize(text)
    if not normal:
        raise RequestError(
            f"prompt_text {text[:SHOWN_CHARS]!r} holds nothing that can be spoken: give what the recording says",
            "prompt_text",
        )
    return tuple(tokenizer.encode(f"{normal} "))


def check_script(text: str, param: str) -> None:
    """Refuse text that is mostly in a script the model cannot read. Raises UnsupportedFeature."""
    letters = [char for char in text if char.isalpha()]
    foreign = [char for char in letters if name(char, "").startswith(FOREIGN_SCRIPTS)]
    if 2 * len(foreign) > len(letters):
        raise UnsupportedFeature(f"this model speaks Chinese and English; it cannot read {foreign[0]!r}", param)


def glm_voice(voice: Voice) -> GlmVoice:
    """The facts of a voice. Raises RequestError when it is another model's."""
    if not isinstance(voice.facts, GlmVoice):
        raise RequestError(f"{voice.name} is not a voice of GLM-TTS", "voice")
    return voice.facts


def remembered(voice: Said, past: Seq[Said], text_ids: Seq[int]) -> list[Said]:
    """What the prompt of the next utterance begins with: the voice, and of the past what still fits.

    Before each utterance that has a past, the length of its speech is guessed from its text by the ratio of all that is
    remembered, and the oldest (never the voice) let go until all fits. What was let go once does not come back, so the
    past is gone through from its start.
    """
    kept = [voice]
    for said in past:
        kept = [*_fitting(kept, len(said.text_ids)), said]
    return _fitting(kept, len(text_ids))


def _fitting(kept: list[Said], text_ids: int) -> list[Said]:
    speech = sum(len(said.speech_ids) for said in kept)
    text = sum(len(said.text_ids) for said in kept)
    expected = int(speech / (text or 1.0) * text_ids)
    kept = list(kept)
    while len(kept) > 1 and speech + expected > MOST_SPEECH_TOKENS:
        speech -= len(kept.pop(1).speech_ids)
    return kept
