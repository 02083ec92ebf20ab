"""GLM-TTS (zai-org/GLM-TTS): cloned voices, Chinese and English, from the released `ckpt/` tree or a converted one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path

import torch

from legato.errors import CheckpointError, ConfigError, RequestError
from legato.nn.layers import freeze
from legato.protocols import LoadOptions, SpeechModel, Vocoder
from legato.types import Ramp, Rates, Voice

from .cloner import GlmCloner
from .config import FlowSettings, read_flow_settings
from .files import telling_what_to_run
from .flow import GRID_TOKENS, HISTORY_TOKENS, LOOK_AHEAD_BLOCKS, ODE_STEPS, GlmFlow, Mode
from .frontend import GlmFrontend, glm_voice
from .hift import FRAME_HZ, REACH_FRAMES
from .lm import GlmLM
from .phonemes import Phonemes, known_phonemes, read_replacements, read_safe
from .speaker import SpeakerNet
from .speakers import SPEAKERS_FILE, read_speakers, silent_voice, with_speakers
from .speech_tokenizer import read_speech_tokenizer
from .text_front import TextFront
from .tokenizer import Tokenizer, read_tokenizer, special_ids
from .vocoder import EARLY_REACH_FRAMES, HiftVocoder, load_hift
from .vocos2d import load_vocos2d
from .voices import read_voices
from .weights import load_dit, load_lm

log = logging.getLogger("legato")

LM_ROW_TILE = 4
HIFT_HZ, VOCOS_HZ = 24000, 32000
KEEP_TOKENS = (20, 25, 50)
"""Kept of the first, second, … window: 20 give the first 0.4 s of sound beyond the vocoder's reach."""

TOKENIZER_FOLDER = "vq32k-phoneme-tokenizer"
PARTS = ("llm", "flow", "hift", "vocos2d", "speech_tokenizer", TOKENIZER_FOLDER)
SPEAKER_FILE, SAFE_FILE, REPLACEMENTS_FILE = (
    "frontend/campplus.onnx",
    "configs/G2P_able_1word.json",
    "configs/G2P_replace_dict.jsonl",
)


@dataclass(frozen=True)
class Choices:
    """What this family lets a caller choose beyond LoadOptions.

    `sample_hz` picks the vocoder (24000 HiFT, 32000 Vocos2D). `chunk_tokens` is what windows keep after the first two.
    `adapter` is the folder of a LoRA adapter (PEFT's files); without it, one in `llm/` is used if it is there.
    `speakers` is the release's table of the speakers of a fine-tuned model (`configs/spk_prompt_dict.yaml`); without
    it, one in `llm/` is used if it is there.
    `remembers` lets an utterance continue from what the request said before it (the release's `use_cache`), which makes
    them wait for one another.
    """

    sample_hz: int = HIFT_HZ
    mode: Mode = "streaming"
    chunk_tokens: int | None = None
    history_tokens: int = HISTORY_TOKENS
    adapter: Path | None = None
    speakers: Path | None = None
    remembers: bool = False


def load(checkpoint: Path, options: LoadOptions, choices: Choices | None = None) -> SpeechModel:
    """Build the model. Raises CheckpointError naming the file that is missing, damaged or does not fit, and ConfigError
    for choices that contradict themselves.
    """
    choices, tree, device = choices or Choices(), find_tree(checkpoint), torch.device(options.device)
    ramp = _ramp(choices)
    settings = read_flow_settings(tree / "flow" / "config.yaml")
    tokenizer = read_tokenizer(tree / TOKENIZER_FOLDER)
    lm = _lm(tree, options, choices, device)
    frontend = GlmFrontend(
        tokenizer,
        special_ids(tokenizer, lm.facts.vocabulary),
        TextFront(),
        continues=choices.remembers,
        phonemes=_phonemes(tree, tokenizer),
    )
    flow = _flow(tree, settings, options, choices, device)
    _check_codes(frontend.special.speech_tokens, flow, tree)
    vocoder, sample_hz = _vocoder(tree, flow.facts.mel_bins, options, choices, device)
    voices = _voices(options.voices_dir or tree / "voices", sample_hz, frontend)
    speakers = choices.speakers or tree / "llm" / SPEAKERS_FILE
    if choices.speakers or speakers.is_file():
        nobody = silent_voice(flow.dit.sizes.mel_bins, flow.dit.sizes.speaker, sample_hz)
        voices = with_speakers(voices, read_speakers(speakers, lm.facts.vocabulary), nobody)
    return SpeechModel(
        name="glm-tts",
        family="glm_tts",
        rates=Rates(settings.token_hz, settings.frame_hz, sample_hz),
        voices=voices,
        default_voice=next(iter(voices), ""),
        frontend=frontend,
        lm=lm,
        flow=flow,
        vocoder=vocoder,
        ramp=ramp,
        languages=("zh", "en"),
        cloner=GlmCloner(
            frontend.voice_ids,
            lru_cache(1)(partial(read_speech_tokenizer, tree / "speech_tokenizer", options.device)),
            lru_cache(1)(partial(SpeakerNet, beside(tree, SPEAKER_FILE))),
            sample_hz,
        ),
        pronunciations=("text", "phonemes"),
        check_voice=partial(_check_voice, frontend, sample_hz),
        nets={"dit_backbone": "transformer", "vocoder": "hift" if sample_hz == HIFT_HZ else "vocos2d"},
        batch_invariant=options.batch_invariant and lm.row_tile > 0,
        device=options.device,
    )


def find_tree(folder: Path) -> Path:
    """The folder that holds `llm/`, `flow/` and so on: the one given, or `ckpt/` in it if that has more of them."""
    return max((folder, folder / "ckpt"), key=lambda tree: sum((tree / part).is_dir() for part in PARTS))


def beside(tree: Path, name: str) -> Path:
    """A file that the release keeps next to its `ckpt/` folder rather than in it; both are looked into."""
    outside = tree.parent / name
    return outside if outside.is_file() and not (tree / name).is_file() else tree / name


def _lm(tree: Path, options: LoadOptions, choices: Choices, device: torch.device) -> GlmLM:
    """bfloat16 on CUDA unless asked otherwise: half the memory to read for every token.

    On a CPU bfloat16 does without row tiles, and without their promise: padded rows cost it more than reading does.
    """
    wanted = options.lm_dtype or ("bfloat16" if device.type == "cuda" else "float32")
    lm = load_lm(tree / "llm", choices.adapter).to(device, torch.bfloat16 if wanted == "bfloat16" else torch.float32)
    in_tiles = options.batch_invariant and not (wanted == "bfloat16" and device.type == "cpu")
    lm.freeze(LM_ROW_TILE if in_tiles else 0)
    return lm


def _flow(tree: Path, settings: FlowSettings, options: LoadOptions, choices: Choices, device: torch.device) -> GlmFlow:
    flow = GlmFlow(
        load_dit(tree / "flow"),
        settings,
        choices.mode,
        steps=options.ode_steps or ODE_STEPS,
        history_tokens=choices.history_tokens,
        together=not options.batch_invariant,
    )
    freeze(flow.to(device))
    return flow


def _vocoder(
    tree: Path, mel_bins: int, options: LoadOptions, choices: Choices, device: torch.device
) -> tuple[Vocoder, int]:
    """The vocoder and its sample rate, which must be the one chosen."""
    if choices.sample_hz == VOCOS_HZ:
        vocos = load_vocos2d(tree / "vocos2d", mel_bins, device)
        return vocos, _checked_hz(vocos.hop * FRAME_HZ, choices, tree / "vocos2d")
    net = load_hift(tree / "hift").to(device).eval().requires_grad_(False)
    net.prepare()
    hift = HiftVocoder(net, REACH_FRAMES if options.exact_joins else EARLY_REACH_FRAMES)
    return hift, _checked_hz(net.sizes.sample_hz, choices, tree / "hift")


def _checked_hz(found: int, choices: Choices, folder: Path) -> int:
    if found != choices.sample_hz:
        raise CheckpointError(f"the vocoder in {folder} gives {found} samples per second, not {choices.sample_hz}")
    return found


@telling_what_to_run()
def _check_codes(codes: int, flow: GlmFlow, tree: Path) -> None:
    if flow.dit.sizes.rows < codes:
        raise CheckpointError(
            f"the flow in {tree / 'flow'} knows {flow.dit.sizes.rows} codec ids, the tokenizer has {codes}: "
            "they are not of one checkpoint"
        )


def _ramp(choices: Choices) -> Ramp:
    if choices.sample_hz not in (HIFT_HZ, VOCOS_HZ):
        raise ConfigError(f"sample_hz = {choices.sample_hz}: this model speaks at {HIFT_HZ} or {VOCOS_HZ}")
    for name in ("chunk_tokens", "history_tokens"):
        value = getattr(choices, name)
        if value is not None and (value < GRID_TOKENS or value % GRID_TOKENS):
            raise ConfigError(f"{name} = {value} must be a multiple of {GRID_TOKENS}")
    if choices.mode == "offline":
        return Ramp(keep_blocks=(1,), ahead_blocks=(0,))
    first, second, later = KEEP_TOKENS
    later = choices.chunk_tokens or later
    keep = (min(first, later), min(second, later), later)
    return Ramp(tuple(tokens // GRID_TOKENS for tokens in keep), (LOOK_AHEAD_BLOCKS,))


def _phonemes(tree: Path, tokenizer: Tokenizer) -> Phonemes | None:
    """What phoneme mode needs; None where its libraries are not installed. The release's tables are used if there."""
    if find_spec("pypinyin") is None or find_spec("jieba") is None:
        return None
    safe, replacements = beside(tree, SAFE_FILE), beside(tree, REPLACEMENTS_FILE)
    return Phonemes(
        known_phonemes(tokenizer),
        read_safe(safe) if safe.is_file() else None,
        read_replacements(replacements) if replacements.is_file() else None,
    )


def _voices(folder: Path, sample_hz: int, frontend: GlmFrontend) -> dict[str, Voice]:
    """Stored voices whose mel was made for this vocoder. Others are left out, with a warning that says what to do."""
    voices = {}
    for name, voice in read_voices(folder).items():
        made_hz = glm_voice(voice).mel_sample_hz
        if made_hz != sample_hz:
            log.warning("the voice %s is not offered at %d Hz: %s", name, sample_hz, made_for(made_hz))
            continue
        try:
            frontend.facts_of(voice)
        except RequestError:
            log.warning("the voice %s in %s is left out: it is of another checkpoint; clone it again", name, folder)
            continue
        voices[name] = voice
    return voices


def made_for(sample_hz: int) -> str:
    """What a stored voice's rate means, and where it can be spoken with."""
    net = "Vocos2D" if sample_hz == VOCOS_HZ else "HiFT"
    return (
        f"it was made for the vocoder of {sample_hz} Hz ({net}). Load the model with Choices(sample_hz={sample_hz}) to "
        f"speak with it, use its recording in `legato glmtts --sample_rate {sample_hz}`, or clone it for the other rate"
    )


def _check_voice(frontend: GlmFrontend, sample_hz: int, voice: Voice) -> None:
    """Refuse a request's voice of another family, checkpoint or rate. Raises RequestError."""
    facts = frontend.facts_of(voice)
    if facts.mel_sample_hz != sample_hz:
        raise RequestError(
            f"the voice {voice.name} was made for {facts.mel_sample_hz} samples per second, and this model speaks at "
            f"{sample_hz}: clone it with this model",
            "voice",
        )
