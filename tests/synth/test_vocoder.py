"""VocoderStage: pieces are the whole where the vocoder is exact; blended, never longer or shorter, where it is not."""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from legato.families.piccolo.vocoder import PiccoloVocoder
from legato.nn.layers import freeze
from legato.nn.vocos import Vocos, VocosConfig
from legato.protocols import Vocoder
from legato.synth.vocoder import VocoderStage, cross_fade
from legato.types import MelBlock, Samples, UtteranceId

from .fakes import HOP, RATES, FakeContinuingVocoder, FakeVocoder, rounds

ANN, BOB = UtteranceId(1, 0), UtteranceId(2, 0)
LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=8)
"""Frames of the blocks of an utterance; the last one is final."""


def mel(frames: int, seed: int = 0) -> Tensor:
    """Small whole numbers, the frame's own number, and nothing."""
    values = torch.randint(0, 4, (frames,), generator=torch.Generator().manual_seed(seed))
    return torch.stack([values, torch.arange(frames), torch.zeros(frames), torch.zeros(frames)], 1).float()


def blocks(utterance: UtteranceId, whole: Tensor, lengths: Seq[int]) -> list[MelBlock]:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    final = len(lengths) - 1
    parts = zip(starts, whole.split(list(lengths)), strict=True)
    return [MelBlock(utterance, start, part, i == final) for i, (start, part) in enumerate(parts)]


def step(stage: VocoderStage, order: Seq[UtteranceId] | None = None) -> list[Samples]:
    batch = stage.plan(stage.ready() if order is None else order)
    return [] if batch is None else stage.commit(batch, stage.run(batch))


def speak(vocoder: Vocoder, whole: Tensor, lengths: Seq[int], overlap: float = 0.5) -> list[Samples]:
    """One utterance by itself, all its blocks there from the start."""
    stage = VocoderStage(vocoder, RATES, 8, overlap)
    for block in blocks(ANN, whole, lengths):
        stage.add(block)
    return [samples for _ in rounds(stage) for samples in step(stage)]


def joined(out: Seq[Samples]) -> np.ndarray:
    """The samples, once it is clear that they follow one another and end once."""
    lengths = [len(samples.pcm) for samples in out]
    assert [samples.start_sample for samples in out] == [sum(lengths[:i]) for i in range(len(out))]
    assert [samples.final for samples in out] == [False] * (len(out) - 1) + [True]
    wave = np.concatenate([samples.pcm for samples in out])
    assert wave.dtype == np.float32
    return wave


@given(LENGTHS, st.integers(0, 5), st.integers(0, 5))
def test_exact_pieces_are_the_whole(lengths: list[int], left: int, right: int) -> None:
    whole = mel(sum(lengths))
    out = speak(FakeVocoder(left, right), whole, lengths)
    expected = FakeVocoder(left, right).wave(whole).numpy() if len(whole) else np.zeros(0, np.float32)
    assert len(out) == len(lengths)
    assert np.array_equal(joined(out), expected)


@given(LENGTHS, st.integers(0, 5), st.integers(0, 5), st.floats(0.01, 1))
def test_blended_pieces_have_the_wholes_length_and_agree_with_it(
    lengths: list[int], left: int, right: int, overlap: float
) -> None:
    """A vocoder that calls itself inexact but renders the same samples every time: the whole, bit for bit."""
    whole = mel(sum(lengths))
    wave = joined(speak(FakeVocoder(left, right, exact=False), whole, lengths, overlap))
    expected = FakeVocoder(left, right).wave(whole).numpy() if len(whole) else np.zeros(0, np.float32)
    assert np.array_equal(wave, expected)


@given(LENGTHS, st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_what_a_vocoder_keeps_reaches_its_next_window(lengths: list[int], left: int, right: int, exact: bool) -> None:
    """A vocoder that sums over all the past, of which it keeps the sum at the place where its next window begins."""
    whole = mel(sum(lengths))
    wave = joined(speak(FakeContinuingVocoder(left, right, exact=exact), whole, lengths))
    assert np.array_equal(wave, whole[:, 0].cumsum(0).repeat_interleave(HOP).numpy())


@dataclass(frozen=True)
class Rendering:
    """Frames [start, stop) of one window, all off by `error`."""

    start: int
    stop: int
    error: float


def renderings(lengths: Seq[int], left: int, right: int, blend: int, error: float) -> list[Rendering]:
    """What the windows of these blocks render: from `blend` before their kept part, loaded `left` before that."""
    done = end = 0
    made = []
    for number, length in enumerate(lengths):
        end += length
        stop = end if number == len(lengths) - 1 else max(done, end - right)
        if stop > done:
            made.append(Rendering(max(0, done - blend), stop, error * max(0, done - blend - left)))
        done = stop
    return made


@settings(max_examples=150)
@given(LENGTHS, st.integers(0, 4), st.integers(1, 5), st.floats(0.2, 1))
def test_blends_are_of_the_same_samples(lengths: list[int], left: int, right: int, overlap: float) -> None:
    """Every rendering has an error of its own, far below a sample's step: each sample lies between its renderings."""
    error, blend = 1 / 512, max(1, int(right * overlap))
    whole = mel(sum(lengths))
    wave = joined(speak(FakeVocoder(left, right, exact=False, error=error), whole, lengths, overlap))
    if not len(whole):
        return
    errors = (wave - FakeVocoder(left, right).wave(whole).numpy()).reshape(-1, HOP)
    made = renderings(lengths, left, right, blend, error)
    for frame, off in enumerate(errors):
        here = [rendering.error for rendering in made if rendering.start <= frame < rendering.stop]
        assert min(here) - 1e-4 <= off.min() and off.max() <= max(here) + 1e-4


def test_a_blend_is_half_a_hann_window() -> None:
    """Two windows that keep 12 frames each, blended over 3: old, then the fade, then new."""
    left, right, error, blend = 4, 6, 1.0, 3
    lengths = [12 + right, 12, 20]
    whole = mel(sum(lengths))
    wave = joined(speak(FakeVocoder(left, right, exact=False, error=error), whole, lengths, 0.5))
    errors = wave - FakeVocoder(left, right).wave(whole).numpy()
    first, second, third = (rendering.error for rendering in renderings(lengths, left, right, blend, error))
    assert (first, second, third) == (0.0, 12.0 - blend - left, 24.0 - blend - left)
    n = blend * HOP
    rise = np.sin(np.pi / 2 * (np.arange(n) + 0.5) / n) ** 2
    expected = np.full(len(wave), third)
    for at, old, new in ((12, first, second), (24, second, third)):
        expected[(at - 12) * HOP : at * HOP] = old
        expected[(at - blend) * HOP : at * HOP] = old + rise * (new - old)
    np.testing.assert_allclose(errors, expected, rtol=0, atol=1e-3)


def test_cross_fade_goes_from_old_to_new() -> None:
    old, new = np.zeros(64, np.float32), np.ones(64, np.float32)
    faded = cross_fade(old, new)
    assert faded.dtype == np.float32 and bool((np.diff(faded) > 0).all())
    np.testing.assert_allclose(faded + faded[::-1], 1, atol=1e-6)
    assert faded[0] < 0.01 and faded[-1] > 0.99


@given(LENGTHS, st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_windows_load_little(lengths: list[int], left: int, right: int, exact: bool) -> None:
    """The kept part, the reach on either side and the blend; never more of the past."""
    stage = VocoderStage(FakeVocoder(left, right, exact=exact), RATES, 8)
    for block in blocks(ANN, mel(sum(lengths)), lengths):
        stage.add(block)
        plan = stage.plan([ANN])
        assert plan is not None
        (window,) = plan
        assert window.load_start == max(0, window.keep_start - stage.blend_frames - left)
        assert window.load_start + len(window.mel) == block.start_frame + len(block.mel)
        assert len(window.mel) <= left + right + stage.blend_frames + len(block.mel)
        stage.commit(plan, stage.run(plan))


def tiny_vocos() -> Vocos:
    config = VocosConfig(4, 16, 32, blocks=1, subframes=2, tail_width=8, tail_inner=16, tail_blocks=1, hop_samples=HOP)
    net, generator = Vocos(config), torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        scale = 1.0 if parameter.dim() == 1 else parameter[0].numel() ** -0.5
        parameter.data = torch.randn(parameter.shape, generator=generator) * scale
    freeze(net)
    return net


@pytest.mark.parametrize("reach", [None, 3])
@pytest.mark.parametrize("seed", range(3))
def test_arrival_and_company_change_nothing(seed: int, reach: int | None) -> None:
    """A real net, exact or blended: blocks that trickle in among others', against all at once and alone."""
    chance = random.Random(seed)
    vocoder = PiccoloVocoder(tiny_vocos(), reach)
    cases = {}
    for number in range(5):
        lengths = [chance.choice((4, 8, 16)) for _ in range(chance.randrange(6))] + [chance.randrange(0, 9)]
        whole = torch.randn(sum(lengths), 4, generator=torch.Generator().manual_seed(number))
        cases[UtteranceId(number, 0)] = whole, lengths
    waiting = {utterance: blocks(utterance, *case) for utterance, case in cases.items()}
    out: dict[UtteranceId, list[Samples]] = {utterance: [] for utterance in cases}
    stage = VocoderStage(vocoder, RATES, 3)
    for _ in range(200):
        for utterance in chance.sample(list(cases), 2):
            if waiting[utterance]:
                stage.add(waiting[utterance].pop(0))
        for samples in step(stage, chance.sample(ready := stage.ready(), len(ready))):
            out[samples.utterance].append(samples)
    for utterance, (whole, lengths) in cases.items():
        alone = speak(vocoder, whole, lengths)
        assert [len(samples.pcm) for samples in out[utterance]] == [len(samples.pcm) for samples in alone]
        assert np.array_equal(joined(out[utterance]), joined(alone))
        if reach is None and len(whole):
            np.testing.assert_allclose(joined(alone), vocoder.net(whole).numpy(), rtol=0, atol=1e-5)


def test_a_window_per_block_most_urgent_first() -> None:
    stage = VocoderStage(FakeVocoder(1, 1), RATES, 1)
    for utterance in (ANN, BOB):
        for block in blocks(utterance, mel(8), [4, 4]):
            stage.add(block)
    seen = [samples.utterance for _ in range(4) for samples in step(stage, [BOB, ANN])]
    assert seen == [BOB, BOB, ANN, ANN]
    assert stage.plan([BOB]) is None and len(stage) == 0


@pytest.mark.parametrize("exact", [True, False])
def test_an_end_with_nothing_left_is_announced(exact: bool) -> None:
    """What was held back for a blend comes with it."""
    out = speak(FakeVocoder(2, 0, exact=exact), mel(6), [6, 0])
    assert len(joined(out)) == 6 * HOP
    (only,) = speak(FakeVocoder(2, 0, exact=exact), mel(0), [0])
    assert (only.start_sample, len(only.pcm), only.final) == (0, 0, True)


@pytest.mark.parametrize("after", range(4))
def test_drop_at_any_moment(after: int) -> None:
    stage = VocoderStage(FakeVocoder(2, 2, exact=False), RATES, 8)
    ann, bob = mel(12, 1), mel(12, 2)
    for utterance, whole in ((ANN, ann), (BOB, bob)):
        for block in blocks(utterance, whole, [4, 4, 4]):
            stage.add(block)
    out = [samples for _ in range(after) for samples in step(stage)]
    stage.drop(BOB)
    stage.drop(BOB)
    out += [samples for _ in rounds(stage) for samples in step(stage)]
    heard = joined([samples for samples in out if samples.utterance == ANN])
    assert np.array_equal(heard, FakeVocoder(2, 2).wave(ann).numpy())
