"""Piccolo, the embedded voice: small nets of the same three stages as the large models; weights in the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from legato.errors import CheckpointError
from legato.nn.layers import freeze
from legato.nn.vocos import Vocos
from legato.nn.weights import read_tensors
from legato.protocols import LoadOptions, SpeechModel
from legato.types import Ramp, Voice

from .config import PiccoloConfig, read_config
from .flow import PiccoloFlow
from .frontend import PiccoloFrontend
from .lm import PiccoloLM
from .vocoder import PiccoloVocoder
from .weights import load_flow, load_lm, load_vocoder

WEIGHTS = Path(__file__).parent / "weights"

LM_ROW_TILE = 4
EARLY_REACH_FRAMES = 8
"""Vocoder reach with `exact_joins = false`: 220 ms more sound in the first chunk, about 3 % of error at the joins."""

RAMP = Ramp(keep_blocks=(2, 1, 2, 4), ahead_blocks=(0, 1))
"""The first window keeps two blocks, which gives 180 ms of sound beyond the vocoder's reach, and waits for no more."""


def load(checkpoint: Path, options: LoadOptions) -> SpeechModel:
    """Build the model from a folder with config.json and the safetensors files of its three nets.

    Raises CheckpointError naming the file that is missing, damaged or does not fit.
    """
    config = read_config(checkpoint / "config.json")
    if options.ode_steps is not None:
        config = replace(config, ode_steps=options.ode_steps)
    table = read_tensors(checkpoint / "phone_table.safetensors").get("ptab")
    if table is None:
        raise CheckpointError(f"{checkpoint / 'phone_table.safetensors'} lacks ptab")
    lm, flow, vocoder = _nets(checkpoint, config, options)
    reach = None if options.exact_joins else EARLY_REACH_FRAMES
    return SpeechModel(
        name="piccolo",
        family="piccolo",
        rates=config.rates,
        voices={"heart": Voice("heart", "a warm American English voice", ("en",))},
        default_voice="heart",
        frontend=PiccoloFrontend(config, table.to(options.device)),
        lm=lm,
        flow=flow,
        vocoder=PiccoloVocoder(vocoder, reach),
        ramp=RAMP,
        languages=("en",),
        nets={"dit_backbone": "transformer", "vocoder": "vocos"},
        batch_invariant=options.batch_invariant,
        device=options.device,
    )


def _nets(checkpoint: Path, config: PiccoloConfig, options: LoadOptions) -> tuple[PiccoloLM, PiccoloFlow, Vocos]:
    lm = PiccoloLM(config)
    flow = PiccoloFlow(config, past="recompute" if options.recompute_past else "kv")
    vocoder = Vocos(config.vocoder)
    load_lm(lm, checkpoint / "lm.safetensors")
    load_flow(flow, checkpoint / "flow.safetensors")
    load_vocoder(vocoder, checkpoint / "vocoder.safetensors")
    device = torch.device(options.device)
    lm.decoder.fold_norms(lm.head)
    lm.row_tile = LM_ROW_TILE if options.batch_invariant else 0
    freeze(lm.to(device), lm.row_tile)
    freeze(vocoder.to(device))
    freeze(flow.to(device))
    flow.prepare()
    freeze(flow.dit, config.dit.block_frames if options.batch_invariant else 0)
    return lm, flow, vocoder
