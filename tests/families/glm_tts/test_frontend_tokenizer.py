"""Our reader of the checkpoint's tokenizer, against tiktoken inside a slow tokenizer of transformers."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from legato.errors import CheckpointError
from legato.families.glm_tts.tokenizer import AddedToken, Tokenizer, read_tokenizer, special_ids

from .tiny_frontend import write_text_tokenizer

GOLDEN = json.loads((Path(__file__).parent / "data_frontend" / "reference_ids.json").read_text(encoding="utf-8"))
VOCABULARY = 5000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return read_tokenizer(folder)


@pytest.mark.parametrize(("text", "ids"), zip(GOLDEN["texts"], GOLDEN["ids"], strict=True))
def test_ids_equal_the_references(text: str, ids: list[int], tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(text) == ids


def test_ids_spell_the_text(tokenizer: Tokenizer) -> None:
    spelling = {id: piece for piece, id in tokenizer.ranks.items()}
    spelling |= {token.id: token.text.encode() for token in tokenizer.added.values()}
    for text in GOLDEN["texts"]:
        assert b"".join(spelling[id] for id in tokenizer.encode(text)) == text.encode()


def test_nothing_is_put_around_the_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []
    assert len(tokenizer.encode("<|user|>")) == 1


def test_lone_surrogates_do_not_break_the_encoder(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a?b")


def test_added_tokens_swallow_white_space_only_where_they_say_so() -> None:
    ranks = {bytes((byte,)): byte for byte in range(256)}
    tokens = Tokenizer(ranks, (AddedToken("<l>", 300, left=True), AddedToken("<r>", 301, right=True)))
    assert tokens.encode("a <l> b") == [97, 300, 32, 98]
    assert tokens.encode("a <r> b") == [97, 32, 301, 98]


# --- special ids ---


def test_special_ids_are_found_by_string(tokenizer: Tokenizer) -> None:
    ids = special_ids(tokenizer, VOCABULARY)
    assert ids.speech_tokens == 512
    assert ids.last_speech - ids.first_speech == 511
    assert tokenizer.encode("<|begin_of_audio|><|user|>") == [ids.begin_of_audio, ids.end_of_audio]
    assert tokenizer.encode("<|audio_7|>") == [ids.first_speech + 7]


def test_tokenizer_of_another_model_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(CheckpointError, match=r"go up to \d+, but the language model has 600 rows"):
        special_ids(tokenizer, 600)


@pytest.mark.parametrize(
    ("lost", "said"),
    [("<|user|>", r"<\|user\|> should be one token"), ("<|audio_3|>", "should be one token|span 512 ids; 511")],
)
def test_lost_special_token_is_named(lost: str, said: str, folder: Path, tmp_path: Path) -> None:
    entries = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    kept = {id: entry for id, entry in entries.items() if entry["content"] != lost}
    (tmp_path / "tokenizer.model").write_bytes((folder / "tokenizer.model").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": kept}))
    with pytest.raises(CheckpointError, match=said):
        special_ids(read_tokenizer(tmp_path), VOCABULARY)


# --- bad files ---


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not a rank file at all", "not a rank file"),
        ("QQ== 0\n!!! 1\n", "not a rank file"),
        ("QQ== 0\nQg== 1\n", "254 of 256 bytes have no rank"),
        ("", "256 of 256 bytes have no rank"),
    ],
)
def test_bad_rank_file_is_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_text(content)
    with pytest.raises(CheckpointError, match=said):
        read_tokenizer(tmp_path)


def test_missing_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.model is missing"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes((folder / "tokenizer.model").read_bytes())
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json is missing"):
        read_tokenizer(tmp_path)


def test_ids_used_twice_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes((folder / "tokenizer.model").read_bytes())
    entries = {"5": {"content": "<|user|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": entries}))
    with pytest.raises(CheckpointError, match="has the id 5, which is taken"):
        read_tokenizer(tmp_path)
    lines = [f"{base64.b64encode(bytes((byte,))).decode()} {min(byte, 254)}" for byte in range(256)]
    (tmp_path / "tokenizer.model").write_text("\n".join(lines))
    with pytest.raises(CheckpointError, match="ranks are used twice"):
        read_tokenizer(tmp_path)
