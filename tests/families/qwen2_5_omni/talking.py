"""The thinker and the talker by turns, each in its own stage, for tests."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch
from safetensors.torch import load_file

from legato.families.qwen2_5_omni.handover import Handover
from legato.families.qwen2_5_omni.speech import Drawing, Speech
from legato.families.qwen2_5_omni.talker import SAMPLING, SpeechFacts, Talker
from legato.families.qwen2_5_omni.thinker import Thinker
from legato.families.qwen2_5_omni.voices import QwenVoice
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.protocols import Prompt, Step
from legato.types import Sampling, SpeechTokens, UtteranceId, Voice

from .conftest import DATA
from .drive import Writing, cut, prompt_of, stage
from .tiny import IDS

GOLDEN = load_file(DATA / "talker.safetensors")
GREEDY = replace(SAMPLING, temperature=0.0)
SEED = 7
NOTHING = torch.zeros(0)
VOICES = {
    name: Voice(name, facts=QwenVoice(NOTHING, NOTHING, token))
    for name, token in (("Chelsie", IDS.chelsie), ("Ethan", IDS.ethan))
}


def make_speech(thinker: Thinker, talker: Talker, **changes: int | bool) -> Speech:
    end, pad = thinker.text_rows([talker.config.ids.text_end, talker.config.ids.text_pad])
    facts = SpeechFacts(talker.config.ids, talker.no_code, last_code=103, end=end, pad=pad, max_codes=60)
    return Speech(replace(facts, **changes), lambda id: thinker.text_rows([id])[0], talker.config.context)


class Dictating(Writing):
    """The golden reply's writer: tells the handover of its prompt and of its end."""

    def __init__(self, handover: Handover, tokens: int, parts: Seq[Step], end: int = IDS.end) -> None:
        super().__init__(tokens, parts)
        self.handover, self.end = handover, end

    def poll(self) -> Step | None:
        step = super().poll()
        if step is not None:
            assert step.places is not None
            self.handover.announce(step.places, step.feed)
            if not step.more:
                self.handover.close_prompt(step.places[-1][0] + 1)
        return step

    def accept(self, token: int) -> Step:
        self.said.append(token)
        if token == self.end or len(self.said) >= self.tokens:
            self.handover.end()
            return Step(emit=token, final=True)
        return Step(emit=token, feed=(token,))


@dataclass
class Reply:
    """One reply: both prompts, and what came of them."""

    writer: Prompt
    speech: Prompt
    writing: Dictating
    codes: list[int]

    @property
    def id(self) -> UtteranceId:
        return self.speech.utterance


def reply(
    speech: Speech, step: Step, voice: str, sampling: Sampling | None, *, tokens: int = 12, end: int = IDS.end,
    cuts: Seq[int] = (), number: int = 0, seed: int = SEED,
) -> Reply:  # fmt: skip
    handover = Handover(len(step.feed))
    parts = cut(step, cuts)
    writing = Dictating(handover, tokens, parts, end)
    writer = replace(prompt_of(parts, writing, number=number), relay=handover, keys=())
    spoken = speech.follow(writer.utterance, handover, VOICES[voice], Drawing(sampling, seed))
    return Reply(writer, spoken, writing, [])


def talking(talker: Talker, *, pages: int = 60, page_size: int = 16) -> LMStage:
    return LMStage(talker, pages, page_size, SchedulerLimits(512, 16, 16), "tiled")


def advance(lm: LMStage) -> list[SpeechTokens]:
    batch = lm.plan(lm.ready())
    return [] if batch is None else lm.commit(batch, lm.run(batch))


def speak(thinker: Thinker, talker: Talker, replies: Seq[Reply], *, ratio: float = 1.0, budget: int = 512) -> None:
    """Both stages by turns: `ratio` steps of the thinker for every step of the talker."""
    writer, speaker = stage(thinker, budget=budget), talking(talker)
    for one in replies:
        writer.add(one.writer)
        speaker.add(one.speech)
    by_id = {one.id: one for one in replies}
    owed = 0.0
    for _ in range(3000):
        owed += ratio
        while owed >= 1:
            advance(writer)
            owed -= 1
        for tokens in advance(speaker):
            by_id[tokens.utterance].codes.extend(tokens.ids)
        if not len(speaker):
            while len(writer):
                advance(writer)
            return
    raise AssertionError("it does not end")
