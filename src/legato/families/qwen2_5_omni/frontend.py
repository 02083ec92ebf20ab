"""Reading a given text aloud: the writer's reply is given, not drawn, and the talker speaks it like any other.

    system: the sentence behind which the model was trained to speak
    user: READ_ALOUD and the text
    assistant: the text                ← its rows drive the talker

The words are those of the text, since the talker follows these rows and nothing else. How they are spoken is the
model's: it was trained on replies of its own, so symbols and lists are read as it likes, and a text that nobody would
answer with (one letter, a table) may come out mumbled or cut.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from legato.errors import PromptTooLong, UnsupportedFeature
from legato.protocols import SHARE_ALL, Place, Prompt, Step
from legato.types import Sampling, Utterance

from .chat import SPEAKING_SYSTEM
from .handover import Handover
from .parts import ThinkerConfig
from .pieces import Pieces
from .speech import Drawing, Speech
from .tokenizer import TextTokenizer

READ_ALOUD = "Read this text aloud, word for word:\n"


class Reading:
    """Continuation of a writer whose reply is given: when its last id is computed, all has been said."""

    def __init__(self, handover: Handover) -> None:
        self.handover = handover

    def accept(self, token: int) -> Step:
        self.handover.end()
        return Step(final=True)

    def poll(self) -> Step | None:
        return None

    def draft(self, limit: int) -> tuple[int, ...]:
        return ()

    def constrain(self, logits: Tensor) -> Tensor:
        return logits


class ReadAloud:
    """A Frontend."""

    continues = False

    def __init__(self, config: ThinkerConfig, tokenizer: TextTokenizer, speech: Speech) -> None:
        self.config, self.tokenizer, self.speech = config, tokenizer, speech

    def check(self, text: str) -> None:
        """Any text can be tried."""

    def prompt(self, utterance: Utterance) -> Prompt | None:
        """The talker's prompt, whose source is the writer's. Raises PromptTooLong for the thinker's context."""
        text = utterance.text.strip()
        if not text:
            return None
        pieces = Pieces(self.config, self.tokenizer)
        for role, said in (("system", SPEAKING_SYSTEM), ("user", READ_ALOUD + text)):
            pieces.open_turn(role)
            pieces.text(said)
            pieces.close_turn()
        pieces.open_turn("assistant")
        length = pieces.count()
        next_place = pieces.places.next_place
        pieces.text(text)
        if pieces.count() > self.config.context:
            raise PromptTooLong(
                f"reading {len(text)} characters aloud needs {pieces.length} positions; this model has "
                f"{self.config.context}: shorten the sentence",
                "input",
            )
        handover = Handover(length)
        source = self._source(utterance, pieces, handover)
        assert source.places is not None
        handover.announce(source.places[:length], source.token_ids[:length])
        handover.close_prompt(next_place)
        drawing = Drawing(utterance.sampling, utterance.seed, utterance.use_cache)
        spoken = self.speech.follow(utterance.id, handover, utterance.voice, drawing)
        return replace(spoken, source=source)

    def _source(self, utterance: Utterance, pieces: Pieces, handover: Handover) -> Prompt:
        """What the thinker computes."""
        taken = pieces.take()
        places: list[Place] = [place for piece in taken for place in piece.places]
        return Prompt(
            utterance=utterance.id,
            token_ids=tuple(id for piece in taken for id in piece.ids),
            continuation=Reading(handover),
            sampling=Sampling(temperature=0),
            seed=utterance.seed,
            max_positions=pieces.length + 1,
            shared_tokens=SHARE_ALL if utterance.use_cache else 0,
            share_key="thinker",
            use_cache=utterance.use_cache,
            places=places,
            relay=handover,
        )


class NoFrontend:
    """Of a model that was loaded to write only."""

    continues = False

    def check(self, text: str) -> None:
        raise UnsupportedFeature("this model was loaded without its voice: it cannot read texts aloud", "input")

    def prompt(self, utterance: Utterance) -> Prompt | None:
        self.check(utterance.text)
        return None
