"""Speech: the talker's prompt of one reply, from a handover and a voice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from legato.errors import PromptTooLong, UnsupportedFeature
from legato.protocols import SHARE_ALL, Prompt
from legato.types import ChatRequest, Sampling, UtteranceId, Voice

from .handover import Handover
from .talker import SAMPLING, Manner, Speaking, SpeechFacts
from .voices import QwenVoice

PLAIN = Sampling()
"""The continuation narrows the choice itself, as the reference does; all that is left is to draw."""

POSITIONS_BITS, UTTERANCES_BITS = 16, 20
"""Room for positions behind a prompt and for utterances of a request, in the numbers that stand for positions nobody
else has."""

CLOSING_ROWS = 2


@dataclass(frozen=True)
class Drawing:
    """How one reply's codes are drawn: None is the reference's way."""

    sampling: Sampling | None
    seed: int
    use_cache: bool = True


class Speech:
    """Makes talkers' prompts. `row_of` gives the embedding of a text id; `context` is the most positions the talker
    knows."""

    def __init__(self, facts: SpeechFacts, row_of: Callable[[int], Tensor], context: int) -> None:
        self.facts, self.row_of, self.context = facts, row_of, context

    def __call__(self, id: UtteranceId, handover: Handover, voice: Voice, request: ChatRequest) -> Prompt:
        """The reply to a chat request."""
        return self.follow(id, handover, voice, Drawing(request.speech_sampling, request.seed, request.use_cache))

    def follow(self, id: UtteranceId, handover: Handover, voice: Voice, drawing: Drawing) -> Prompt:
        """A prompt that follows the handover, whoever writes into it.

        Raises PromptTooLong for the talker's context, UnsupportedFeature for a way of drawing it does not have.
        """
        facts: QwenVoice = voice.facts
        sampling = drawing.sampling or SAMPLING
        if sampling.ras_window:
            raise UnsupportedFeature("repetition-aware sampling: this model has top_k, top_p and a penalty", "sampling")
        known = handover.longest_prompt + CLOSING_ROWS
        codes = min(self.facts.max_codes, self.context - known)
        if codes < 1:
            raise PromptTooLong(f"the prompt leaves no room for sound: {known} of {self.context} positions", "messages")
        manner = Manner(self.row_of(facts.bos_id), sampling, codes, _first_key(id))
        return Prompt(
            utterance=id,
            token_ids=(),
            continuation=Speaking(self.facts, manner, handover),
            sampling=PLAIN if sampling.temperature > 0 else Sampling(temperature=0),
            seed=drawing.seed,
            max_positions=known + codes,
            shared_tokens=SHARE_ALL if drawing.use_cache else 0,
            share_key="talker",
            use_cache=drawing.use_cache,
            places=(),
            keys=(),
            open=True,
        )


def _first_key(id: UtteranceId) -> int:
    """Negative, so that it is no id and no medium's."""
    number = (id.request << UTTERANCES_BITS) + id.index + 1
    return -(number << POSITIONS_BITS)
