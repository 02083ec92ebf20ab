"""Files of a checkpoint: what they lack is named, nothing read that is not needed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from legato.errors import CheckpointError
from legato.families.qwen2_5_omni.audio_tower import load_audio_tower
from legato.families.qwen2_5_omni.parts import ThinkerConfig
from legato.families.qwen2_5_omni.thinker import load_thinker
from legato.families.qwen2_5_omni.tokenizer import Detokenizer, TextTokenizer
from legato.families.qwen2_5_omni.weights import Tensors

from .settings import IDS
from .tiny import tokenizer


@pytest.fixture
def own(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint to damage."""
    return Path(shutil.copytree(checkpoint, tmp_path / "own"))


# --- tensors ---


def test_a_missing_shard_is_named(own: Path) -> None:
    (own / "model-00002-of-00003.safetensors").unlink()
    Tensors(own, ("thinker.",))
    with pytest.raises(CheckpointError, match="model-00002-of-00003.safetensors is missing: expected at .* To fetch"):
        Tensors(own, ("thinker.", "talker."))


def test_damaged_files_are_named(own: Path) -> None:
    shard = own / "model-00001-of-00003.safetensors"
    whole = shard.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"nonsense" * 100):
        shard.write_bytes(content)
        with pytest.raises(CheckpointError, match="model-00001-of-00003.safetensors is damaged"):
            Tensors(own, ("thinker.",)).read("thinker.")
    (own / "model.safetensors.index.json").write_text("[]", encoding="utf-8")
    with pytest.raises(CheckpointError, match="is not an index"):
        Tensors(own, ("thinker.",))
    (own / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match="model.safetensors is missing"):
        Tensors(own, ("thinker.",))


def test_an_index_cannot_name_files_elsewhere(own: Path, tmp_path: Path) -> None:
    index = own / "model.safetensors.index.json"
    raw = json.loads(index.read_text(encoding="utf-8"))
    raw["weight_map"] = {name: f"../../{file}" for name, file in raw["weight_map"].items()}
    index.write_text(json.dumps(raw), encoding="utf-8")
    assert len(Tensors(own, ("thinker.",)).read("thinker.")) > 100


def test_one_file_instead_of_shards(own: Path, thinker_config: ThinkerConfig) -> None:
    known = {name: t for file in own.glob("*.safetensors") for name, t in load_file(file).items()}
    for file in own.glob("model*"):
        file.unlink()
    save_file(known, own / "model.safetensors")
    tensors = Tensors(own, ("thinker.", "talker.", "token2wav."))
    assert tensors.elements("") == sum(t.numel() for t in known.values())
    load_thinker(tensors, thinker_config, torch.float32)


def test_tensors_that_lack_or_do_not_fit(own: Path, thinker_config: ThinkerConfig) -> None:
    shard = own / "model-00001-of-00003.safetensors"
    known = load_file(shard)

    def load(change: dict[str, torch.Tensor | None]) -> None:
        save_file({n: t for n, t in {**known, **change}.items() if t is not None}, shard)
        tensors = Tensors(own, ("thinker.",))
        load_thinker(tensors, thinker_config, torch.float32)
        load_audio_tower(tensors, thinker_config.audio, torch.float32)

    load({"thinker.audio_tower.positional_embedding": torch.zeros(3)})
    for name, tensor, message in (
        ("thinker.lm_head.weight", None, "lm_head.weight, which model.safetensors.index.json says it holds"),
        ("thinker.model.norm.weight", torch.ones(5), r"decoder.norm.weight is \[5\], expected \[64\]"),
        ("thinker.model.norm.weight", torch.full((64,), torch.nan), "not finite"),
        ("thinker.model.layers.1.self_attn.k_proj.weight", None, "k_proj.weight"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load({name: tensor})
    save_file({n: t for n, t in known.items() if n != "thinker.lm_head.weight"}, shard)
    with pytest.raises(CheckpointError, match="lacks thinker.lm_head.weight"):
        Tensors(own, ("thinker.",)).elements("thinker.")


def test_numbers_come_in_the_dtype_asked_for(tensors: Tensors, thinker_config: ThinkerConfig) -> None:
    thinker = load_thinker(tensors, thinker_config, torch.bfloat16)
    thinker.freeze(0)
    assert {p.dtype for p in thinker.parameters()} == {torch.bfloat16}
    assert thinker.kv_shape.dtype == torch.bfloat16


def test_a_tied_head(own: Path, thinker_config: ThinkerConfig) -> None:
    index = own / "model.safetensors.index.json"
    raw = json.loads(index.read_text(encoding="utf-8"))
    del raw["weight_map"]["thinker.lm_head.weight"]
    index.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(CheckpointError, match="lacks thinker.lm_head.weight"):
        load_thinker(Tensors(own, ("thinker.",)), thinker_config, torch.float32)
    tied = replace(thinker_config, tied=True)
    thinker = load_thinker(Tensors(own, ("thinker.",)), tied, torch.float32)
    thinker.freeze(4)
    assert thinker.embedding.weight is thinker.head.weight
    half = load_thinker(Tensors(own, ("thinker.",)), tied, torch.bfloat16)
    half.freeze(4)
    rows = half.text_rows([5, 6, 7, 8])
    assert torch.equal(half.logits(rows), (rows @ half.embedding.weight.t()).float())


# --- tokenizer ---


@pytest.fixture(scope="module")
def text_tokenizer(checkpoint: Path, thinker_config: ThinkerConfig) -> TextTokenizer:
    return TextTokenizer(checkpoint / "tokenizer.json", thinker_config.ids)


def test_typed_names_of_special_ids_are_text(text_tokenizer: TextTokenizer) -> None:
    for name in ("<|AUDIO|>", "<|im_start|>", "<|im_end|>", "<|IMAGE|>", "<|audio_bos|>", "<|endoftext|>"):
        ids = text_tokenizer.encode(f"a {name} b")
        assert max(ids) < IDS.start, name
        assert Detokenizer(text_tokenizer).push(ids, final=True) == f"a {name} b"


def test_ids_are_the_whole_tokenizers(text_tokenizer: TextTokenizer) -> None:
    text = "user\nHello there, it's 2026: über 你好 🎵\n\n  two"
    assert text_tokenizer.encode(text) == tokenizer().encode(text).ids


def test_text_comes_in_whole_characters(text_tokenizer: TextTokenizer) -> None:
    text = "né 你好 🎵 done"
    ids, said = text_tokenizer.encode(text), Detokenizer(text_tokenizer)
    pieces = [said.push([id], final=False) for id in ids]
    assert "".join(pieces) + said.push([], final=True) == text
    assert "" in pieces and not any("\ufffd" in piece for piece in pieces)


def test_broken_and_special_ids(text_tokenizer: TextTokenizer) -> None:
    half = text_tokenizer.encode("好")[:-1]
    said = Detokenizer(text_tokenizer)
    assert said.push([IDS.audio, 319, *half], final=False) == ""
    assert said.push([], final=True) == "\ufffd"
    assert tokenizer().decode(half) == "\ufffd"


def test_tokenizers_that_are_refused(own: Path, thinker_config: ThinkerConfig) -> None:
    file = own / "tokenizer.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    other = {**raw, "added_tokens": [{**t, "id": t["id"] ^ 1} for t in raw["added_tokens"]]}
    for content, message in (
        ("{", "is damaged"),
        ("[]", "is damaged"),
        (json.dumps({**raw, "added_tokens": []}), "lacks"),
        (json.dumps(other), "not of one checkpoint"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(CheckpointError, match=message):
            TextTokenizer(file, thinker_config.ids)
    file.unlink()
    with pytest.raises(CheckpointError, match="tokenizer.json is missing"):
        TextTokenizer(file, thinker_config.ids)
