"""Drives the thinker through the LM stage with prompts made by hand."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from legato.families.qwen2_5_omni.thinker import Thinker
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.protocols import Place, Prompt, Step
from legato.types import Sampling, UtteranceId

from .tiny import IDS

MEDIA = {"audio": (IDS.audio,), "image": (IDS.image,), "video": (IDS.video,), "avideo": (IDS.audio, IDS.video)}


class Writing:
    """Greedy; keeps what it drew and the logits it drew from. Its prompt comes in the parts given."""

    def __init__(self, tokens: int, parts: Seq[Step] = ()) -> None:
        self.tokens, self.parts = tokens, list(parts)
        self.said: list[int] = []
        self.logits: list[Tensor] = []

    def constrain(self, logits: Tensor) -> Tensor:
        self.logits.append(logits.clone())
        return logits

    def accept(self, token: int) -> Step:
        self.said.append(token)
        return Step(emit=token, feed=(token,), final=len(self.said) >= self.tokens or token == IDS.end)

    def draft(self, limit: int) -> tuple[int, ...]:
        return ()

    def poll(self) -> Step | None:
        return self.parts.pop(0) if self.parts else None


class Rows:
    """A relay that keeps everything."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def put(self, start: int, rows: Tensor) -> None:
        assert start == sum(map(len, self.parts))
        self.parts.append(rows)

    @property
    def rows(self) -> Tensor:
        return torch.cat(self.parts)


def step_of(thinker: Thinker, gold: dict[str, Tensor], name: str, features: dict[int, Tensor]) -> Step:
    """A golden prompt as one part; features by the placeholder they stand for."""
    ids = gold[f"{name}.ids"].tolist()
    vectors = torch.zeros(len(ids), thinker.config.decoder.width)
    for placeholder, rows in features.items():
        vectors[[i == placeholder for i in ids]] = rows
    fed = tuple(thinker.media_id if i in features else i for i in ids)
    places: list[Place] = [tuple(place) for place in gold[f"{name}.positions"].t().tolist()]
    return Step(feed=fed, vectors=vectors, places=places)


def cut(step: Step, at: Seq[int]) -> list[Step]:
    """The same part in several, all but the last with more to come."""
    borders = [0, *at, len(step.feed)]
    assert step.vectors is not None and step.places is not None
    return [
        Step(feed=step.feed[a:b], vectors=step.vectors[a:b], places=step.places[a:b], more=b < len(step.feed))
        for a, b in zip(borders, borders[1:], strict=False)
    ]


def prompt_of(parts: Seq[Step], writing: Writing, relay: Rows | None = None, number: int = 0) -> Prompt:
    writing.parts = list(parts)
    return Prompt(
        UtteranceId(number, 0), (), writing, Sampling(temperature=0), 0, 400, places=(), open=True, relay=relay
    )


def stage(thinker: Thinker, *, budget: int = 512, beside: int = 16, pages: int = 120, page_size: int = 16) -> LMStage:
    return LMStage(thinker, pages, page_size, SchedulerLimits(budget, beside, 16), "tiled")


def finish(lm: LMStage, most_steps: int = 3000) -> None:
    for _ in range(most_steps):
        if not len(lm):
            return
        batch = lm.plan(lm.ready())
        if batch is not None:
            lm.commit(batch, lm.run(batch))
    raise AssertionError("it does not end")
