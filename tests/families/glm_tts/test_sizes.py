"""At the released sizes every net has as many numbers as the released files hold (read off their published sizes)."""

from __future__ import annotations

import torch

from legato.families.glm_tts.config import LMFacts
from legato.families.glm_tts.dit import DiT, DiTSizes
from legato.families.glm_tts.hift import Hift, HiftSizes
from legato.families.glm_tts.lm import GlmLM
from legato.nn.decoder import DecoderConfig


def millions(net: torch.nn.Module) -> float:
    """Parameters and stored buffers, shared ones once."""
    return sum({id(tensor): tensor.numel() for tensor in net.state_dict(keep_vars=True).values()}.values()) / 1e6


def test_language_model() -> None:
    sizes = DecoderConfig(2048, 28, 16, 4, 128, 6144, 10000.0, 1e-5, qkv_bias=False)
    with torch.device("meta"):
        assert round(millions(GlmLM(LMFacts(sizes, 98304, tied=True))), 3) == 1552.009


def test_flow() -> None:
    sizes = DiTSizes(
        width=768,
        layers=18,
        heads=12,
        inner=1536,
        mel_bins=80,
        speaker=192,
        rows=100001,
        token_width=512,
        token_inner=1024,
        token_blocks=4,
        token_kernel=7,
        conv_kernel=31,
        conv_groups=16,
        time_width=256,
    )
    with torch.device("meta"):
        assert round(millions(DiT(sizes)), 3) == 225.300


def test_hift() -> None:
    """The released file also has a length for every row of its weight-normed kernels: all but the source's inputs."""
    sizes = HiftSizes(80, 512, (16, 11, 7), (30, 6, 1), (7, 7, 11), (3, 7, 11), 512, 5, 9, 16)
    with torch.device("meta"):
        net = Hift(sizes)
    kernels = {name: kernel for name, kernel in net.named_parameters() if kernel.dim() == 3}
    lengths = sum(len(kernel) for name, kernel in kernels.items() if not name.startswith("source_downs"))
    assert round(millions(net) + lengths / 1e6, 3) == 20.821
