"""HiFT against the reference and against itself in pieces; Vocos2D by what it is measured to see."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from legato.families.glm_tts.hift import PITCH_REACH_FRAMES, REACH_FRAMES, Hift
from legato.families.glm_tts.vocoder import EARLY_REACH_FRAMES, HiftVocoder, load_hift
from legato.families.glm_tts.vocos2d import LOG_SHIFT, Vocos2D, load_vocos2d
from legato.protocols import Vocoder, VocoderPiece
from legato.synth.vocoder import VocoderStage
from legato.types import MelBlock, Rates, Reach, UtteranceId

from . import tiny
from .glm_inputs import HIFT_FRAMES, source_noise, voice_mel

HOP = 480


@pytest.fixture(scope="module")
def hift(checkpoint: Path) -> Hift:
    net = load_hift(checkpoint / "hift").eval().requires_grad_(False)
    net.prepare()
    return net


def pieces(vocoder: Vocoder, mel: Tensor, hop: int, cut: Callable[[], int]) -> np.ndarray:
    """A mel vocoded block by block."""
    stage = VocoderStage(vocoder, Rates(25, 50, 50 * hop), max_windows=4)
    id, start, waves = UtteranceId(0, 0), 0, []
    while start < len(mel):
        stop = min(len(mel), start + cut())
        stage.add(MelBlock(id, start, mel[start:stop], stop == len(mel)))
        start = stop
    while len(stage):
        batch = stage.plan(stage.ready()) or []
        for samples in stage.commit(batch, stage.run(batch)):
            assert samples.start_sample == sum(map(len, waves))
            waves.append(samples.pcm)
    return np.concatenate(waves)


# --- HiFT ---


def test_hift_equals_reference(hift: Hift, golden: dict[str, Tensor]) -> None:
    vocoder = HiftVocoder(hift)
    vocoder.noise = lambda start, frames: source_noise(HIFT_FRAMES * HOP)[: frames * HOP]
    mel = voice_mel(HIFT_FRAMES)
    assert (hift.pitch(mel) - golden["hift.f0"]).abs().max() < 1e-3  # Hz
    (wave,) = vocoder.forward([mel])
    assert wave.shape == golden["hift.wave"].shape
    assert (wave - golden["hift.wave"]).abs().max() < 1e-4


def test_hift_sizes_follow_from_the_file(hift: Hift) -> None:
    assert hift.sizes.rates == (8, 5, 3)
    assert (hift.sizes.hop, hift.sizes.sample_hz, hift.sizes.harmonics) == (HOP, 24000, 9)


@pytest.mark.parametrize("seed", range(3))
def test_hift_in_pieces_equals_the_whole(hift: Hift, seed: int) -> None:
    """With pitch, phase and noise carried across every join, for any cuts."""
    mel, chance = voice_mel(170), random.Random(seed)
    (whole,) = HiftVocoder(hift).forward([mel])
    wave = pieces(HiftVocoder(hift), mel, HOP, lambda: chance.choice((3, 20, 40, 60)))
    assert np.abs(wave - whole.numpy()).max() < 2e-5


def test_hift_without_the_phase_would_click(hift: Hift) -> None:
    """The test above can fail: a forgotten phase is heard."""

    class Forgetful(HiftVocoder):
        def render(self, pieces):  # type: ignore[no-untyped-def]
            return [(wave, None) for wave, _ in super().render(pieces)]

    mel = voice_mel(120)
    (whole,) = HiftVocoder(hift).forward([mel])
    assert np.abs(pieces(Forgetful(hift), mel, HOP, lambda: 50) - whole.numpy()).max() > 0.05


def test_hift_reach_is_enough_and_nearly_all_needed(hift: Hift) -> None:
    """What a changed frame changes, the phase that follows from it aside."""
    net, at, frames = hift, 60, 120
    mel = voice_mel(frames)
    other = mel.clone()
    other[at] += 1
    noise = source_noise(frames * HOP)

    def wave(mel: Tensor, pitch: Tensor) -> Tensor:
        """With the phase of every frame held still."""
        turns = torch.zeros(frames, net.sizes.harmonics)
        return net(mel, net.excitation(pitch, turns, noise))

    changed = (wave(mel, net.pitch(mel)) != wave(other, net.pitch(other))).view(-1, HOP).any(1).nonzero()[:, 0] - at
    assert int(changed.abs().max()) <= REACH_FRAMES
    assert int(changed.abs().max()) >= REACH_FRAMES - 1
    pitches = (net.pitch(mel) != net.pitch(other)).nonzero()[:, 0] - at
    assert int(pitches.abs().max()) == PITCH_REACH_FRAMES


def test_hift_early_joins_are_blended_and_keep_time(hift: Hift) -> None:
    early = HiftVocoder(hift, EARLY_REACH_FRAMES)
    mel = voice_mel(150)
    assert not early.exact
    assert len(pieces(early, mel, HOP, lambda: 40)) == 150 * HOP


def test_hift_does_not_lose_its_phase_in_a_long_utterance(hift: Hift) -> None:
    """Phases of the last frames of 60 s, summed piece by piece, against exact arithmetic."""
    vocoder = HiftVocoder(hift)
    pitch = torch.full((3000,), 211.3)
    per_frame = hift.turns_per_sample(pitch)[0].double() * HOP
    turns = vocoder._turns(pitch, VocoderPiece(torch.zeros(3000, 80), 0, 0, None))[-1]
    exact = (per_frame * 3000) % 1
    away = (turns - exact).abs()
    assert torch.minimum(away, 1 - away).max() < 1e-6


# --- Vocos2D ---


@pytest.fixture(scope="module")
def vocos(checkpoint: Path) -> Vocos2D:
    return load_vocos2d(checkpoint / "vocos2d", 80, torch.device("cpu"))


def test_vocos_is_measured(vocos: Vocos2D) -> None:
    assert (vocos.hop, vocos.reach, vocos.exact) == (640, Reach(4, 2), True)


def test_vocos_gets_the_shifted_mel(vocos: Vocos2D) -> None:
    mel = voice_mel(30)
    with torch.inference_mode():
        wanted = vocos.net(mel[None] + LOG_SHIFT)[0]
    assert torch.equal(vocos.forward([mel])[0], wanted)


def test_vocos_in_pieces_equals_the_whole(vocos: Vocos2D) -> None:
    mel, chance = voice_mel(150), random.Random(0)
    (whole,) = vocos.forward([mel])
    wave = pieces(vocos, mel, vocos.hop, lambda: chance.choice((1, 3, 20, 40)))
    assert np.abs(wave - whole.numpy()).max() < 1e-6


def test_one_frame_gives_one_hop(vocos: Vocos2D) -> None:
    assert len(vocos.forward([voice_mel(1)])[0]) == 640


def test_vocos_that_sees_everything_is_blended(tmp_path: Path) -> None:
    class Global(tiny.TinyVocos):
        def forward(self, mel: Tensor) -> Tensor:
            hidden = torch.tanh(self.conv(self.pad(mel.transpose(1, 2)))).transpose(1, 2)
            return torch.tanh(self.head(hidden - hidden.mean(1, keepdim=True))).flatten(1)

    torch.jit.save(torch.jit.script(Global(80, 640, 0).eval()), str(tmp_path / "generator_jit.ckpt"))
    assert not load_vocos2d(tmp_path, 80, torch.device("cpu")).exact
