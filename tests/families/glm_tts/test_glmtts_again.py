"""`legato glmtts` run again, broken off, on damaged files and with wrong flags: what is kept, named and made anew."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import soundfile
from typer.testing import CliRunner

from legato.cli import app
from legato.cli.glmtts_lines import BadLine, read_records

from .test_frontend_cli import build_checkpoint, entry, lines, prompt_folder, run, spoken
from .tiny_frontend import speechlike

pytest.importorskip("wetext")

LONG_TEXT = "今天天气很好，我们去公园。" * 400


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_checkpoint(tmp_path_factory.mktemp("again") / "ckpt")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return prompt_folder(tmp_path)


def records(data: Path) -> Path:
    return data.parent / "outputs" / "pretraindemo" / "list" / "text_compare.jsonl"


def speak(data: Path, tree: Path, *more: str) -> str:
    """How many lines were spoken and how many were finished before, of a run in which none failed."""
    code, said = run(data, tree, *more)
    assert code == 0, said
    return said.strip().splitlines()[-1].split(": ")[-1]


# --- what the sound depends on ---

NEW, SAME = "1 spoken, 0 finished before, 0 failed", "0 spoken, 1 finished before, 0 failed"


def test_another_recording_of_the_same_name_is_heard(here: Path, tree: Path) -> None:
    lines(here, entry("0", syn_text="公园"))
    assert [speak(here, tree), speak(here, tree)] == [NEW, SAME]
    first = spoken(here)["0.wav"]
    soundfile.write(here / "prompt" / "anna.wav", speechlike(24000, 3.2, seed=5)[0], 24000)
    assert [speak(here, tree), speak(here, tree)] == [NEW, SAME]
    assert spoken(here)["0.wav"] != first
    (here / "other").mkdir()
    soundfile.write(here / "other" / "anna.wav", speechlike(24000, 3.2, seed=6)[0], 24000)
    lines(here, entry("0", syn_text="公园", prompt_speech="other/anna.wav"))
    assert speak(here, tree) == NEW


def test_another_way_of_streaming_is_spoken_again(here: Path, tree: Path) -> None:
    lines(here, entry("0", syn_text="公园"))
    assert speak(here, tree) == NEW
    assert [speak(here, tree, "--streaming"), speak(here, tree, "--streaming", "--chunk_size", "50")] == [NEW, SAME]
    assert speak(here, tree, "--streaming", "--chunk_size", "30") == NEW


def test_another_checkpoint_is_spoken_again(here: Path, tree: Path, tmp_path: Path) -> None:
    lines(here, entry("0", syn_text="公园"))
    assert speak(here, tree) == NEW
    trained = Path(shutil.copytree(tree, tmp_path / "trained"))
    assert [speak(here, trained), speak(here, trained)] == [NEW, SAME]
    weights = trained / "llm" / "model.safetensors"
    os.utime(weights, (1, 1))  # what training further in place leaves behind: the same size
    assert [speak(here, trained), speak(here, trained)] == [NEW, SAME]
    config = trained / "flow" / "config.yaml"
    age = config.stat()
    content = config.read_text()
    config.write_text(content + "# \n")
    os.utime(config, ns=(age.st_atime_ns, age.st_mtime_ns))
    assert speak(here, trained) == NEW
    (trained / "voices").mkdir()  # kept voices are not heard here
    (trained / "voices" / "note.txt").write_text("none of this command's")
    assert speak(here, trained) == SAME


# --- bad lines ---


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            '{"uttid": "b", "syn_text": "公\\ud800园", "prompt_text": "好", "prompt_speech": "prompt/anna.wav"}',
            "\\ud800",
        ),
        ('{"uttid": "b", "syn_text": "公园", "prompt_text": "\\udfff", "prompt_speech": "prompt/anna.wav"}', "\\udfff"),
        (entry("b", prompt_speech="x" * 300), "prompt_speech 'xxx"),
        (entry("b", prompt_speech="prompt/loop/a.wav"), "prompt_speech 'prompt/loop"),
        ("[" * 100_000, "too deep to read"),
        ('{"uttid": ' + "[" * 100_000, "too deep to read"),
    ],
    ids=["half a character", "half in the prompt", "long name", "circle of links", "deep", "deep in a field"],
)
def test_line_that_used_to_break_the_run_is_named(bad: str, said: str, here: Path) -> None:
    (here / "prompt" / "loop").symlink_to(here / "prompt" / "loop")
    found = lines(here, f"{entry('a')}\n{bad}\n{entry('c')}\n")
    assert [isinstance(line, BadLine) for line in found] == [False, True, False]
    assert isinstance(found[1], BadLine)
    assert found[1].number == 2
    assert said in found[1].problem


def test_the_lines_around_bad_ones_are_spoken(here: Path, tree: Path) -> None:
    half = '{"uttid": "half", "syn_text": "公\\ud800园", "prompt_text": "好", "prompt_speech": "prompt/anna.wav"}'
    long = entry("long", prompt_speech="x" * 300)
    lines(here, "\n".join((entry("0", syn_text="公园"), half, long, "[" * 100_000, entry("1", syn_text="公园"))))
    code, said = run(here, tree)
    assert code == 1
    assert "2 spoken, 0 finished before, 3 failed" in said
    assert [f"line {number}: " in said for number in (1, 2, 3, 4, 5)] == [False, True, True, True, False]
    assert list(spoken(here)) == ["0.wav", "1.wav"]
    assert list(read_records(records(here).parent)) == ["0", "1"]


# --- damaged records ---


def test_damage_costs_the_damaged_records_only(here: Path, tree: Path) -> None:
    texts = {"0": "公园", "1": "天气\u2028很好", "2": "世界"}
    lines(here, "\n".join(entry(uttid, syn_text=text) for uttid, text in texts.items()))
    assert speak(here, tree) == "3 spoken, 0 finished before, 0 failed"
    whole = records(here).read_bytes().split(b"\n")
    within_a_character = whole[0].index("公".encode()) + 1
    records(here).write_bytes(whole[0][:within_a_character] + b"\n[1]\n" + b"[" * 100_000 + b"\n" + whole[1])
    code, said = run(here, tree)
    assert code == 0, said
    assert "damaged records taken out: 3; their lines are spoken again" in said
    assert "2 spoken, 1 finished before, 0 failed" in said
    read = [json.loads(raw) for raw in records(here).read_text(encoding="utf-8").strip("\n").split("\n")]
    assert [record["uttid"] for record in read] == ["1", "0", "2"]
    assert speak(here, tree) == "0 spoken, 3 finished before, 0 failed"


def test_record_cut_at_the_end_of_the_file_does_not_swallow_the_next(here: Path, tree: Path) -> None:
    lines(here, entry("0", syn_text="公园"))
    assert speak(here, tree) == NEW
    content = records(here).read_bytes()
    for cut in (content.index("公".encode()) + 1, len(content) - 3):
        records(here).write_bytes(content[:cut])
        assert [speak(here, tree), speak(here, tree)] == [NEW, SAME]
        assert records(here).read_bytes() == content
    records(here).write_bytes(content[:-1])
    assert speak(here, tree) == SAME
    assert records(here).read_bytes() == content


# --- Ctrl-C ---


@pytest.mark.parametrize("how", [("--streaming",), ()])
def test_interrupt_ends_the_line_and_keeps_what_is_finished(how: tuple[str, ...], here: Path, tree: Path) -> None:
    lines(here, "\n".join((entry("0", syn_text="公园"), entry("1", syn_text=LONG_TEXT), entry("2"))))
    folder, pressed_s = records(here).parent, []

    def press() -> None:
        while not (records(here).is_file() and (not how or (folder / "1.part").is_file())):
            time.sleep(0.01)
        time.sleep(0.3)
        pressed_s.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which is off where tests run in the background
    try:
        threading.Thread(target=press, daemon=True).start()
        code, said = run(here, tree, *how)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - pressed_s[0] < 3  # a second, and room for a busy machine; the line itself takes longer
    assert code == 130, said
    assert "cancelled; finished lines are kept" in said
    assert sorted(path.name for path in folder.iterdir()) == ["0.wav", "text_compare.jsonl"]
    assert list(read_records(folder)) == ["0"]


# --- flags ---


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--chunk_size", "0", "--streaming"), "--chunk_size 0 is not a multiple of 5"),
        (("--chunk_size", "-5", "--streaming"), "--chunk_size -5 is not a multiple of 5"),
        (("--chunk_size", "52", "--streaming"), "--chunk_size 52 is not a multiple of 5"),
        (("--chunk_size", "7"), "write 5 or more, such as --chunk_size 50"),
        (("--sample_rate", "16000"), "--sample_rate 16000: this model speaks at 24000 or 32000"),
    ],
)
def test_wrong_flags_are_named_with_what_to_write(flags: tuple[str, ...], said: str, here: Path) -> None:
    lines(here, entry("0"))
    code, output = run(here, here / "no checkpoint is looked for", *flags)
    assert code == 1
    assert output.startswith("error: ") and output.count("\n") == 1
    assert said in output


def test_the_help_says_which_chunk_sizes_there_are() -> None:
    shown = CliRunner().invoke(app, ["glmtts", "--help"], env={"COLUMNS": "200"}).output
    assert "a multiple of 5" in " ".join(shown.split())
