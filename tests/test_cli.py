from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner, Result

import legato
from legato.cli import app
from legato.cli.config_file import NOTES, SECTIONS
from legato.cli.serve import is_loopback, listen
from legato.config import Config, load_config
from legato.doctor import loopback_server
from legato.engine import SpeechEngine
from legato.fit import fit
from legato.protocols import SpeechModel
from legato.report import StreamReport

STATS = StreamReport(24000).as_dict().keys()
LONG_TEXT = "This sentence goes on for a while, and then there is more of it to come. " * 8


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, [*arguments], **options)


def start(*arguments: str, folder: Path, stdin: int | None = None) -> subprocess.Popen[bytes]:
    """`legato …` as a user runs it."""
    return subprocess.Popen(
        [sys.executable, "-m", "legato", *arguments],
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # several run at once
        # Where the tests run in the background, Ctrl-C is ignored, and so would it be in what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    limit_s = time.monotonic() + 60
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit_s, "waited in vain"
        time.sleep(0.01)


# --- real processes -------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[str, ...]] = {
    "file": ("say", "Good morning.", "-o", "a.wav", "--stats", "a.json", "--seed", "3"),
    "pipe": ("say", "Good morning.", "-o", "-", "--seed", "3"),
    "voice": ("say", "Good morning.", "--voice", "nobody"),
    "empty": ("say", " ?! "),
    "key": ("say", "Good morning.", "--config", "bad.toml"),
    "missing": ("say", "Good morning.", "--config", "nowhere.toml"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "bad.toml").write_text("[engine]\nthread = 2\n")
    return folder


@pytest.fixture(scope="module")
def done(folder: Path) -> dict[str, tuple[int, bytes, str]]:
    """Exit code, stdout and stderr of every case; they run beside each other."""
    processes = {name: start(*arguments, folder=folder) for name, arguments in CASES.items()}
    results = {}
    for name, process in processes.items():
        stdout, stderr = process.communicate(timeout=120)
        results[name] = (process.returncode, stdout, stderr.decode())
    return results


def test_say_writes_a_file_and_its_figures(done: dict[str, Any], folder: Path) -> None:
    code, stdout, stderr = done["file"]
    assert (code, stdout) == (0, b"")
    samples, rate = soundfile.read(folder / "a.wav", dtype="int16")
    stats = json.loads((folder / "a.json").read_text())
    assert stats.keys() == STATS
    assert sum(chunk["samples"] for chunk in stats["chunks"]) == len(samples) and stats["sample_rate_hz"] == rate
    assert (stats["model"], stats["voice"], stats["seed"]) == ("piccolo", "heart", 3)
    assert stats["lm"]["generated_tokens"] > 0 and stats["kv"]["pages_peak"] > 0
    lines = stderr.splitlines()
    assert lines[0] == "wrote a.wav" and lines[-1].startswith("first sound ") and "RTF" in lines[-1]


def test_say_to_stdout_is_sound_and_nothing_else(done: dict[str, Any], folder: Path) -> None:
    code, stdout, stderr = done["pipe"]
    assert code == 0 and stdout.startswith(b"RIFF\xff\xff\xff\xff")
    spoken, _ = soundfile.read(folder / "a.wav", dtype="int16")
    np.testing.assert_array_equal(np.frombuffer(stdout[44:], "<i2"), spoken)
    assert "first sound" in stderr


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("voice", "error: unknown voice 'nobody'; this model has: heart, michael, xiaoxiao, yunxi"),
        ("empty", "error: the text holds nothing that can be spoken"),
        ("key", "error: bad.toml: unknown key engine.thread; did you mean threads?"),
        ("missing", "error: there is no config file at nowhere.toml"),
    ],
)
def test_errors_are_one_line(done: dict[str, Any], folder: Path, case: str, error: str) -> None:
    assert done[case] == (1, b"", f"{error}\n")
    assert not (folder / "speech.wav").exists()


def test_text_on_stdin_is_spoken_before_it_ends(tmp_path: Path) -> None:
    speaking = start("say", "-", "-o", "-", "--format", "pcm", folder=tmp_path, stdin=subprocess.PIPE)
    assert speaking.stdin and speaking.stdout
    speaking.stdin.write("The first sentence is über here. And the se".encode())
    speaking.stdin.flush()
    first = speaking.stdout.read(2000)
    assert len(first) == 2000, "sound while stdin is open"
    speaking.stdin.write(b"cond.")
    rest, stderr = speaking.communicate(timeout=60)
    assert speaking.returncode == 0, stderr
    assert len(first + rest) / 48000 > 2


def test_interrupt_keeps_what_was_spoken(tmp_path: Path) -> None:
    speaking = start("say", "-", "-o", "a.wav", "--stats", "a.json", folder=tmp_path, stdin=subprocess.PIPE)
    assert speaking.stdin
    speaking.stdin.write(LONG_TEXT.encode())
    speaking.stdin.flush()  # and left open, so that a thread waits for more of it
    wait_for(lambda: (tmp_path / "a.wav").exists() and (tmp_path / "a.wav").stat().st_size > 44, speaking)
    speaking.send_signal(signal.SIGINT)
    assert speaking.wait(timeout=60) == 130
    stdout, stderr = speaking.communicate()
    samples, _ = soundfile.read(tmp_path / "a.wav")
    assert len(samples) and stdout == b""
    assert stderr.decode() == f"cancelled after {len(samples) / 24000:.2f} s of audio, kept in a.wav\n"
    stats = json.loads((tmp_path / "a.json").read_text())
    assert sum(chunk["samples"] for chunk in stats["chunks"]) == len(samples)


def test_serve_is_ready_once_warm_and_stops_in_order(tmp_path: Path) -> None:
    serving = start("serve", "--port", "0", folder=tmp_path)
    assert serving.stderr
    line = serving.stderr.readline().decode()
    assert "piccolo is ready: http://127.0.0.1:" in line, line + serving.communicate()[1].decode()
    url = line.split()[3]
    with urllib.request.urlopen(f"{url}/ready", timeout=10) as answer:
        assert answer.status == 200
    serving.send_signal(signal.SIGTERM)
    stdout, stderr = serving.communicate(timeout=60)
    assert (serving.returncode, stdout, stderr) == (0, b"", b"stopped\n")


# --- say, in this process -------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def loaded(piccolo: SpeechModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded voice, without loading it anew for every command."""
    monkeypatch.setattr(legato, "load", lambda name, settings: SpeechEngine(piccolo, settings.engine))
    monkeypatch.setattr("legato.cli.config.load_model", lambda name, options: piccolo)
    monkeypatch.setattr("legato.cli.voices.load_model", lambda name, options: piccolo)


@pytest.mark.usefixtures("loaded")
def test_say_by_default_writes_a_wav_and_says_so(here: Path) -> None:
    result = run("say", "Hello.")
    assert result.exit_code == 0 and result.stderr.startswith("wrote speech.wav (")
    assert soundfile.info(here / "speech.wav").frames > 0


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(("name", "stream"), [("a.flac", "--stream"), ("b.wav", "--no-stream"), ("c.mp3", "--stream")])
def test_extension_chooses_the_format(here: Path, name: str, stream: str) -> None:
    assert run("say", "Hello.", "-o", name, stream).exit_code == 0
    info = soundfile.info(here / name)
    assert info.format == {".flac": "FLAC", ".wav": "WAV", ".mp3": "MP3"}[Path(name).suffix] and info.frames > 0


@pytest.mark.usefixtures("loaded")
def test_speed_is_heard_in_the_file_and_in_the_figures(here: Path) -> None:
    for name, speed in (("a", "1"), ("b", "2")):
        assert (
            run("say", "Good morning.", "-o", f"{name}.wav", "--speed", speed, "--stats", f"{name}.json").exit_code == 0
        )
    plain, fast = (soundfile.info(here / f"{name}.wav").frames for name in "ab")
    assert plain / fast == pytest.approx(2, rel=0.1)
    assert json.loads((here / "b.json").read_text())["audio_s"] == pytest.approx(fast / 24000)


@pytest.mark.usefixtures("loaded")
def test_old_file_survives_a_refusal(here: Path) -> None:
    (here / "speech.wav").write_bytes(b"precious")
    assert run("say", "Hello.", "--voice", "nobody").exit_code == 1
    assert (here / "speech.wav").read_bytes() == b"precious"


@pytest.mark.usefixtures("loaded")
def test_say_speaks_through_the_configured_endpoint(here: Path, piccolo: SpeechModel) -> None:
    with SpeechEngine(piccolo) as speaking, loopback_server(speaking) as url:
        (here / "c.toml").write_text(f'[api]\nbase_url = "{url}"\n')
        remote = run("say", "Hello.", "--remote", "--config", "c.toml", "-o", "r.wav", "--stats", "r.json")
        wrong = run("say", "Hello.", "--remote", "--config", "c.toml", "--voice", "nobody")
    assert remote.exit_code == 0, remote.stderr
    assert run("say", "Hello.", "-o", "l.wav").exit_code == 0
    assert (here / "r.wav").read_bytes() == (here / "l.wav").read_bytes()
    assert json.loads((here / "r.json").read_text()).keys() == STATS
    assert wrong.exit_code == 1 and "unknown voice 'nobody'" in wrong.stderr


class FakeDevice(ModuleType):
    """The sounddevice package, with a loudspeaker that remembers."""

    PortAudioError = type("PortAudioError", (Exception,), {})

    def __init__(self, broken: str = "") -> None:
        super().__init__("sounddevice")
        self.broken, self.heard, self.calls = broken, io.BytesIO(), list[str]()

    def query_devices(self, kind: str) -> dict[str, str]:
        if self.broken == "none":
            raise self.PortAudioError("no device")
        return {"name": "a loudspeaker"}

    def OutputStream(self, samplerate: int, channels: int, dtype: str) -> Any:
        assert (samplerate, channels, dtype) == (24000, 1, "float32")
        names = ("start", "stop", "close")
        calls = {name: lambda *_, name=name, **__: self.calls.append(name) for name in names}
        return SimpleNamespace(write=self.write, **calls)

    def write(self, samples: np.ndarray) -> None:
        if self.broken == "later":
            raise self.PortAudioError("unplugged")
        self.heard.write(samples.tobytes())


@pytest.mark.usefixtures("loaded")
def test_play_plays_all_of_it(monkeypatch: pytest.MonkeyPatch, here: Path, piccolo: SpeechModel) -> None:
    device = FakeDevice()
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    assert run("say", "Good morning.", "--play").exit_code == 0
    with SpeechEngine(piccolo) as engine:
        expected = engine.generate("Good morning.").samples
    np.testing.assert_array_equal(np.frombuffer(device.heard.getvalue(), np.float32), expected)
    assert device.calls == ["start", "stop", "close"] and not list(here.iterdir())


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("broken", "words"), [("none", "no sound output device was found"), ("later", "the sound device failed: unplugged")]
)
def test_play_without_a_device(monkeypatch: pytest.MonkeyPatch, here: Path, broken: str, words: str) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", FakeDevice(broken))
    result = run("say", "Good morning.", "--play", "-o", "a.wav")
    assert result.exit_code == 1 and words in result.stderr and result.stderr.count("\n") == 1


def test_play_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    result = run("say", "Hello.", "--play")
    assert result.exit_code == 1 and "pip install 'legato-speech[play]'" in result.stderr


# --- refused at the door --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["say"], 2, "Missing argument"),
        (["say", "Hello.", "--speeed", "2"], 2, "No such option"),
        (["say", "Hello.", "--seed", "-1"], 2, "--seed"),
        (["say", "Hello.", "--speed", "9"], 1, "error: speed 9 is outside 0.25 to 4"),
        (["say", "Hello.", "-o", "a.xyz"], 1, "error: unknown audio format '.xyz'"),
        (["say", "Hello.", "-o", "-", "--format", "midi"], 1, "error: unknown audio format 'midi'"),
        (["say", "Hello.", "-o", "no/such/folder/a.wav"], 1, "error: cannot write no/such/folder/a.wav"),
        (["say", "Hello.", "--model", "nope"], 1, "error: unknown model 'nope'; known: piccolo"),
        (["say", "Hello.", "--remote"], 1, "error: --remote needs a config file"),
        (["serve", "--host", "0.0.0.0"], 1, "error: listening on 0.0.0.0 lets other machines speak without a key"),
        (["serve", "--api-key-env", "NO_SUCH_KEY"], 1, "names the environment variable NO_SUCH_KEY, which is not set"),
        (["voices", "--model", "nope"], 1, "error: unknown model 'nope'"),
        (["config", "check", "nowhere.toml"], 1, "error: there is no config file at nowhere.toml"),
        (["sing"], 2, "No such command"),
    ],
)
@pytest.mark.usefixtures("here")
def test_refusals(arguments: list[str], code: int, words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code and words in result.stderr and "Traceback" not in result.stderr
    assert not result.stdout and not list(Path().iterdir())


def test_port_that_is_taken_is_named() -> None:
    with listen(Config().server.model_copy(update={"port": 0})) as taken:
        result = run("serve", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1 and "Address already in use" in result.stderr


@pytest.mark.parametrize(
    ("host", "safe"), [("127.0.0.1", True), ("127.3.2.1", True), ("::1", True), ("localhost", True), ("::", False)]
)
def test_only_this_machine_needs_no_key(host: str, safe: bool) -> None:
    assert is_loopback(host) == safe


# --- config, voices, version ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("loaded")
def test_config_init_writes_what_changes_nothing(here: Path, piccolo: SpeechModel) -> None:
    assert run("config", "init").exit_code == 0
    written, plain = fit(load_config(here / "config.toml"), piccolo), fit(Config(), piccolo)
    assert written.engine.model_copy(update={"ode_steps": None}) == plain.engine
    assert written.engine.ode_steps == piccolo.flow.facts.ode_steps and not written.warnings
    check = run("config", "check", "config.toml")
    assert (check.exit_code, check.stderr) == (0, "config.toml is good for piccolo\n")


@pytest.mark.usefixtures("loaded")
def test_config_init_shows_every_key_in_a_form_that_can_be_used(here: Path) -> None:
    text = run("config", "init", "-o", "-").stdout
    for section, keys in SECTIONS.items():
        assert NOTES[section].keys() == keys.model_fields.keys(), section
        assert all(f"\n{key} = " in text or f"\n# {key} = " in text for key in keys.model_fields)
    api = text[text.index("# [api]") : text.index("# How prompts")]
    (here / "api.toml").write_text(re.sub("^# ", "", api, flags=re.MULTILINE))
    settings = load_config(here / "api.toml").api
    assert settings is not None and settings.base_url == "https://host/api"


@pytest.mark.usefixtures("loaded")
def test_config_init_replaces_nothing_unless_told(here: Path) -> None:
    (here / "config.toml").write_text("# mine\n")
    assert run("config", "init").exit_code == 1 and (here / "config.toml").read_text() == "# mine\n"
    assert run("config", "init", "--force").exit_code == 0 and load_config(here / "config.toml") != Config()


@pytest.mark.usefixtures("loaded")
def test_config_check_holds_the_file_against_the_model(here: Path) -> None:
    (here / "c.toml").write_text('[codec_streaming]\nvocoder = "bigvgan"\n')
    result = run("config", "check", "c.toml")
    assert result.exit_code == 1 and "piccolo has 'early_vocos'" in result.stderr
    (here / "c.toml").write_text('[codec_streaming]\nlookahead_chunks = 2\n[server]\napi_key_env = "NO_SUCH_KEY"\n')
    result = run("config", "check", "c.toml")
    assert result.exit_code == 0 and result.stderr.count("warning: ") == 2
    assert "look-ahead" in result.stderr and "NO_SUCH_KEY" in result.stderr


@pytest.mark.usefixtures("loaded")
def test_voices() -> None:
    assert "heart (default)" in run("voices").stdout
    listed = json.loads(run("voices", "--json").stdout)
    assert listed["model"] == "piccolo"
    assert [voice["name"] for voice in listed["voices"]] == ["heart", "michael", "xiaoxiao", "yunxi"]


def test_version_and_help() -> None:
    assert run("--version").stdout == f"legato {legato.__version__}\n"
    for command in ("say", "serve", "voices", "bench", "doctor"):
        assert f"  legato {command}" in run(command, "--help").stdout, "an example"
