"""The flow: offline and released streaming against the reference, our streaming against itself."""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from pathlib import Path

import pytest
import torch
from torch import Tensor

from legato.families.glm_tts.blocks import block_frames, sees_until
from legato.families.glm_tts.config import read_flow_settings
from legato.families.glm_tts.flow import GlmFlow, Mode
from legato.families.glm_tts.released import released_mels
from legato.families.glm_tts.voices import GlmVoice
from legato.families.glm_tts.weights import load_dit
from legato.nn.layers import freeze
from legato.protocols import FlowWindow
from legato.synth.flow import FlowStage
from legato.types import Ramp, Rates, SpeechTokens, UtteranceId, Voice

from .glm_inputs import FLOW_CASES, STREAM_CASE, codes, noise, speaker, voice_mel

RATES = Rates(25, 50, 24000)
RAMP = Ramp(keep_blocks=(4, 5, 10), ahead_blocks=(2,))


def flow(checkpoint: Path, mode: Mode = "streaming", *, together: bool = False, history_tokens: int = 50) -> GlmFlow:
    settings = read_flow_settings(checkpoint / "flow" / "config.yaml")
    net = GlmFlow(load_dit(checkpoint / "flow"), settings, mode, together=together, history_tokens=history_tokens)
    freeze(net)
    return net


def voice(tokens: int, frames: int) -> Voice:
    return Voice("v", facts=GlmVoice("", (), tuple(codes("p", tokens)), voice_mel(frames), speaker(), 24000))


# --- against the reference ---


@pytest.mark.parametrize("case", range(len(FLOW_CASES)))
def test_offline_equals_reference(checkpoint: Path, golden: dict[str, Tensor], case: int) -> None:
    prompt, count, frames = FLOW_CASES[case]
    net = flow(checkpoint, "offline")
    whole = noise(f"flow.{case}", net.length(prompt + count))
    net.prompt_noise = lambda frames, bins: whole[:frames]
    window = FlowWindow(
        utterance=UtteranceId(0, 0),
        start_frame=0,
        keep_frames=2 * count,
        tokens=torch.tensor(codes("t", count)),
        left_tokens=0,
        noise=whole[len(whole) - 2 * count :],
        voice=voice(prompt, frames),
        history=None,
        final=True,
    )
    net.open(window)
    for _ in range(net.facts.ode_steps):
        net.advance([window])
    mel, _ = net.close(window)
    wanted = golden[f"flow.{case}"]
    assert mel.shape == wanted.shape
    assert (mel - wanted).abs().max() < 1e-4


def test_released_streaming_equals_reference(checkpoint: Path, golden: dict[str, Tensor]) -> None:
    prompt, count, frames = STREAM_CASE
    facts: GlmVoice = voice(prompt, frames).facts
    mels = list(released_mels(flow(checkpoint), codes("t", count), facts, lambda chunk, n: noise(f"stream.{chunk}", n)))
    assert len(mels) == sum(name.startswith("stream.") for name in golden)
    for chunk, mel in enumerate(mels):
        wanted = golden[f"stream.{chunk}"]
        assert mel.shape == wanted.shape
        assert (mel - wanted).abs().max() < 1e-4


@pytest.mark.parametrize(("tokens", "frames"), [(1, 6), (25, 172), (50, 344), (137, 944), (200, 1378)])
def test_blocks_have_the_release_s_odd_lengths(tokens: int, frames: int) -> None:
    assert block_frames(tokens) == frames


def test_every_frame_sees_its_block_and_half_a_block_ahead() -> None:
    until = sees_until(600, [1, 25, 50]).tolist()
    assert until[0] == 6 + 0 and until[5] == 5 + 3 + 1
    assert until[6] == 6 + 172 and until[6 + 171] == 6 + 172 + 86
    assert all(later >= earlier for earlier, later in zip(until[6:], until[7:], strict=False))


# --- streaming ---


def stream(net: GlmFlow, jobs: Seq[tuple[int, Voice]], max_windows: int = 8, seed: int | None = None) -> list[Tensor]:
    """Mels of utterances (token counts and voices) that arrive whole or, with a seed, in random pieces and order."""
    stage = FlowStage(net, RATES, RAMP, max_windows)
    waiting = {UtteranceId(i, 0): codes(f"t{i}", count) for i, (count, _) in enumerate(jobs)}
    sent = dict.fromkeys(waiting, 0)
    blocks: dict[UtteranceId, list[Tensor]] = {id: [] for id in waiting}
    for id, (_, speaks) in zip(waiting, jobs, strict=True):
        stage.start(id, 100 + id.request, speaks)
    chance = random.Random(seed)
    while len(stage):
        for id, ids in waiting.items():
            start = sent[id]
            if start < len(ids) and (seed is None or chance.random() < 0.3):
                stop = len(ids) if seed is None else min(len(ids), start + chance.randint(1, 40))
                stage.add(SpeechTokens(id, start, tuple(ids[start:stop]), stop == len(ids)))
                sent[id] = stop
        batch = stage.plan(stage.ready())
        if batch is not None:
            stage.run(batch)
            for block in stage.commit(batch, None):
                assert block.start_frame == sum(map(len, blocks[block.utterance]))
                blocks[block.utterance].append(block.mel)
    return [torch.cat(mels) for mels in blocks.values()]


JOBS = ((130, voice(40, 79)), (33, voice(10, 19)), (7, voice(25, 50)), (95, voice(12, 24)))


def test_streaming_does_not_depend_on_arrival(checkpoint: Path) -> None:
    net = flow(checkpoint)
    whole = stream(net, JOBS[:2])
    pieces = stream(net, JOBS[:2], seed=4)
    assert [len(mel) for mel in whole] == [260, 66]
    assert all(torch.equal(a, b) for a, b in zip(whole, pieces, strict=True))


def test_computed_one_by_one_is_bit_equal_to_alone(checkpoint: Path) -> None:
    net = flow(checkpoint)
    together = stream(net, JOBS)
    alone = stream(net, JOBS, max_windows=1)
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_computed_together_equals_alone(checkpoint: Path) -> None:
    """Windows of all lengths, with and without a gap in them, filled up to the longest."""
    alone = stream(flow(checkpoint), JOBS)
    together = stream(flow(checkpoint, together=True), JOBS)
    assert max((a - b).abs().max() for a, b in zip(alone, together, strict=True)) < 1e-4


def test_one_window_is_offline_where_no_frame_is_lost(checkpoint: Path) -> None:
    """The first window of a short utterance sees everything, so both modes say the same."""
    job = ((20, voice(12, 24)),)
    streamed = stream(flow(checkpoint), job)
    assert (streamed[0] - stream(flow(checkpoint, "offline"), job)[0]).abs().max() < 1e-5


def test_held_frames_make_windows_fit(checkpoint: Path) -> None:
    """Where all of the past is in the window, a window computes handed-on frames to where they already are.

    Its own last step from the held path must land near the mel that was handed on: the seam is one realisation.
    """
    net = flow(checkpoint, history_tokens=200)
    stage = FlowStage(net, RATES, RAMP, 1)
    id = UtteranceId(0, 0)
    stage.start(id, 7, voice(20, 40))
    stage.add(SpeechTokens(id, 0, tuple(codes("t", 120)), True))
    handed = torch.zeros(0, 80)
    seams = []
    while len(stage):
        (window,) = stage.plan(stage.ready()) or []
        stage.run([window])
        for block in stage.commit([window], None):
            if len(handed):
                past = window.state.x[40 : 40 + len(handed)]
                seams.append(float((past - handed).abs().mean() / handed.abs().mean()))
            handed = torch.cat([handed, block.mel])
    assert len(seams) == 3
    assert max(seams) < 0.03  # the release: more than 1


def test_cost_of_a_window_stays(checkpoint: Path) -> None:
    """Positions computed per window: the twentieth has hardly more than the third, and then no more at all."""
    net = flow(checkpoint)
    stage = FlowStage(net, RATES, RAMP, 1)
    id = UtteranceId(0, 0)
    stage.start(id, 7, voice(137, 273))
    stage.add(SpeechTokens(id, 0, tuple(codes("t", 1100)), True))
    lengths = []
    net.step = lambda paths: lengths.append(len(paths[0].x))  # type: ignore[method-assign]
    net.close = lambda window: (torch.zeros(window.keep_frames, 80), window.history)  # type: ignore[method-assign]
    while len(lengths) < 20 * net.facts.ode_steps:
        batch = stage.plan(stage.ready()) or []
        stage.run(batch)
        stage.commit(batch, None)
    third, twentieth = lengths[2 * net.facts.ode_steps], lengths[-1]
    assert twentieth <= 1.2 * third
    assert len(set(lengths[4 * net.facts.ode_steps :])) == 1
