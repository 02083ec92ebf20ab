"""Whole GLM-TTS checkpoints of random weights, of any size, that speak utterances of a fixed length.

Not a benchmark itself: what glm_timeline.py and glm_side_by_side.py share. Random weights end an utterance by chance,
so here its length is given, the same for whatever is compared.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from legato.families.glm_tts.frontend import GlmFrontend, glm_voice
from legato.families.glm_tts.lm import GlmSpeech, LengthBounds, PromptIds, speech_prompt
from legato.protocols import Prompt, SpeechModel
from legato.types import Utterance, Voice

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "families"))
from glm_tts import tiny, tiny_frontend, whole

TEXT_IDS = 15
SIZES = {
    "tiny": whole.SIZES,
    "mid": tiny.Sizes(
        lm_width=768, lm_layers=12, lm_heads=12, lm_kv_heads=4, lm_inner=2816, vocabulary=4096,
        dit_width=256, dit_layers=10, dit_head_dim=64, token_width=128, hift_width=128, f0_width=128,
    ),
}  # fmt: skip
"""`mid` has a language model of 101 M parameters, and a flow and a vocoder in the released proportion to it."""

VOICE_S, VOICE_TEXT = 3.4, "good morning"


def build(folder: Path, size: str) -> Path:
    """Write a checkpoint of that size; gives its tree."""
    return whole.build_whole(folder, SIZES[size])


def voice(model: SpeechModel) -> Voice:
    """A voice for it, of made-up speech."""
    assert model.cloner is not None
    return model.cloner.clone("ada", tiny_frontend.speechlike(24000, VOICE_S), 24000, VOICE_TEXT)


def text_ids(frontend: GlmFrontend) -> list[int]:
    """The text that is spoken, as ids."""
    return list(range(100, 100 + TEXT_IDS)) if frontend.special.first_speech > 100 + TEXT_IDS else [0] * TEXT_IDS


class FixedLength:
    """The family's frontend, but every utterance has the same text ids and exactly so many codec tokens."""

    continues = False

    def __init__(self, frontend: GlmFrontend, tokens: int) -> None:
        self.special, self.ids, self.tokens = frontend.special, text_ids(frontend), tokens

    def check(self, text: str) -> None:
        pass

    def prompt(self, utterance: Utterance) -> Prompt:
        facts = glm_voice(utterance.voice)
        ids = PromptIds(facts.text_ids, self.ids, facts.speech_ids)
        prompt = speech_prompt(utterance.id, ids, self.special, utterance.seed)
        bounds = LengthBounds(self.tokens, self.tokens)
        length = len(prompt.token_ids) + self.tokens
        return replace(prompt, continuation=GlmSpeech(self.special, bounds), max_positions=length)


def fixed_length(model: SpeechModel, tokens: int) -> SpeechModel:
    """The model, speaking utterances of that many codec tokens whatever the text."""
    assert isinstance(model.frontend, GlmFrontend)
    return replace(model, frontend=FixedLength(model.frontend, tokens))
