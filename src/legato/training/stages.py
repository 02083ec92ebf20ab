"""The recipe's stages, each from files to files: `work/config.json`, `work/<net>/checkpoint.pt`, and an exported voice.

config   features   codec   codes   lm   flow   vocoder   export
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from legato.errors import CheckpointError
from legato.families.piccolo.codec import SpeechTokenizer
from legato.families.piccolo.config import PHONEME_IDS, PiccoloConfig, read_config
from legato.families.piccolo.flow import PiccoloFlow
from legato.families.piccolo.lm import PiccoloLM
from legato.families.piccolo.weights import load_flow, load_lm, load_vocoder
from legato.nn.early_vocos import EarlyVocos, EarlyVocosConfig
from legato.nn.vocos import Vocos
from legato.nn.weights import read_tensors

from .codec import Codec, CodecTask
from .corpus import Corpus
from .features import mel_statistics, write_codes, write_features
from .flow import FlowTask, learning_flow
from .lm import LMTask, learning_lm
from .loop import Budget, Progress, train
from .settings import Recipe
from .vocoder import VocoderTask

SLIM = "weights.safetensors"


@dataclass(frozen=True)
class Workshop:
    """Where a run keeps its things. `start` is a checkpoint folder of piccolo whose weights are taken over where they
    fit."""

    work: Path
    corpora: tuple[Path, ...]
    recipe: Recipe
    device: str = "cpu"
    start: Path | None = None

    @property
    def config(self) -> PiccoloConfig:
        return read_config(self.work / "config.json")

    @property
    def corpus(self) -> Corpus:
        return Corpus(self.corpora)


def write_config(shop: Workshop, sizes: Path) -> None:
    """work/config.json: the recipe's sizes with the corpus' mel statistics in them."""
    raw = json.loads(sizes.read_text(encoding="utf-8"))
    statistics = mel_statistics(shop.corpus)
    raw["mel"] |= {"mean": round(statistics.mean, 3), "std": round(statistics.std, 3)}
    shop.work.mkdir(parents=True, exist_ok=True)
    (shop.work / "config.json").write_text(json.dumps(raw, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def make_features(shop: Workshop) -> None:
    for folder in shop.corpora:
        write_features(folder)


def train_codec(shop: Workshop, budget: Budget) -> Progress:
    net = _new_codec(shop)
    if shop.start:
        path = shop.start / "codec.safetensors"
        tensors = read_tensors(path)
        _fill(net, tensors | {f"encoder.{name}": t for name, t in tensors.items()}, path)
    return _train(shop, "codec", CodecTask(net, shop.corpus, shop.recipe.codec, shop.device), budget)


def make_codes(shop: Workshop) -> int:
    """speech.codes of every corpus; how many different codes are used."""
    tokenizer = read_tokenizer(shop).to(shop.device)
    used = torch.zeros(shop.config.codes, dtype=torch.long)
    for folder in shop.corpora:
        counts = torch.from_numpy(write_codes(folder, lambda mel: tokenizer.encode(mel.to(shop.device))))
        used[: len(counts)] += counts
    return int((used > 0).sum())


def train_lm(shop: Workshop, budget: Budget) -> Progress:
    net = learning_lm(shop.config)
    if shop.start:
        config = read_config(shop.start / "config.json")
        load = partial(load_lm, own_names=config.codec is not None)
        _take_over(net, PiccoloLM(config), load, shop.start / "lm.safetensors")
    return _train(shop, "lm", LMTask(net, shop.config, shop.corpus, shop.recipe.lm, shop.device), budget)


def train_flow(shop: Workshop, budget: Budget) -> Progress:
    net = learning_flow(shop.config)
    if shop.start:
        config = read_config(shop.start / "config.json")
        load = partial(load_flow, own_names=config.codec is not None)
        _take_over(net, PiccoloFlow(config), load, shop.start / "flow.safetensors")
    return _train(shop, "flow", FlowTask(net, shop.config, shop.corpus, shop.recipe.flow, shop.device), budget)


def train_vocoder(shop: Workshop, budget: Budget) -> Progress:
    net = new_vocoder(shop.config)
    if shop.start:
        sizes = read_config(shop.start / "config.json").vocoder
        old = EarlyVocos(sizes) if isinstance(sizes, EarlyVocosConfig) else Vocos(sizes)
        load_vocoder(old, shop.start / "vocoder.safetensors")
        net.start_from(old.state_dict())
    return _train(shop, "vocoder", VocoderTask(net, shop.corpus, shop.recipe.vocoder, shop.device), budget)


def new_vocoder(config: PiccoloConfig) -> EarlyVocos:
    """An untrained vocoder of format 2. Raises CheckpointError for the first voice's config."""
    if not isinstance(config.vocoder, EarlyVocosConfig):
        raise CheckpointError("config.json is of the first voice's format; the recipe trains format 2")
    return EarlyVocos(config.vocoder)


def read_tokenizer(shop: Workshop) -> SpeechTokenizer:
    """The trained codec's encoder."""
    codec = _new_codec(shop)
    codec.load_state_dict(trained(shop.work / "codec", "codec"))
    return codec.encoder.eval()


def trained(folder: Path, learner: str) -> dict[str, Tensor]:
    """The weights of a checkpoint, averaged where an average was kept; else those that `slim` left.

    Raises CheckpointError when there are neither.
    """
    path = folder / "checkpoint.pt"
    if path.is_file():
        state = torch.load(path, weights_only=True, map_location="cpu")["learners"][learner]
        weights: dict[str, Tensor] = state["net"] | state["averaged"]
        return weights
    if (folder / SLIM).is_file():
        return read_tensors(folder / SLIM)
    raise CheckpointError(f"{path} is missing: train that stage first")


def slim(shop: Workshop) -> None:
    """work/<net>/weights.safetensors of every net that was trained: float16 and nothing but weights, to be carried."""
    for name in ("codec", "lm", "flow", "vocoder"):
        if (shop.work / name / "checkpoint.pt").is_file():
            tensors = trained(shop.work / name, name)
            save_file({key: t.half().contiguous() for key, t in tensors.items()}, shop.work / name / SLIM)


def _new_codec(shop: Workshop) -> Codec:
    config = shop.config.codec
    if config is None:
        raise CheckpointError(f"{shop.work / 'config.json'} has no codec: the recipe trains format 2")
    return Codec(config, PHONEME_IDS, shop.recipe.codec)


def _train(shop: Workshop, name: str, task: Any, budget: Budget) -> Progress:
    torch.manual_seed(0)
    return train(task, budget, shop.work / name, lambda line: print(f"{name}: {line}", flush=True))


def _take_over(net: nn.Module, old: nn.Module, load: Callable[[nn.Module, Path], None], path: Path) -> None:
    """Start from the weights of another checkpoint that have the same name and shape."""
    load(old, path)
    _fill(net, old.state_dict(), path)


def _fill(net: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Take over the tensors that have the name and the shape of one of the net's."""
    own = net.state_dict()
    fitting = {name: t for name, t in tensors.items() if name in own and t.shape == own[name].shape}
    net.load_state_dict(fitting, strict=False)
    print(f"{path}: {len(fitting)} of {len(own)} tensors taken over", flush=True)
