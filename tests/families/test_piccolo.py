"""The first voice gives what the script that first ran its weights gave, and refuses weights that do not fit.

`data/piccolo_first_script.safetensors` holds that script's output on the ten sample sentences, with float32 weights,
seed = index, temperature 0.2, six Euler steps, guidance 0.7: `NN.tokens` for all, `NN.mel` and `NN.wave` for two. The
script recomputed two past blocks per window and gave its vocoder 8 frames on either side, one block at a time.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from legato.config import EngineConfig
from legato.core import EngineCore
from legato.errors import CheckpointError, UnsupportedFeature
from legato.families import load
from legato.families.piccolo import EARLY_REACH_FRAMES
from legato.families.piccolo.vocoder import PiccoloVocoder
from legato.nn.early_vocos import EarlyVocos, EarlyVocosConfig
from legato.protocols import LoadOptions, SpeechModel
from legato.types import AudioChunk, MelBlock, SpeechRequest, SpeechTokens

SENTENCES = (
    "The old lighthouse keeper climbed the narrow stairs before sunrise.",
    "Could you tell me where the nearest train station is, please?",
    "She packed three warm sweaters and a small umbrella for the trip.",
    "Our streaming engine begins to speak before the sentence is complete.",
    "Every morning he drinks a strong cup of coffee on the balcony.",
    "The children laughed when the puppy chased its own tail.",
    "A gentle breeze carried the smell of fresh bread across the square.",
    "Please remember to turn off the lights when you leave the office.",
    "The museum will be closed on Thursday because of a public holiday.",
    "My brother works as a nurse in a large city hospital.",
)
GOLDEN = Path(__file__).parent / "data" / "piccolo_first_script.safetensors"
FIRST = Path(__file__).parent / "data" / "piccolo_first"


class Recorder:
    """An engine core with the first script's schedule, that notes what passes between its stages."""

    def __init__(self, model: SpeechModel) -> None:
        vocoder = PiccoloVocoder(model.vocoder.net, EARLY_REACH_FRAMES)  # type: ignore[attr-defined]
        vocoder.exact = True  # that script joined its pieces without a blend
        config = EngineConfig(ramp_blocks=(1,), look_ahead_blocks=(1,), first_utterance_chars=200)
        self.core = EngineCore(replace(model, vocoder=vocoder), config, self._chunk, self._error)
        self.tokens: list[int] = []
        self.mel: list[torch.Tensor] = []
        self.wave: list[torch.Tensor] = []
        self.core.flow.add = self._tokens(self.core.flow.add)  # type: ignore[method-assign]
        self.core.vocoder.add = self._mel(self.core.vocoder.add)  # type: ignore[method-assign]

    def speak(self, text: str, seed: int) -> None:
        for noted in (self.tokens, self.mel, self.wave):
            noted.clear()
        self.core.submit(seed, SpeechRequest(text, seed=seed, normalize=False))
        while self.core.step():
            pass

    def _chunk(self, _: int, chunk: AudioChunk) -> None:
        self.wave.append(torch.from_numpy(chunk.pcm.copy()))

    def _error(self, _: int, error: Exception) -> None:
        raise error

    def _tokens(self, add):  # type: ignore[no-untyped-def]
        def note(item: SpeechTokens) -> None:
            self.tokens.extend(item.ids)
            add(item)

        return note

    def _mel(self, add):  # type: ignore[no-untyped-def]
        def note(item: MelBlock) -> None:
            self.mel.append(item.mel.clone())
            add(item)

        return note


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder(load(FIRST, LoadOptions(recompute_past=True)))


@pytest.fixture(scope="module")
def piccolo() -> SpeechModel:
    """The first voice instead of the embedded one."""
    return load(FIRST, LoadOptions())


@pytest.mark.parametrize(
    "index", [pytest.param(i, marks=pytest.mark.slow if i > 2 else ()) for i in range(len(SENTENCES))]
)
def test_same_tokens_as_the_first_script(recorder: Recorder, index: int) -> None:
    golden = load_file(GOLDEN)
    recorder.speak(SENTENCES[index], seed=index)
    assert recorder.tokens == golden[f"{index:02d}.tokens"].tolist()


@pytest.mark.parametrize("index", [3, 8])
def test_same_mel_and_wave_as_the_first_script(recorder: Recorder, index: int) -> None:
    golden = load_file(GOLDEN)
    recorder.speak(SENTENCES[index], seed=index)
    assert torch.allclose(torch.cat(recorder.mel), golden[f"{index:02d}.mel"], atol=1e-4)
    assert torch.allclose(torch.cat(recorder.wave), golden[f"{index:02d}.wave"], atol=1e-4)


def test_kept_keys_stay_near_the_recomputed_past(recorder: Recorder, piccolo: SpeechModel) -> None:
    """The default keeps keys and values instead of recomputing the past: another approximation of the same mel."""
    recorder.speak(SENTENCES[3], seed=3)
    recomputed = torch.cat(recorder.mel)
    kept = Recorder(piccolo)
    kept.speak(SENTENCES[3], seed=3)
    difference = (torch.cat(kept.mel) - recomputed).square().mean().sqrt() / recomputed.std()
    assert 0 < difference < 0.15


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIRST, tmp_path / "piccolo"))


def test_loads_from_a_folder(checkpoint: Path) -> None:
    assert load(checkpoint, LoadOptions()).family == "piccolo"


@pytest.mark.parametrize("name", ["config.json", "lm.safetensors", "flow.safetensors", "vocoder.safetensors"])
def test_missing_file_is_named(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load(checkpoint, LoadOptions())


@pytest.mark.parametrize(
    "name", ["lm.safetensors", "flow.safetensors", "vocoder.safetensors", "phone_table.safetensors"]
)
def test_truncated_file_is_named(checkpoint: Path, name: str) -> None:
    path = checkpoint / name
    path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(CheckpointError, match=name):
        load(checkpoint, LoadOptions())


def test_values_that_are_not_finite_are_refused(checkpoint: Path) -> None:
    path = checkpoint / "flow.safetensors"
    tensors = load_file(path)
    tensors["out.bias"][3] = torch.nan
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match="not finite"):
        load(checkpoint, LoadOptions())


def test_tensors_of_another_shape_are_refused(checkpoint: Path) -> None:
    path = checkpoint / "lm.safetensors"
    tensors = load_file(path)
    tensors["norm.weight"] = tensors["norm.weight"][:-1].clone()
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"decoder\.norm\.weight"):
        load(checkpoint, LoadOptions())


def test_other_scripts_are_refused(piccolo: SpeechModel) -> None:
    with pytest.raises(UnsupportedFeature, match="你"):
        piccolo.frontend.check("Hello 你好")
    piccolo.frontend.check("Café, naïve, 3 °C – all fine…")


@pytest.mark.parametrize("ahead", [3, 0])
def test_an_early_vocoder_serves_the_first_voice(checkpoint: Path, piccolo: SpeechModel, ahead: int) -> None:
    """Its config may name a vocoder that looks ahead less; one that looks as far gives the same samples."""
    raw = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    sizes = piccolo.vocoder.net.config  # type: ignore[attr-defined]
    early = EarlyVocos(EarlyVocosConfig(sizes, (3, *[ahead] * sizes.blocks), (ahead,) * sizes.tail_blocks))
    early.start_from(piccolo.vocoder.net.state_dict())  # type: ignore[attr-defined]
    described = {name: value for name, value in asdict(sizes).items() if name not in ("mel_bins", "hop_samples")}
    raw["vocoder"] = {"kind": "early_vocos", **described, "ahead": early.config.ahead, "tail_ahead": [ahead] * 2}
    (checkpoint / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    save_file({name: t.contiguous() for name, t in early.state_dict().items()}, checkpoint / "vocoder.safetensors")
    model = load(checkpoint, LoadOptions())
    mel = torch.randn(60, 80, generator=torch.Generator().manual_seed(0)) - 5
    (old,), (new,) = piccolo.vocoder.forward([mel]), model.vocoder.forward([mel])
    assert model.vocoder.exact
    assert (model.vocoder.reach.right, model.ramp.keep_blocks[0]) == ((23, 1) if ahead else (4, 1))
    assert torch.allclose(old, new, atol=1e-4) == (ahead == 3)
