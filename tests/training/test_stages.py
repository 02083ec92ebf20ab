"""The command line, stage by stage: chords in, a checkpoint that loads out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from legato.errors import CheckpointError
from legato.families import load
from legato.families.piccolo.config import read_config
from legato.protocols import LoadOptions, SpeechModel
from legato.training.__main__ import main
from legato.training.settings import Recipe
from legato.training.stages import Workshop, new_vocoder, trained

from .speech import SIZES, write_corpus

RECIPE = SIZES.with_name("recipe_tiny.toml")
FIRST = Path(__file__).parents[1] / "families" / "data" / "piccolo_first"


class Shop:
    """A work folder, a corpus, and the command line over them."""

    def __init__(self, root: Path) -> None:
        self.work, self.corpus, self.voice = root / "work", root / "corpus", root / "voice"
        write_corpus(self.corpus, 8, phonemes=34)

    def run(self, stage: str, *options: str) -> None:
        places = ["--work", str(self.work), "--corpus", str(self.corpus), "--recipe", str(RECIPE)]
        main([stage, *places, *options])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Every stage once, two steps each."""
    made = Shop(tmp_path_factory.mktemp("shop"))
    made.run("features")
    made.run("config", "--sizes", str(SIZES))
    for stage in ("codec", "codes", "lm", "flow", "vocoder"):
        made.run(stage, "--steps", "2")
    made.run("export", "--out", str(made.voice), "--voice", "deep=low", "--voice", "bright=high")
    return made


@pytest.fixture(scope="module")
def exported(shop: Shop) -> SpeechModel:
    return load(shop.voice, LoadOptions())


def test_what_is_exported_loads(exported: SpeechModel) -> None:
    assert sorted(exported.voices) == ["bright", "deep"]
    assert exported.voices["deep"].languages == ("en",)


def test_mel_statistics_reach_the_nets(shop: Shop) -> None:
    config, sizes = read_config(shop.voice / "config.json"), read_config(SIZES)
    assert config.mel_mean != sizes.mel_mean
    assert config.codec is not None
    assert (config.codec.mel_mean, config.codec.mel_std) == (config.mel_mean, config.mel_std)


def test_exported_weights_are_the_trained_ones(shop: Shop, exported: SpeechModel) -> None:
    learned = trained(shop.work / "vocoder", "vocoder")["head.weight"]
    net = exported.vocoder.net  # type: ignore[attr-defined]
    torch.testing.assert_close(net.head.weight, learned.half().float())


def test_voices_of_two_speakers_differ(exported: SpeechModel) -> None:
    deep, bright = exported.voices["deep"].facts, exported.voices["bright"].facts
    assert not torch.allclose(deep.speaker, bright.speaker, atol=1e-3)
    assert not torch.allclose(deep.mel, bright.mel, atol=0.1)


def test_slim_weights_stand_in_for_a_checkpoint(shop: Shop) -> None:
    shop.run("slim")
    folder = shop.work / "flow"
    whole = trained(folder, "flow")
    (folder / "checkpoint.pt").rename(folder / "kept.pt")
    try:
        slim = trained(folder, "flow")
    finally:
        (folder / "kept.pt").rename(folder / "checkpoint.pt")
    assert slim.keys() == whole.keys()
    torch.testing.assert_close(slim["dit.outputs.weight"], whole["dit.outputs.weight"], atol=1e-3, rtol=1e-3)


def test_an_untrained_stage_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="train that stage first"):
        trained(tmp_path, "lm")


def test_an_unknown_speaker_is_named(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nobody.*high, low"):
        shop.run("export", "--out", str(tmp_path), "--voice", "me=nobody")


def test_the_first_voice_is_no_size_to_train(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((FIRST / "config.json").read_bytes())
    first = Workshop(tmp_path, (shop.corpus,), Recipe())
    with pytest.raises(CheckpointError, match="format 2"):
        new_vocoder(first.config)


def test_starting_from_another_checkpoint_takes_over_what_fits(shop: Shop, tmp_path: Path) -> None:
    other = Shop(tmp_path)
    other.run("features")
    other.run("config", "--sizes", str(SIZES))
    other.run("codec", "--steps", "1", "--start", str(shop.voice))
    name = "encoder.inputs.weight"
    start = trained(shop.work / "codec", "codec")[name]
    assert (trained(other.work / "codec", "codec")[name] - start).abs().max() < 1e-3
