"""Legato: streaming speech generation. First sound early, and never a gap.

import legato

with legato.load() as engine:
    engine.generate("Good morning.").save("morning.wav")
    for chunk in engine.stream("Sound arrives while this is still being made."):
        play(chunk.pcm)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legato.config import Config, load_config
from legato.errors import ConfigError, SpeechError
from legato.types import AudioChunk, Sampling, SpeechRequest, Voice

__all__ = [
    "Audio",
    "AudioChunk",
    "Config",
    "ConfigError",
    "Sampling",
    "SpeechEngine",
    "SpeechError",
    "SpeechRequest",
    "Voice",
    "__version__",
    "load",
]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from legato.engine import SpeechEngine
    from legato.protocols import LoadOptions, SpeechModel
    from legato.spoken import Audio

log = logging.getLogger("legato")


def __getattr__(name: str) -> Any:
    """Audio and SpeechEngine bring numpy and torch with them, so they come when they are asked for."""
    homes = {"Audio": "legato.spoken", "SpeechEngine": "legato.engine"}
    if name in homes:
        return getattr(import_module(homes[name]), name)
    raise AttributeError(f"module 'legato' has no attribute {name!r}")


def load(model: str | Path = "piccolo", config: str | Path | Config | None = None) -> SpeechEngine:
    """Load a model and start its engine.

    `model` is the name of an embedded model, a checkpoint folder or an id on the Hugging Face Hub (owner/name, or
    owner/name@revision); `config` a TOML file or a Config.
    Raises UnknownModel, CheckpointError or ConfigError.
    """
    from legato.families import load as load_model

    settings = config if isinstance(config, Config) else load_config(None if config is None else Path(config))
    return open_engine(lambda options: load_model(model, options), settings)


def open_engine(load_model: Callable[[LoadOptions], SpeechModel], settings: Config) -> SpeechEngine:
    """Load a model with the options of a config, by the thread that will compute, and start its engine.

    Raises ConfigError, and what `load_model` raises.
    """
    from legato.engine import SpeechEngine
    from legato.fit import fit, load_options
    from legato.worker import Worker

    options = load_options(settings)
    with ExitStack() as undo:
        worker = Worker("legato-engine")
        undo.callback(worker.close)
        loaded = worker.call(lambda: _prepared(lambda: load_model(options), settings.engine.threads))
        fitted = fit(settings, loaded)
        undo.pop_all()
    for warning in fitted.warnings:
        log.warning(warning)
    return SpeechEngine(loaded, fitted.engine, worker)


def _prepared(load_model: Callable[[], SpeechModel], threads: int | None) -> SpeechModel:
    """Load with the wanted number of threads, which torch keeps per calling thread."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    return load_model()
