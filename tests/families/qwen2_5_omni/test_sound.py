"""Codes → mel → samples: equal to the reference in one window; in several, equal to their own schedule however the
codes come and whatever is computed beside them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from legato.families.qwen2_5_omni.config import read_config
from legato.families.qwen2_5_omni.flow import Integration, QwenFlow
from legato.families.qwen2_5_omni.sound_weights import load_flow, load_vocoder
from legato.families.qwen2_5_omni.vocoder import EARLY_REACH_FRAMES, QwenVocoder
from legato.families.qwen2_5_omni.voices import read_voices
from legato.families.qwen2_5_omni.weights import Tensors
from legato.nn.layers import freeze
from legato.protocols import FlowWindow
from legato.synth.flow import FlowStage
from legato.synth.vocoder import VocoderStage
from legato.types import MelBlock, Ramp, Rates, SpeechTokens, UtteranceId, Voice

from .tiny import TINY, build

DATA = Path(__file__).parent / "data"
GOLDEN = load_file(DATA / "sound.safetensors")
SEED, BINS, BLOCK = 7, 80, 24
RATES = Rates(50, 100, 24000)
FLOAT32 = 1e-6
"""What the order of sums makes of a mel."""

QUICK = Integration("euler", 3)
"""For tests that are about windows, not about numbers."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("qwen"))


def make_flow(folder: Path, integration: Integration, batch_invariant: bool = True) -> QwenFlow:
    net = load_flow(flow_config(folder), Tensors(folder, ("token2wav.",)), integration)
    net.prepare(batch_invariant)
    return net


def flow_config(folder: Path) -> Any:
    return read_config(folder).flow


@pytest.fixture(scope="module")
def flow(folder: Path) -> QwenFlow:
    return make_flow(folder, Integration())


@pytest.fixture(scope="module")
def quick(folder: Path) -> QwenFlow:
    return make_flow(folder, QUICK)


@pytest.fixture(scope="module")
def voices(folder: Path) -> dict[str, Voice]:
    return read_voices(folder, flow_config(folder), 320, 5)


@pytest.fixture(scope="module")
def vocoder(folder: Path) -> QwenVocoder:
    config = read_config(folder).vocoder
    assert config is not None
    net = load_vocoder(config, Tensors(folder, ("token2wav.",)))
    freeze(net)
    return QwenVocoder(net)


def codes(count: int, seed: int | None = None) -> Tensor:
    return torch.randint(0, 96, (count,), generator=torch.Generator().manual_seed(count if seed is None else seed))


def noise(frames: int) -> Tensor:
    return torch.randn(frames, BINS, generator=torch.Generator().manual_seed(SEED))


def in_one_window(flow: QwenFlow, ids: Tensor, voice: Voice) -> Tensor:
    frames = 2 * len(ids)
    window = FlowWindow(UtteranceId(0, 0), 0, frames, ids, 0, noise(frames), voice, None, final=True)
    flow.open(window)
    while window.step < flow.facts.ode_steps:
        flow.advance([window])
    mel, history = flow.close(window)
    assert history is None
    return mel


# --- equal to the reference ---


@pytest.mark.parametrize("speaker", ["Chelsie", "Ethan"])
@pytest.mark.parametrize("count", [1, 13, 30])
def test_one_window_is_the_offline_sample(flow: QwenFlow, voices: dict[str, Voice], speaker: str, count: int) -> None:
    assert flow.facts.ode_steps == 36
    mel = in_one_window(flow, codes(count), voices[speaker])
    torch.testing.assert_close(mel, GOLDEN[f"{speaker}.{count}.mel"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("speaker", ["Chelsie", "Ethan"])
def test_other_intervals_guidance_and_sway(folder: Path, voices: dict[str, Voice], speaker: str) -> None:
    flow = make_flow(folder, Integration("rk4", intervals=4, guidance=0.7, sway=-0.5), batch_invariant=False)
    mel = in_one_window(flow, codes(13), voices[speaker])
    torch.testing.assert_close(mel, GOLDEN[f"{speaker}.13.other_mel"], rtol=0, atol=1e-4)
    assert (mel - GOLDEN[f"{speaker}.13.mel"]).abs().max() > 1e-2


def test_vocoder_is_the_references(vocoder: QwenVocoder) -> None:
    for count in (1, 30):
        (wave,) = vocoder.forward([GOLDEN[f"Chelsie.{count}.mel"]])
        assert len(wave) == 480 * count
        torch.testing.assert_close(wave, GOLDEN[f"Chelsie.{count}.wave"], rtol=0, atol=1e-4)


# --- windows ---


def run_stage(flow: QwenFlow, ramp: Ramp, parts: list[tuple[Tensor, Voice, list[int]]]) -> list[Tensor]:
    """Mels of utterances whose codes come in pieces of the given sizes, all in one stage and by turns."""
    stage = FlowStage(flow, RATES, ramp, max_windows=8)
    ids = [UtteranceId(n, 0) for n in range(len(parts))]
    mels: dict[UtteranceId, list[Tensor]] = {id: [] for id in ids}
    ends: set[UtteranceId] = set()
    for id, (_, voice, _) in zip(ids, parts, strict=True):
        stage.start(id, SEED, voice)
    arrived = dict.fromkeys(ids, 0)
    for turn in range(max(len(sizes) for _, _, sizes in parts)):
        for id, (tokens, _, sizes) in zip(ids, parts, strict=True):
            if turn < len(sizes):
                start, stop = arrived[id], arrived[id] + sizes[turn]
                last = turn + 1 == len(sizes)
                stage.add(SpeechTokens(id, start, tuple(tokens[start:stop].tolist()), final=last))
                arrived[id] = stop
        while ready := stage.ready():
            batch = stage.plan(ready)
            assert batch is not None
            stage.run(batch)
            for block in stage.commit(batch, None):
                collect(mels, ends, block)
            if turn % 2:
                break
    while ready := stage.ready():
        batch = stage.plan(ready)
        assert batch is not None
        stage.run(batch)
        for block in stage.commit(batch, None):
            collect(mels, ends, block)
    assert ends == set(ids) and not len(stage)
    return [torch.cat(mels[id]) for id in ids]


def collect(mels: dict[UtteranceId, list[Tensor]], ends: set[UtteranceId], block: MelBlock) -> None:
    assert block.start_frame == sum(len(mel) for mel in mels[block.utterance])
    mels[block.utterance].append(block.mel)
    if block.final:
        ends.add(block.utterance)


DEFAULT = Ramp((2,), (1,))


@pytest.mark.parametrize("ramp", [DEFAULT, Ramp((1,), (2,)), Ramp((1, 3), (0, 1))])
@pytest.mark.parametrize("count", [5, 24, 36, 61])
def test_arrival_changes_no_bit(quick: QwenFlow, voices: dict[str, Voice], ramp: Ramp, count: int) -> None:
    tokens, voice = codes(count), voices["Ethan"]
    (whole,) = run_stage(quick, ramp, [(tokens, voice, [count])])
    assert len(whole) == 2 * count
    for sizes in ([1] * count, [count - 1, 1], [7] * (count // 7) + [count % 7]):
        (pieces,) = run_stage(quick, ramp, [(tokens, voice, sizes)])
        assert torch.equal(pieces, whole)


def test_company_changes_no_bit(quick: QwenFlow, voices: dict[str, Voice]) -> None:
    """Eight utterances of other lengths, voices and places in their trajectories: as alone."""
    chance = random.Random(2)
    parts = []
    for number in range(8):
        count = chance.choice([3, 12, 25, 40, 61])
        sizes: list[int] = []
        while sum(sizes) < count:
            sizes.append(min(chance.randint(1, 20), count - sum(sizes)))
        parts.append((codes(count, seed=number), voices[chance.choice(list(voices))], sizes))
    for part, mel in zip(parts, run_stage(quick, DEFAULT, parts), strict=True):
        (alone,) = run_stage(quick, DEFAULT, [part])
        assert torch.equal(alone, mel)


def test_a_schedule_of_one_window_is_the_offline_sample(flow: QwenFlow, voices: dict[str, Voice]) -> None:
    (mel,) = run_stage(flow, Ramp((100,), (0,)), [(codes(30), voices["Chelsie"], [4, 26])])
    torch.testing.assert_close(mel, GOLDEN["Chelsie.30.mel"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("ramp", [DEFAULT, Ramp((1, 3, 2), (1,)), Ramp((2,), (2, 1))])
@pytest.mark.parametrize("count", [61, 72])
def test_one_evaluation_in_windows_is_the_offline_one(
    folder: Path, voices: dict[str, Voice], ramp: Ramp, count: int
) -> None:
    """What is kept of the past and one block ahead are all that a single evaluation needs."""
    flow = make_flow(folder, Integration("euler", 1))
    parts = [(codes(count), voices["Ethan"], [count])]
    (whole,), (pieces,) = run_stage(flow, Ramp((100,), (0,)), parts), run_stage(flow, ramp, parts)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-5)


def test_the_past_is_seen(quick: QwenFlow, voices: dict[str, Voice]) -> None:
    """The second window hears the first through its stored keys and values: without them it would be another."""
    tokens, voice = codes(36), voices["Chelsie"]
    (mel,) = run_stage(quick, Ramp((1,), (0,)), [(tokens, voice, [36])])
    window = FlowWindow(UtteranceId(0, 0), 24, 24, tokens[12:24], 0, noise(72)[24:48], voice, None, final=True)
    quick.open(window)
    while window.step < quick.facts.ode_steps:
        quick.advance([window])
    without, _ = quick.close(window)
    assert (without - mel[24:48]).abs().max() > 1e-2


@pytest.mark.slow
def test_every_block_of_look_ahead_brings_streaming_nearer_to_offline(tmp_path: Path) -> None:
    """On a random net with the real pattern of blocks. benchmarks/qwen_look_ahead.py prints the figures."""
    sizes = replace(TINY, flow_layers=22, look_ahead=(10,), look_back=(0, 20))
    folder = build(tmp_path, sizes)
    flow = make_flow(folder, Integration(), batch_invariant=False)
    voice = read_voices(folder, flow_config(folder), 320, 5)["Chelsie"]
    parts = [(codes(72, seed=3), voice, [72])]
    (whole,) = run_stage(flow, Ramp((6,), (0,)), parts)
    errors = [
        float((run_stage(flow, Ramp((1,), (ahead,)), parts)[0] - whole).square().mean().sqrt() / whole.std())
        for ahead in (0, 1, 2, 3)
    ]
    assert 1e-6 < errors[1] < 1e-2
    for nearer, farther in zip(errors[1:], errors[:-1], strict=True):
        assert nearer < max(farther / 4, FLOAT32)


def test_vocoder_pieces_are_the_whole(quick: QwenFlow, vocoder: QwenVocoder, voices: dict[str, Voice]) -> None:
    (mel,) = run_stage(quick, DEFAULT, [(codes(61), voices["Chelsie"], [61])])
    (whole,) = vocoder.forward([mel])
    assert len(whole) == 480 * 61
    pieces = vocoded(vocoder, mel, [48, 24, 30, 20])
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-5)


def test_vocoding_in_company_changes_no_bit(vocoder: QwenVocoder) -> None:
    mels = [GOLDEN[f"{voice}.{count}.mel"] for voice in ("Chelsie", "Ethan") for count in (1, 13, 30)]
    for mel, wave in zip(mels, vocoder.forward(mels), strict=True):
        assert torch.equal(vocoder.forward([mel])[0], wave)


def test_the_early_option_says_that_it_is_inexact(vocoder: QwenVocoder) -> None:
    early = QwenVocoder(vocoder.net, EARLY_REACH_FRAMES)
    assert (vocoder.reach.right, vocoder.exact) == (34, True)
    assert (early.reach.left, early.reach.right, early.exact) == (34, 20, False)


def vocoded(vocoder: QwenVocoder, mel: Tensor, sizes: list[int]) -> Tensor:
    stage = VocoderStage(vocoder, RATES, 8, 0.0)
    id = UtteranceId(0, 0)
    out, at = [], 0
    for number, size in enumerate(sizes):
        stage.add(MelBlock(id, at, mel[at : at + size], final=number + 1 == len(sizes)))
        at += size
        while (batch := stage.plan(stage.ready())) is not None:
            out += [torch.from_numpy(s.pcm) for s in stage.commit(batch, stage.run(batch))]
    assert at == len(mel)
    return torch.cat(out)
