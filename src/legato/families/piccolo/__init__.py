"""Piccolo, the embedded voice: small nets of the same three stages as the large models; weights in the package.

Checkpoints come in two formats. The first voice speaks English with one voice; what the recipe trains (format 2) speaks
English and Mandarin, with stored voices and cloned ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from legato.errors import CheckpointError, ConfigError, RequestError
from legato.nn.early_vocos import EarlyVocos, EarlyVocosConfig
from legato.nn.layers import freeze
from legato.nn.mel import MelSpec
from legato.nn.vocos import Vocos
from legato.nn.weights import load_strict, read_tensors
from legato.protocols import LoadOptions, SpeechModel
from legato.types import Ramp, Voice

from .cloner import PiccoloCloner
from .codec import SpeechTokenizer
from .config import PiccoloConfig, read_config
from .flow import PiccoloFlow
from .frontend import PiccoloFrontend
from .lm import PiccoloLM
from .vocoder import PiccoloVocoder
from .voices import PiccoloVoice, read_voices
from .weights import load_flow, load_lm, load_vocoder

WEIGHTS = Path(__file__).parent / "weights"

LM_ROW_TILE = 4
EARLY_REACH_FRAMES = 8
"""Vocoder reach with `exact_joins = false`: 220 ms more sound in the first chunk, about 3 % of error at the joins."""

RAMP = Ramp(keep_blocks=(2, 1, 2, 4), ahead_blocks=(0, 1))
"""The first window keeps two blocks, which gives 180 ms of sound beyond the vocoder's reach, and waits for no more."""

EARLY_RAMP = Ramp(keep_blocks=(1, 1, 2, 4), ahead_blocks=(0, 1))
"""With a vocoder that looks ahead little, one block gives 200 ms of sound."""

FIRST_VOICE = Voice("heart", "a warm American English voice", ("en",))


def mel_spec(config: PiccoloConfig) -> MelSpec:
    """The log-mel of all nets: windows of four hops, up to half the sample rate."""
    hop = config.rates.samples_per_frame
    return MelSpec(config.rates.sample_hz, 4 * hop, hop, config.mel_bins)


def load(checkpoint: Path, options: LoadOptions) -> SpeechModel:
    """Build the model from a folder with config.json, the safetensors files of its nets and, in format 2, `voices/`.

    Raises CheckpointError naming the file that is missing, damaged or does not fit.
    """
    if options.lm_dtype not in (None, "float32") or not options.speech:
        raise ConfigError("piccolo runs in float32 and does nothing but speak: leave lm_dtype and speech out")
    config = read_config(checkpoint / "config.json")
    if options.voices_dir and not config.languages:
        raise ConfigError("voices_dir: the first voice of piccolo speaks with no other voice; leave voices_dir out")
    if options.ode_steps is not None:
        config = replace(config, ode_steps=options.ode_steps)
    table = read_tensors(checkpoint / "phone_table.safetensors").get("ptab")
    if table is None:
        raise CheckpointError(f"{checkpoint / 'phone_table.safetensors'} lacks ptab")
    lm, flow, vocoder = _nets(checkpoint, config, options)
    voices = _voices(checkpoint, config, options) if config.languages else {FIRST_VOICE.name: FIRST_VOICE}
    early = isinstance(vocoder, EarlyVocos)
    return SpeechModel(
        name="piccolo",
        family="piccolo",
        rates=config.rates,
        voices=voices,
        default_voice=next(iter(voices)),
        frontend=PiccoloFrontend(config, table.to(options.device)),
        lm=lm,
        flow=flow,
        vocoder=PiccoloVocoder(vocoder, None if options.exact_joins else EARLY_REACH_FRAMES),
        ramp=EARLY_RAMP if early else RAMP,
        languages=tuple(config.languages) or ("en",),
        cloner=_cloner(checkpoint, config, flow),
        check_voice=partial(check_voice, config) if config.languages else None,
        nets={"dit_backbone": "transformer", "vocoder": "early_vocos" if early else "vocos"},
        batch_invariant=options.batch_invariant,
        device=options.device,
    )


def _nets(
    checkpoint: Path, config: PiccoloConfig, options: LoadOptions
) -> tuple[PiccoloLM, PiccoloFlow, Vocos | EarlyVocos]:
    if config.speaker_width and options.recompute_past:
        raise ConfigError("recompute_past: a voice with a reference keeps its past as keys and values")
    lm = PiccoloLM(config)
    flow = PiccoloFlow(config, past="recompute" if options.recompute_past else "kv")
    vocoder = EarlyVocos(config.vocoder) if isinstance(config.vocoder, EarlyVocosConfig) else Vocos(config.vocoder)
    own_names = config.codec is not None
    load_lm(lm, checkpoint / "lm.safetensors", own_names)
    load_flow(flow, checkpoint / "flow.safetensors", own_names)
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


def _cloner(checkpoint: Path, config: PiccoloConfig, flow: PiccoloFlow) -> PiccoloCloner | None:
    if config.codec is None:
        return None
    tokenizer = SpeechTokenizer(config.codec)
    load_strict(tokenizer, read_tensors(checkpoint / "codec.safetensors"), checkpoint / "codec.safetensors")
    freeze(tokenizer.to(flow.dit.condition.weight.device))
    return PiccoloCloner(tokenizer, flow, config, mel_spec(config))


def read_cloner(checkpoint: Path) -> PiccoloCloner | None:
    """What clones voices for a checkpoint, with the nets that this takes; None for the first voice's format."""
    config = read_config(checkpoint / "config.json")
    if config.codec is None:
        return None
    flow = PiccoloFlow(config)
    load_flow(flow, checkpoint / "flow.safetensors", own_names=True)
    freeze(flow)
    return _cloner(checkpoint, config, flow)


def _voices(checkpoint: Path, config: PiccoloConfig, options: LoadOptions) -> dict[str, Voice]:
    """The checkpoint's voices, then the caller's. Raises CheckpointError when there is none, or one does not fit."""
    folders = [checkpoint / "voices", *([options.voices_dir] if options.voices_dir else [])]
    voices = {name: voice for folder in folders for name, voice in read_voices(folder).items()}
    if not voices:
        raise CheckpointError(f"{' and '.join(map(str, folders))} hold no voice")
    try:
        for voice in voices.values():
            check_voice(config, voice)
    except RequestError as error:
        raise CheckpointError(str(error)) from error
    return voices


def check_voice(config: PiccoloConfig, voice: Voice) -> None:
    """Raises RequestError when a voice was not made for this checkpoint."""
    facts = voice.facts
    past_frames = len(config.dit.look_back_layers) * config.dit.block_frames
    if (
        not isinstance(facts, PiccoloVoice)
        or facts.mel.shape != (past_frames, config.mel_bins)
        or facts.speaker.shape != (config.speaker_width,)
        or len(facts.codes) > config.prompt_codes
        or max((*facts.codes, *facts.mel_codes), default=0) >= config.codes
    ):
        raise RequestError(f"the voice {voice.name!r} is of another checkpoint: clone it again", "voice")
