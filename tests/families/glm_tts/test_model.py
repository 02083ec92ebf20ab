"""The assembled model: loaded by its folders, cloned, spoken, converted; and what a damaged checkpoint says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import legato
from legato import families
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.errors import CheckpointError, ConfigError
from legato.families.glm_tts import Choices, load
from legato.families.glm_tts.convert import convert
from legato.families.glm_tts.voices import save_voice
from legato.protocols import LoadOptions, SpeechModel
from legato.types import AudioChunk, Sampling, SpeechRequest, Voice

from . import tiny, tiny_frontend
from .whole import build_whole

pytest.importorskip("wetext")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_whole(tmp_path_factory.mktemp("released"))


@pytest.fixture(scope="module")
def model(tree: Path) -> SpeechModel:
    return families.load(tree, LoadOptions(ode_steps=3))


@pytest.fixture(scope="module")
def voice(model: SpeechModel) -> Voice:
    assert model.cloner is not None
    wave = tiny_frontend.speechlike(22050, 3.4)
    return model.cloner.clone("ada", wave, 22050, "good morning")


Chunks = list[AudioChunk]


def speak(
    model: SpeechModel, texts: list[str], voice: Voice, config: EngineConfig | None = None, first_seed: int = 0
) -> list[Chunks]:
    """All requests side by side, to the end, each with a seed of its own."""
    chunks: list[Chunks] = [[] for _ in texts]
    errors: list[Exception] = []
    core = EngineCore(
        model,
        config or EngineConfig(admit_by_deadline=False),
        lambda n, chunk: chunks[n].append(chunk),
        lambda _, error: errors.append(error),
    )
    for number, text in enumerate(texts):
        core.submit(number, SpeechRequest(text, voice, seed=first_seed + number))
        core.taken(number, 10**9)
    while core.step():
        pass
    assert not errors
    return chunks


def sound(chunks: Chunks) -> np.ndarray:
    return np.concatenate([chunk.pcm for chunk in chunks])


TEXTS = ["the day", "a good day", "你好"]
"""Short: with random weights an utterance ends by chance."""


def test_known_by_its_folders(tree: Path, model: SpeechModel) -> None:
    assert model.family == "glm_tts"
    assert families.family_of(tree.parent) == "glm_tts"
    assert (model.rates.token_hz, model.rates.frame_hz, model.rates.sample_hz) == (25, 50, 24000)


def test_speaks_in_chunks_that_follow_one_another(model: SpeechModel, voice: Voice) -> None:
    (chunks,) = speak(model, TEXTS[:1], voice)
    assert len(chunks) > 2
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.start_sample for chunk in chunks] == np.cumsum([0, *[len(c.pcm) for c in chunks[:-1]]]).tolist()
    assert len(sound(chunks)) % model.rates.samples_per_token == 0
    assert 0.01 < np.abs(sound(chunks)).max() <= 0.99


def test_company_changes_nothing(model: SpeechModel, voice: Voice) -> None:
    """Eight at once, each as it is alone, bit for bit."""
    texts = (3 * TEXTS)[:8]
    together = speak(model, texts, voice)
    assert len({len(sound(chunks)) for chunks in together}) > len(TEXTS)
    for seed, (text, chunks) in enumerate(zip(texts, together, strict=True)):
        (alone,) = speak(model, [text], voice, first_seed=seed)
        assert np.array_equal(sound(chunks), sound(alone))


def test_offline_mode_speaks_the_same_tokens(tree: Path, model: SpeechModel, voice: Voice) -> None:
    offline = load(tree, LoadOptions(ode_steps=3), Choices(mode="offline"))
    (chunks,) = speak(offline, TEXTS[:1], voice)
    (streamed,) = speak(model, TEXTS[:1], voice)
    frames = model.rates.samples_per_frame
    assert len([chunk for chunk in chunks if len(chunk.pcm)]) == 1
    assert abs(len(sound(chunks)) - len(sound(streamed))) <= 2 * frames


def test_vocos_speaks_at_32_kHz(tree: Path) -> None:
    model = load(tree, LoadOptions(ode_steps=2), Choices(sample_hz=32000, chunk_tokens=30))
    assert model.cloner is not None
    voice = model.cloner.clone("bo", tiny_frontend.speechlike(16000, 3.2), 16000, "good morning")
    (chunks,) = speak(model, TEXTS[1:2], voice)
    assert chunks[0].sample_rate_hz == 32000
    assert len(sound(chunks)) % model.rates.samples_per_token == 0


def test_remembering_requests_speak(tree: Path, voice: Voice) -> None:
    model = load(tree, LoadOptions(ode_steps=2), Choices(remembers=True))
    (chunks,) = speak(model, ["hello my world. a good day."], voice, EngineConfig(first_utterance_chars=15))
    assert chunks[-1].utterance == 1


def test_greedy_end_that_comes_too_early_does_not_hang(model: SpeechModel, voice: Voice) -> None:
    core = EngineCore(model, EngineConfig(), lambda *_: None, lambda *_: None)
    core.submit(0, SpeechRequest("hello", voice, sampling=Sampling(temperature=0)))
    core.taken(0, 10**9)
    while core.step():
        pass
    assert core.running == 0


def test_converted_folder_speaks_the_same(tree: Path, model: SpeechModel, voice: Voice, tmp_path: Path) -> None:
    out = convert(tree, tmp_path / "out")
    assert not [path for path in out.rglob("*") if path.suffix in (".pt", ".bin", ".pkl")]
    again = families.load(out, LoadOptions(ode_steps=3))
    wanted, found = (sound(speak(m, TEXTS[1:2], voice)[0]) for m in (model, again))
    assert np.array_equal(wanted, found)
    with pytest.raises(ConfigError, match="is there already"):
        convert(tree, out)


def test_stored_voices_are_offered(tree: Path, voice: Voice, tmp_path: Path) -> None:
    save_voice(tmp_path, voice)
    stored = load(tree, LoadOptions(voices_dir=tmp_path))
    other_rate = load(tree, LoadOptions(voices_dir=tmp_path), Choices(sample_hz=32000))
    assert (list(stored.voices), stored.default_voice, list(other_rate.voices)) == (["ada"], "ada", [])


def test_stored_voices_that_cannot_speak_do_not_block_the_others(
    tree: Path, voice: Voice, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_voice(tmp_path, voice)
    save_voice(tmp_path, replace(voice, name="other", facts=replace(voice.facts, speech_ids=(tiny.CODES,))))
    save_voice(tmp_path, replace(voice, name="r32", facts=replace(voice.facts, mel_sample_hz=32000)))
    (tmp_path / "bad.safetensors").write_bytes(b"damaged")
    stored = load(tree, LoadOptions(voices_dir=tmp_path))
    assert list(stored.voices) == ["ada"]
    assert f"left out: {tmp_path / 'bad.safetensors'} is damaged" in caplog.text
    assert "the voice other in" in caplog.text and "of another checkpoint" in caplog.text
    assert "the voice r32 is not offered at 24000 Hz: it was made for the vocoder of 32000 Hz" in caplog.text
    assert "Choices(sample_hz=32000)" in caplog.text


def test_legato_load_speaks(tree: Path, voice: Voice) -> None:
    with legato.load(tree.parent) as engine:
        audio = engine.generate(TEXTS[2], voice=voice)
    assert audio.sample_rate_hz == 24000
    assert len(audio.samples)


# --- damage ---


def cut(name: str) -> Callable[[Path], None]:
    def damage(tree: Path) -> None:
        path = tree / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def remove(name: str) -> Callable[[Path], None]:
    return lambda tree: (tree / name).unlink()


def remove_folder(name: str) -> Callable[[Path], None]:
    return lambda tree: shutil.rmtree(tree / name)


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda tree: (tree / name).write_text(text) and None


def pointer(name: str) -> Callable[[Path], None]:
    return written(name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")


def no_heads(tree: Path) -> None:
    path = tree / "llm" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_attention_heads": 0}))


def narrow_vocabulary(tree: Path) -> None:
    tiny.build(tree, tiny.Sizes(vocabulary=512))


def few_codes(tree: Path) -> None:
    tiny.build(tree, tiny.Sizes(vocabulary=1024, flow_codes=20))


def another_width(tree: Path) -> None:
    path = tree / "llm" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"] = torch.zeros(700, 64)
    save_file(tensors, path)


class _Evil:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return (__import__("os").system, ("echo run > /tmp/never",))


def evil_pickle(tree: Path) -> None:
    torch.save({"model": _Evil()}, tree / "flow" / "flow.pt")


def tagged_code(tree: Path) -> None:
    text = tiny.FLOW_YAML.replace("spkr_emb_adaLN: True", "spkr_emb_adaLN: !apply:os.system ['false']")
    (tree / "flow" / "config.yaml").write_text(text)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (cut("flow/flow.pt"), r"flow\.pt is truncated .*hf download"),
        (cut("hift/hift.pt"), r"hift\.pt is truncated .*hf download"),
        (cut("llm/model.safetensors"), r"model\.safetensors is damaged.*hf download"),
        (remove("flow/flow.pt"), r"flow\.pt is missing: expected at .*flow/flow\.pt.*hf download"),
        (remove("flow/config.yaml"), r"config\.yaml is missing"),
        (remove("hift/hift.pt"), r"hift\.pt is missing"),
        (remove("llm/config.json"), r"config\.json is missing"),
        (remove("llm/model.safetensors"), r"model\.safetensors is missing"),
        (another_width, r"embedding\.weight is \[700, 64\], expected \[1024, 64\].*hf download"),
        (narrow_vocabulary, r"the tokenizer's ids go up to .* not of one checkpoint\. .*hf download"),
        (few_codes, r"knows 21 codec ids, the tokenizer has 64"),
        (evil_pickle, r"flow\.pt is truncated or not a file of tensors\. To fetch .*hf download"),
        (remove_folder("llm"), r"the folder llm/ of the checkpoint is missing: expected at .*ckpt/llm,.*hf download"),
        (
            remove_folder("flow"),
            r"the folder flow/ of the checkpoint is missing: expected at .*ckpt/flow,.*hf download",
        ),
        (pointer("flow/flow.pt"), r"flow\.pt is a Git LFS pointer.*git lfs pull.*hf download"),
        (pointer("hift/hift.pt"), r"hift\.pt is a Git LFS pointer"),
        (pointer("llm/model.safetensors"), r"model\.safetensors is a Git LFS pointer"),
        (pointer("vq32k-phoneme-tokenizer/tokenizer.model"), r"tokenizer\.model is a Git LFS pointer"),
        (remove("vq32k-phoneme-tokenizer/tokenizer.model"), r"tokenizer\.model is missing.*hf download"),
        (no_heads, r"num_attention_heads = 0: it must be a whole number from 1\. .*hf download"),
        (written("llm/config.json", "[1]"), r"config\.json should hold one JSON object\. .*hf download"),
        (
            written("vq32k-phoneme-tokenizer/tokenizer_config.json", "[]"),
            r"tokenizer_config\.json should hold one JSON",
        ),
        (written("flow/config.yaml", ""), r"config\.yaml lacks the table `flow:`\. .*hf download"),
    ],
)
def test_damaged_checkpoint_says_what_and_where(
    tree: Path, tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    copy = tmp_path / "ckpt"
    shutil.copytree(tree, copy)
    damage(copy)
    with pytest.raises(CheckpointError, match=says) as caught:
        families.load(copy, LoadOptions())
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (None, "holds no checkpoint: neither config.json nor a released model's folders"),
        ("[1]", "should hold one JSON object"),
        ('{"family": ["x"]}', "names the family"),
    ],
)
def test_folder_that_is_no_checkpoint_says_so(config: str | None, says: str, tmp_path: Path) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=says):
        families.load(tmp_path, LoadOptions())


def test_tags_in_the_yaml_are_not_run(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "ckpt"
    shutil.copytree(tree, copy)
    tagged_code(copy)
    families.load(copy, LoadOptions())


def test_missing_speaker_net_is_told_when_cloning(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "ckpt"
    shutil.copytree(tree, copy)
    model = families.load(copy, LoadOptions())
    assert model.cloner is not None
    with pytest.raises(CheckpointError, match=r"campplus\.onnx"):
        model.cloner.clone("x", tiny_frontend.speechlike(16000, 3.2), 16000, "good")


@pytest.mark.parametrize("choices", [Choices(sample_hz=22050), Choices(chunk_tokens=33), Choices(history_tokens=0)])
def test_impossible_choices_are_refused(tree: Path, choices: Choices) -> None:
    with pytest.raises(ConfigError, match="must be a multiple|speaks at"):
        load(tree, LoadOptions(), choices)
