"""FlowStage: mel that comes in windows, in company and at any pace is the mel of all tokens at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from legato.families.piccolo.config import read_config
from legato.families.piccolo.flow import PiccoloFlow
from legato.nn.dit import DiTConfig
from legato.nn.layers import freeze
from legato.protocols import Flow
from legato.synth.flow import FlowStage
from legato.synth.noise import NoiseTape
from legato.types import MelBlock, Ramp, SpeechTokens, UtteranceId

from .fakes import FACTS, FRAMES, RATES, VOICE, FakeFlow, flow_mel, pieces, rounds

FIRST = Path(__file__).parents[1] / "families" / "data" / "piccolo_first"
RAMPS = [Ramp((1,), (1,)), Ramp((2, 1, 2, 4), (1,)), Ramp((1, 3), (3, 1)), Ramp((5,), (2,))]
CODES = 20


@dataclass
class Talk:
    """One utterance on its way into a stage, and what has come out."""

    number: int
    tokens: list[int]
    arriving: Iterator[SpeechTokens]
    blocks: list[MelBlock]

    @property
    def id(self) -> UtteranceId:
        return UtteranceId(self.number, 0)

    @property
    def mel(self) -> Tensor:
        return torch.cat([block.mel for block in self.blocks])

    @property
    def finished(self) -> bool:
        return bool(self.blocks) and self.blocks[-1].final


def talk(chance: random.Random, number: int, length: int) -> Talk:
    tokens = [chance.randrange(CODES) for _ in range(length)]
    return Talk(number, tokens, pieces(chance, UtteranceId(number, 0), tokens), [])


def open_stage(flow: Flow, ramp: Ramp, talks: list[Talk], most_windows: int = 8) -> FlowStage:
    stage = FlowStage(flow, RATES, ramp, most_windows)
    for one in talks:
        stage.start(one.id, seed=one.number, voice=VOICE)
    return stage


def step(stage: FlowStage, talks: list[Talk], order: list[UtteranceId]) -> None:
    batch = stage.plan(order)
    if batch is None:
        return
    stage.run(batch)
    for block in stage.commit(batch, None):
        next(one for one in talks if one.id == block.utterance).blocks.append(block)


def stream(stage: FlowStage, talks: list[Talk], chance: random.Random) -> None:
    """Tokens trickle in at random, those that are ready are stepped in any order."""
    for _ in rounds(stage):
        for one in talks:
            if chance.random() < 0.4 and (item := next(one.arriving, None)) is not None:
                stage.add(item)
        ready = stage.ready()
        step(stage, talks, chance.sample(ready, len(ready)))


def at_once(flow: Flow, ramp: Ramp, one: Talk) -> Talk:
    """The same utterance alone, with all its tokens there from the start."""
    alone = replace(one, blocks=[])
    stage = open_stage(flow, ramp, [alone])
    stage.add(SpeechTokens(one.id, 0, tuple(one.tokens), True))
    for _ in rounds(stage):
        step(stage, [alone], stage.ready())
    return alone


def check_blocks(one: Talk) -> None:
    """One after the other, all frames, and one end."""
    lengths = [len(block.mel) for block in one.blocks]
    assert [block.start_frame for block in one.blocks] == [sum(lengths[:i]) for i in range(len(lengths))]
    assert sum(lengths) == FRAMES * len(one.tokens)
    assert [block.final for block in one.blocks] == [False] * (len(lengths) - 1) + [True]


@pytest.mark.parametrize("ramp", RAMPS)
@pytest.mark.parametrize("seed", range(4))
def test_streamed_is_all_at_once(ramp: Ramp, seed: int) -> None:
    """With the flow of whole numbers: every frame saw the tokens it must see, its own noise and its own past."""
    chance = random.Random(seed)
    talks = [talk(chance, number, chance.choice((0, 1, 3, 4, 12, 29, 60))) for number in range(6)]
    flow = FakeFlow()
    stream(stage := open_stage(flow, ramp, talks, most_windows=4), talks, chance)
    assert not stage.ready()
    for one in talks:
        check_blocks(one)
        noise = NoiseTape(one.number, FACTS.mel_bins, FACTS.block_tokens * FRAMES).read(0, FRAMES * len(one.tokens))
        assert torch.equal(one.mel, flow_mel(one.tokens, noise))
    assert 1 < flow.most_windows <= 4


@pytest.mark.parametrize("ramp", RAMPS)
def test_blocks_follow_the_ramp(ramp: Ramp) -> None:
    one = at_once(FakeFlow(), ramp, talk(random.Random(0), 0, 61))
    keep = [ramp.keep_blocks[min(i, len(ramp.keep_blocks) - 1)] for i in range(len(one.blocks) - 1)]
    lengths = [len(block.mel) for block in one.blocks]
    assert lengths[:-1] == [FRAMES * FACTS.block_tokens * blocks for blocks in keep]


def tiny_flow() -> PiccoloFlow:
    """The embedded voice's flow, small, with random weights: a real ODE with stored keys and guidance."""
    dit = DiTConfig(
        inputs=2 * FACTS.mel_bins + 32, width=32, layers=4, heads=2, inner=96, outputs=FACTS.mel_bins, block_frames=6,
        look_back_layers=(1, 3), look_ahead_layers=(2,), rope_theta=100.0,
    )  # fmt: skip
    config = replace(
        read_config(FIRST / "config.json"), rates=RATES, codes=CODES, dit=dit, mel_bins=FACTS.mel_bins, ode_steps=3
    )
    flow, generator = PiccoloFlow(config), torch.Generator().manual_seed(1)
    for parameter in flow.parameters():
        scale = 0.2 if parameter.dim() == 1 else parameter[0].numel() ** -0.5
        parameter.data = torch.randn(parameter.shape, generator=generator) * scale
    freeze(flow)
    flow.prepare()
    freeze(flow.dit, dit.block_frames)
    return flow


@pytest.mark.parametrize("ramp", RAMPS)
def test_a_real_flow_streams_bit_for_bit(ramp: Ramp) -> None:
    chance, flow = random.Random(3), tiny_flow()
    talks = [talk(chance, number, chance.choice((1, 3, 10, 25, 40))) for number in range(7)]
    stream(open_stage(flow, ramp, talks, most_windows=5), talks, chance)
    for one in talks:
        check_blocks(one)
        alone = at_once(flow, ramp, one)
        assert [block.start_frame for block in one.blocks] == [block.start_frame for block in alone.blocks]
        assert torch.equal(one.mel, alone.mel)
    assert len({float(one.mel.sum()) for one in talks}) == len(talks)


def test_an_end_with_nothing_left_is_announced() -> None:
    one = at_once(FakeFlow(), RAMPS[0], talk(random.Random(0), 0, 0))
    assert [(block.start_frame, tuple(block.mel.shape), block.final) for block in one.blocks] == [(0, (0, 4), True)]


def test_an_end_that_comes_after_everything_is_announced() -> None:
    """Without look-ahead the last window is on its way before the end is known."""
    one = talk(random.Random(0), 0, FACTS.block_tokens)
    stage = open_stage(FakeFlow(), Ramp((1,), (0,)), [one])
    stage.add(SpeechTokens(one.id, 0, tuple(one.tokens), False))
    for _ in range(FACTS.ode_steps):
        step(stage, [one], stage.ready())
    assert len(one.blocks) == 1 and not one.finished and not stage.ready()
    stage.add(SpeechTokens(one.id, FACTS.block_tokens, (), True))
    step(stage, [one], stage.ready())
    check_blocks(one)


def test_the_most_urgent_go_first() -> None:
    talks = [talk(random.Random(0), number, 9) for number in range(4)]
    stage = open_stage(FakeFlow(), RAMPS[0], talks, most_windows=2)
    for one in talks:
        stage.add(SpeechTokens(one.id, 0, tuple(one.tokens), True))
    order = [talks[i].id for i in (3, 1, 0, 2)]
    batch = stage.plan(order)
    assert batch is not None and [window.utterance for window in batch] == order[:2]
    assert stage.plan([UtteranceId(99, 0)]) is None


@pytest.mark.parametrize("after", range(9))
def test_drop_at_any_moment(after: int) -> None:
    chance = random.Random(after)
    stays, goes = talk(chance, 0, 20), talk(chance, 1, 20)
    stage = open_stage(FakeFlow(), RAMPS[0], [stays, goes])
    for one in (stays, goes):
        stage.add(next(one.arriving))
    for _ in range(after):
        if (item := next(goes.arriving, None)) is not None:
            stage.add(item)
        step(stage, [stays, goes], stage.ready())
    stage.drop(goes.id)
    stage.drop(goes.id)
    assert goes.id not in stage.ready() and len(stage) == 1
    blocks = len(goes.blocks)
    stream(stage, [stays], chance)
    check_blocks(stays)
    assert len(stage) == 0 and len(goes.blocks) == blocks


def test_a_gap_is_an_error() -> None:
    one = talk(random.Random(0), 0, 9)
    stage = open_stage(FakeFlow(), RAMPS[0], [one])
    stage.add(SpeechTokens(one.id, 0, (1, 2, 3), False))
    with pytest.raises(ValueError, match="start at 4, expected 3"):
        stage.add(SpeechTokens(one.id, 4, (5,), False))
