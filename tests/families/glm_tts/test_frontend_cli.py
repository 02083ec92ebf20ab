"""`legato glmtts` from its list to its wavs, on a whole tiny checkpoint; and which lines of a list are bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import soundfile
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from legato.cli import app
from legato.cli.glmtts import chunk_warnings
from legato.cli.glmtts_lines import BadLine, Line, find_list, read_lines
from legato.config import EngineConfig
from legato.engine import SpeechEngine
from legato.errors import RequestError
from legato.families import glm_tts
from legato.protocols import LoadOptions

from .tiny import Sizes, build
from .tiny_frontend import speechlike, write_speaker_net, write_speech_tokenizer, write_text_tokenizer

CODES = 512
END_OF_AUDIO, END_GAIN = "<|user|>", 3.0
GOOD = {"prompt_text": "你好，世界。", "prompt_speech": "examples/prompt/anna.wav", "syn_text": "今天天气很好"}


def entry(uttid: Any, **changes: Any) -> str:
    return json.dumps({"uttid": uttid} | GOOD | changes, ensure_ascii=False)


# --- lists ---


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return prompt_folder(tmp_path)


def prompt_folder(tmp_path: Path) -> Path:
    """A folder like the release's: examples/ with a prompt."""
    folder = tmp_path / "examples"
    (folder / "prompt").mkdir(parents=True)
    soundfile.write(folder / "prompt" / "anna.wav", speechlike(24000, 3.2)[0], 24000)
    return folder


def lines(folder: Path, content: bytes | str) -> list[Line | BadLine]:
    (folder / "list.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_lines(folder / "list.jsonl"))


def test_mark_blank_lines_and_windows_line_ends_do_not_matter(data: Path) -> None:
    content = b"\xef\xbb\xbf" + f"{entry('a')}\r\n\r\n   \r\n{entry(7)}".encode()
    found = lines(data, content)
    assert [(line.number, line.uttid) for line in found if isinstance(line, Line)] == [(1, "a"), (4, "7")]
    assert len(found) == 2
    assert isinstance(found[0], Line)
    assert found[0].prompt_speech == (data / "prompt" / "anna.wav").resolve()


def test_line_separators_within_a_text_are_not_line_ends(data: Path) -> None:
    found = lines(data, entry("a", syn_text="one\u2028two\x0bthree") + "\n" + entry("b"))
    assert [type(line) for line in found] == [Line, Line]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        (entry("a"), "stands in line 1 already"),
        (entry("../x"), "uttid '../x' cannot name a file"),
        (entry(""), "uttid '' cannot name a file"),
        (entry(".hidden"), "cannot name a file"),
        (entry(True), "uttid True"),
        (entry(None), "uttid None"),
        (entry("b", syn_text=""), "syn_text is missing or empty"),
        (entry("b", syn_text="  "), "syn_text is missing or empty"),
        (entry("b", prompt_text=None), "prompt_text is missing or empty"),
        (entry("b", syn_text=3), "syn_text is 3, not a text"),
        (entry("b", prompt_speech="/etc/passwd"), "leaves the data folder"),
        (entry("b", prompt_speech="../../secret.wav"), "leaves the data folder"),
        (entry("b", prompt_speech="prompt/../../x.wav"), "leaves the data folder"),
        (entry("b", prompt_speech="a\x00b"), "null"),
    ],
)
def test_bad_line_is_named_and_the_others_stay(bad: str, said: str, data: Path) -> None:
    found = lines(data, f"{entry('a')}\n{bad}\n{entry('c')}\n")
    assert [type(line) for line in found] == [Line, BadLine, Line]
    assert isinstance(found[1], BadLine)
    assert found[1].number == 2
    assert said in found[1].problem


def test_line_that_is_not_utf8_is_named(data: Path) -> None:
    found = lines(data, entry("a").encode() + b'\n{"uttid": "\xff"}\n')
    assert isinstance(found[1], BadLine)
    assert "not UTF-8" in found[1].problem


def test_link_out_of_the_data_folder_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.wav").write_bytes(b"")
    (data / "link.wav").symlink_to(tmp_path / "secret.wav")
    (found,) = lines(data, entry("a", prompt_speech="link.wav"))
    assert isinstance(found, BadLine)
    assert "leaves the data folder" in found.problem


def test_lists_are_found_by_name_or_path(data: Path) -> None:
    (data / "mine.jsonl").write_text("")
    assert find_list("mine", data) == find_list(str(data / "mine.jsonl"), Path("elsewhere")) == data / "mine.jsonl"
    with pytest.raises(RequestError, match=r"no list at .*other\.jsonl"):
        find_list("other", data)
    with pytest.raises(RequestError, match="give a name"):
        find_list("../mine", data)


@pytest.mark.parametrize(
    ("chunk", "streaming", "said"),
    [
        (50, True, None),
        (30, True, None),
        (60, True, None),
        (None, False, None),
        (10, True, "below 30: every chunk is computed with 60 tokens and the voice's recording around it"),
        (100, True, "above 60: a chunk waits for 4.0 s"),
        (50, False, "no effect without --streaming"),
    ],
)
def test_unusual_chunk_sizes_say_what_they_cost(chunk: int | None, streaming: bool, said: str | None) -> None:
    warnings = chunk_warnings(chunk, streaming)
    assert bool(warnings) == (said is not None)
    assert said is None or said in warnings[0]


# --- a whole run ---


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("whole") / "ckpt")


def build_checkpoint(folder: Path) -> Path:
    """A released-layout tree with everything that cloning and speaking need."""
    build(folder, Sizes(vocabulary=2048, flow_codes=CODES + 8))
    tokenizer = write_text_tokenizer(folder / "vq32k-phoneme-tokenizer", CODES)
    write_speech_tokenizer(folder / "speech_tokenizer", quantize_vocab_size=CODES)
    write_speaker_net(folder / "frontend" / "campplus.onnx")
    added = json.loads((tokenizer / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    end = next(int(id) for id, token in added.items() if token["content"] == END_OF_AUDIO)
    tensors = load_file(folder / "llm" / "model.safetensors")
    tensors["model.embed_tokens.weight"][end] *= END_GAIN
    save_file(tensors, folder / "llm" / "model.safetensors", metadata={"format": "pt"})
    return folder


def run(data: Path, checkpoint: Path, *more: str) -> tuple[int, str]:
    options = ["--data", "list", "--exp_name", "demo", "--model", str(checkpoint), "--examples", str(data)]
    result = CliRunner().invoke(app, ["glmtts", *options, "--outputs", str(data.parent / "outputs"), *more])
    return result.exit_code, result.output


def spoken(data: Path) -> dict[str, bytes]:
    folder = data.parent / "outputs" / "pretraindemo" / "list"
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.wav"))}


@pytest.fixture(autouse=True)
def wetext() -> None:
    pytest.importorskip("wetext")


def test_list_is_spoken_bad_lines_named_and_the_rest_resumed(data: Path, checkpoint: Path) -> None:
    (data / "prompt" / "text.wav").write_text("no sound")
    soundfile.write(data / "prompt" / "short.wav", speechlike(24000, 0.3)[0], 24000)
    content = "\n".join(
        (
            entry("0"),
            entry("1", prompt_speech="prompt/text.wav"),
            entry("2", prompt_speech="prompt/short.wav"),
            entry("3", prompt_speech="prompt/none.wav"),
            entry("4", syn_text="……"),
            entry("5", syn_text="公园"),
        )
    )
    lines(data, content)
    code, said = run(data, checkpoint)
    assert code == 1
    assert "line 2, 1:" in said and "text.wav cannot be read" in said
    assert "line 3, 2:" in said and "0.30 s long" in said
    assert "line 4, 3: there is no sound file" in said
    assert "line 5, 4: syn_text: the text holds nothing" in said
    assert "2 spoken, 0 finished before, 4 failed" in said
    first = spoken(data)
    assert list(first) == ["0.wav", "5.wav"]
    sound, rate = soundfile.read(data.parent / "outputs" / "pretraindemo" / "list" / "0.wav")
    assert rate == 24000
    assert len(sound) > 4800

    lines(data, f"{entry('0')}\n{entry('5', syn_text='世界')}\n")
    code, said = run(data, checkpoint)
    assert code == 0
    assert "1 spoken, 1 finished before, 0 failed" in said
    second = spoken(data)
    assert second["0.wav"] == first["0.wav"]
    assert second["5.wav"] != first["5.wav"]


def test_streaming_follows_the_seed(data: Path, checkpoint: Path) -> None:
    lines(data, entry("0", syn_text="今天天气很好，我们去公园。"))
    results = []
    for seed in ("1", "1", "2"):
        code, said = run(data, checkpoint, "--streaming", "--chunk_size", "10", "--seed", seed)
        assert code == 0, said
        assert "--chunk_size 10 is below 30" in said
        results.append(spoken(data)["0.wav"])
        (data.parent / "outputs" / "pretraindemo" / "list" / "0.wav").unlink()
    assert results[0] == results[1] != results[2]


def test_lines_spoken_together_are_the_same(data: Path, checkpoint: Path) -> None:
    lines(data, "\n".join(entry(i, syn_text=text) for i, text in enumerate(("今天天气很好", "公园", "你好，世界。"))))
    assert run(data, checkpoint, "--jobs", "1")[0] == 0
    alone = spoken(data)
    for path in (data.parent / "outputs" / "pretraindemo" / "list").iterdir():
        path.unlink()
    code, said = run(data, checkpoint, "--jobs", "3")
    assert code == 0, said
    assert len(alone) == 3
    assert spoken(data) == alone


def test_long_text_is_cut_and_continued_from_its_past(data: Path, checkpoint: Path) -> None:
    text = "今天天气很好，我们去公园。" * 3
    lines(data, entry("0", syn_text=text))
    assert run(data, checkpoint)[0] == 0
    continued = spoken(data)["0.wav"]
    record = (data.parent / "outputs" / "pretraindemo" / "list" / "text_compare.jsonl").read_text()
    assert json.loads(record)["syn_text_tn"] == ["今天天气很好，我们去公园。" * 2 + "今天天气很好。", "我们去公园。"]
    assert run(data, checkpoint, "--no_use_cache")[0] == 0
    assert spoken(data)["0.wav"] != continued


def test_phonemes_and_the_other_rate(data: Path, checkpoint: Path) -> None:
    pytest.importorskip("jieba")
    lines(data, entry("0", syn_text="我去{银行|yin2 xian2}"))
    code, said = run(data, checkpoint, "--use_phoneme", "--sample_rate", "32000")
    assert code == 1 and "the model has no phoneme IN2, of {银|yin2}" in said
    lines(data, entry("0", syn_text="弦乐"))
    code, said = run(data, checkpoint, "--use_phoneme", "--sample_rate", "32000", "--no_use_cache")
    assert code == 0, said
    record = json.loads((data.parent / "outputs" / "pretraindemo" / "list" / "text_compare.jsonl").read_text())
    assert "<|" in record["syn_text_tn"][0]
    _, rate = soundfile.read(data.parent / "outputs" / "pretraindemo" / "list" / "0.wav")
    assert rate == 32000


def test_missing_speaker_net_stops_with_its_place(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    partial.mkdir()
    for part in checkpoint.iterdir():
        if part.name != "frontend":
            (partial / part.name).symlink_to(part)
    lines(data, entry("0"))
    code, said = run(data, partial)
    assert code == 1
    assert "campplus.onnx is missing" in said
    assert spoken(data) == {}


def test_wrong_places_are_named(data: Path, checkpoint: Path) -> None:
    lines(data, entry("0"))
    assert "there is no checkpoint folder at" in run(data, data / "nowhere")[1]
    assert "--exp_name '../x'" in run(data, checkpoint, "--exp_name", "../x")[1]
    assert "24000 or 32000" in run(data, checkpoint, "--sample_rate", "16000")[1]


# --- kept voices ---


def voices(checkpoint: Path, folder: Path, *arguments: str) -> tuple[int, str]:
    where = ["--model", str(checkpoint), "--voices-dir", str(folder)]
    result = CliRunner().invoke(app, ["voices", *arguments, *where])
    return result.exit_code, result.output


def test_voice_is_added_spoken_with_and_removed(data: Path, checkpoint: Path, tmp_path: Path) -> None:
    audio, kept = str(data / "prompt" / "anna.wav"), tmp_path / "voices"
    code, said = voices(checkpoint, kept, "add", "anna", audio, "--text", "你好，世界。")
    assert code == 0, said
    assert "anna.safetensors: cloned from 3.2 s of audio" in said
    again, said = voices(checkpoint, kept, "add", "anna", audio, "--text", "你好")
    assert again == 1
    assert "has a voice 'anna' already; --force replaces it" in said
    loaded = glm_tts.load(checkpoint, LoadOptions(voices_dir=kept))
    assert list(loaded.voices) == ["anna"]
    with SpeechEngine(loaded, EngineConfig()) as engine:
        assert engine.generate("今天", voice="anna", normalize=False).samples.any()
    assert voices(checkpoint, kept, "remove", "anna")[0] == 0
    assert "unknown voice 'anna'" in voices(checkpoint, kept, "remove", "anna")[1]


@pytest.mark.parametrize(
    ("name", "file", "text", "said"),
    [
        ("../anna", "anna.wav", "你好", "'../anna' cannot name a voice"),
        ("anna", "none.wav", "你好", "there is no sound file"),
        ("anna", "anna.wav", " ", "word for word"),
        ("anna", "anna.wav", "……", "holds nothing that can be spoken"),
        ("anna", "anna.wav", "Доброе утро", "it cannot read 'Д'"),
    ],
)
def test_bad_voices_are_refused(
    name: str, file: str, text: str, said: str, data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    code, output = voices(checkpoint, tmp_path, "add", name, str(data / "prompt" / file), "--text", text)
    assert code == 1
    assert said in output
    assert not list(tmp_path.glob("*.safetensors"))


def test_damaged_voice_can_be_removed_and_the_other_rate_is_listed(
    data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"damaged")
    audio = str(data / "prompt" / "anna.wav")
    code, said = voices(checkpoint, tmp_path, "add", "r32", audio, "--text", "你好", "--sample-rate", "32000")
    assert code == 0 and "r32: it was made for the vocoder of 32000 Hz" in said
    where = ["--model", str(checkpoint), "--voices-dir", str(tmp_path)]
    listed = json.loads(CliRunner().invoke(app, ["voices", "--json", *where]).stdout)["voices"]
    assert [(voice["name"], voice["sample_rate_hz"]) for voice in listed] == [("r32", 32000)]
    assert "32000 Hz" in CliRunner().invoke(app, ["voices", *where]).stdout
    assert voices(checkpoint, tmp_path, "remove", "bad")[0] == 0
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["r32.safetensors"]


def test_voices_are_removed_from_a_named_model_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "ckpt" / "voices" / "anna.safetensors"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"a voice")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["voices", "remove", "anna"]).exit_code == 1
    assert kept.is_file()


def test_voices_are_still_listed() -> None:
    result = CliRunner().invoke(app, ["voices", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.output)["voices"][0]["name"] == "heart"
