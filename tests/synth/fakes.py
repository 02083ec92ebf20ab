"""A flow and vocoders of whole numbers: what comes out says which input was seen and where it belongs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from legato.protocols import FlowFacts, FlowWindow, VocoderPiece
from legato.types import Rates, Reach, SpeechTokens, UtteranceId, Voice

RATES = Rates(token_hz=25, frame_hz=50, sample_hz=400)
FRAMES, HOP = RATES.frames_per_token, RATES.samples_per_frame
VOICE = Voice("anyone")
FACTS = FlowFacts(block_tokens=3, look_back_blocks=1, look_ahead_blocks=1, left_tokens=2, ode_steps=3, mel_bins=4)
REACH_TOKENS = 3
"""How far ahead the fake flow looks; to the left it looks as far as it may."""


def flow_mel(tokens: Seq[int], noise: Tensor) -> Tensor:
    """Mel [2 n, 4] of all tokens at once: a sum over near tokens, the frame's number, and its noise."""
    padded = [0] * FACTS.left_tokens + list(tokens) + [0] * REACH_TOKENS
    width = FACTS.left_tokens + 1 + REACH_TOKENS
    sums = [sum((i + 1) * v for i, v in enumerate(padded[t : t + width])) for t in range(len(tokens))]
    frames = torch.arange(FRAMES * len(tokens))
    return torch.stack([torch.tensor(sums).repeat_interleave(FRAMES), frames, noise[:, 0], noise[:, 3]], 1).float()


class FakeFlow:
    """Takes its steps one by one, and insists that every window follows its utterance's last."""

    facts = FACTS

    def __init__(self) -> None:
        self.most_windows = 0

    def open(self, window: FlowWindow) -> None:
        assert window.state is None and window.step == 0
        assert window.history == (window.start_frame or None)
        window.state = "open"

    def advance(self, windows: Seq[FlowWindow]) -> None:
        self.most_windows = max(self.most_windows, len(windows))
        assert len({window.utterance for window in windows}) == len(windows)
        for window in windows:
            assert window.state == "open" and window.step < FACTS.ode_steps
            window.step += 1

    def close(self, window: FlowWindow) -> tuple[Tensor, int]:
        assert window.step == FACTS.ode_steps
        left, frames = window.left_tokens, window.keep_frames
        loaded = len(window.tokens) - left
        assert len(window.noise) == FRAMES * loaded
        noise = torch.cat([torch.zeros(FRAMES * left, FACTS.mel_bins), window.noise])
        mel = flow_mel(window.tokens.tolist(), noise)[FRAMES * left :][:frames]
        mel[:, 1] += window.start_frame - FRAMES * left
        return mel, window.start_frame + frames


class FakeVocoder:
    """Sample s of frame f is a sum over the frames it can see, where frames outside the window count as nothing.

    With `error` every rendering is off by so much times the first frame it was given (column 1 is a frame's number).
    """

    def __init__(self, left: int, right: int, *, exact: bool = True, error: float = 0.0) -> None:
        self.reach, self.exact, self.error = Reach(left, right), exact, error

    def forward(self, mels: Seq[Tensor]) -> list[Tensor]:
        return [self.wave(mel) for mel in mels]

    def wave(self, mel: Tensor) -> Tensor:
        assert len(mel), "an empty mel is not worth a call"
        left, right = self.reach.left or 0, self.reach.right
        values = torch.cat([torch.zeros(left), mel[:, 0], torch.zeros(right)])
        sums = sum((1 + i) * values[i : i + len(mel)] for i in range(left + 1 + right))
        samples = sums[:, None] * HOP + torch.arange(HOP)  # type: ignore[index]
        return (samples + self.error * mel[0, 1]).flatten()


class FakeContinuingVocoder(FakeVocoder):
    """Every sample of a frame is the sum of all frames up to it; it needs to be told where it left off."""

    def render(self, pieces: Seq[VocoderPiece]) -> list[tuple[Tensor, tuple[int, float]]]:
        return [self.go_on(piece) for piece in pieces]

    def go_on(self, piece: VocoderPiece) -> tuple[Tensor, tuple[int, float]]:
        start, before = piece.history or (0, 0.0)
        assert piece.start_frame == start and start <= piece.next_start_frame <= start + len(piece.mel)
        sums = before + piece.mel[:, 0].cumsum(0)
        kept = float(torch.cat([torch.tensor([before]), sums])[piece.next_start_frame - start])
        return sums.repeat_interleave(HOP), (piece.next_start_frame, kept)


def rounds(stage: Sized, most: int = 5000) -> Iterator[None]:
    """As long as something is in the stage."""
    for _ in range(most):
        if not len(stage):
            return
        yield
    raise AssertionError("it does not end")


def pieces(chance: random.Random, utterance: UtteranceId, tokens: Seq[int]) -> Iterator[SpeechTokens]:
    """Tokens in random portions, some empty; the end comes with the last of them or by itself."""
    at = 0
    while at < len(tokens):
        ids = tuple(tokens[at : at + chance.choice((1, 1, 2, 5, 40))])
        final = at + len(ids) == len(tokens) and chance.random() < 0.5
        yield SpeechTokens(utterance, at, ids, final)
        at += len(ids)
        if final:
            return
    yield SpeechTokens(utterance, at, (), True)
