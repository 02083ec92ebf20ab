"""The release's streaming function, bugs included, for comparison only: nothing in the engine uses it.

Every chunk computes the prompt and *all* tokens so far again with new noise and a block mask, and holds the frames that
the chunk before had settled. Two shape mistakes come with it: the prompt's block counts one token, and the held part
ends about one prompt short of the join, so the two sides of a join are different draws.
(Facts: zai-org/GLM-TTS, utils/tts_model_util.py, Token2Wav.token2wav_stream.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from .blocks import BLOCK_TOKENS
from .flow import GlmFlow, Held
from .voices import GlmVoice

LOOK_AHEAD_TOKENS = (12, 25, 100)
COUNTED_PROMPT = 1
"""What the release takes for the prompt's length, in tokens and in frames."""


@torch.inference_mode()
def released_mels(
    flow: GlmFlow, tokens: Seq[int], voice: GlmVoice, noise: Callable[[int, int], Tensor]
) -> Iterator[Tensor]:
    """The mel [F, bins] of everything so far, chunk after chunk. `noise(chunk, frames)` is [frames, bins]."""
    held: Held | None = None
    for chunk, stop in enumerate(chunk_ends(len(tokens))):
        codes = torch.tensor([*voice.speech_ids, *tokens[:stop]])
        path = flow.whole(codes, voice, noise(chunk, flow.length(len(codes))), [COUNTED_PROMPT, *BLOCK_TOKENS])
        path.held = held
        for _ in range(flow.facts.ode_steps):
            flow.step([path])
        mel = path.x[len(voice.mel) :]
        ahead = LOOK_AHEAD_TOKENS[min(chunk, len(LOOK_AHEAD_TOKENS) - 1)]
        settled = COUNTED_PROMPT + int(len(mel) - ahead / flow.settings.token_hz * flow.settings.frame_hz) + 1
        held = Held(torch.arange(settled, device=path.x.device), torch.stack(path.trace)[:, :settled])
        yield mel


def chunk_ends(tokens: int) -> list[int]:
    """Where the release's chunks of growing length end."""
    ends, chunk = [0], 0
    while ends[-1] < tokens:
        ends.append(min(tokens, ends[-1] + BLOCK_TOKENS[min(chunk, len(BLOCK_TOKENS) - 1)]))
        chunk += 1
    return ends[1:]
