"""`legato chat` with the small model that holds conversations: one question, a conversation, live sound, Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from chatting import RATE_HZ
from chatting import model as chatting_model
from serving.conversing import SMALL, Hearing, own, small_engine
from serving.fakes import wait_for
from typer.testing import CliRunner, Result

import legato
from legato.cli import app
from legato.cli.live_sound import wav_stretches
from legato.engine import SpeechEngine
from legato.errors import RequestError
from legato.report import StreamReport
from legato.serving.encoders import to_int16, wav_header

TESTS = Path(__file__).parent


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def engine() -> Iterator[SpeechEngine]:
    """To compare with."""
    with small_engine() as engine:
        yield engine


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[SpeechEngine]:
    """Engines that the commands were given, each with the small model."""
    engines: list[SpeechEngine] = []

    def load(name: str, settings: Any) -> SpeechEngine:
        assert name == "small"
        engines.append(small_engine())
        return engines[-1]

    monkeypatch.setattr(legato, "load", load)
    return engines


def run(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, ["chat", *arguments, "--model", "small"], **options)


def user(*parts: Any) -> dict[str, Any]:
    """A message; a str is text, bytes are a file, an array is sound."""
    dicts: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            dicts.append({"type": "text", "text": part})
        else:
            dicts.append({"type": "audio", "audio": part, "sample_rate_hz": RATE_HZ})
    return {"role": "user", "content": dicts}


def heard_by(engine: SpeechEngine) -> Hearing:
    assert engine.model.writer is not None and isinstance(engine.model.writer.chat, Hearing)
    return engine.model.writer.chat


# --- one question ---


@pytest.mark.usefixtures("loaded")
def test_a_question_is_answered_in_text_and_speech(here: Path, engine: SpeechEngine) -> None:
    result = run("hello", "-o", "a.wav", "--voice", "bob", "--seed", "3", "--stats", "a.json")
    text, pcm = own(engine, [user("hello")], voice="bob", seed=3)
    assert (result.exit_code, result.stdout) == (0, f"{text}\n"), result.stderr
    samples, rate_hz = soundfile.read(here / "a.wav", dtype="int16")
    assert rate_hz == 400 and np.array_equal(samples, to_int16(pcm))
    *_, figures, wrote = result.stderr.splitlines()
    assert wrote == "wrote a.wav" and figures.startswith("first text ") and "· first sound " in figures
    stats = json.loads((here / "a.json").read_text())
    assert stats.keys() == StreamReport(400).as_dict().keys() | {"first_text_s"} and stats["first_text_s"] > 0
    assert (stats["voice"], stats["seed"]) == ("bob", 3)


@pytest.mark.usefixtures("loaded")
def test_speech_goes_to_a_file_unless_told(here: Path) -> None:
    result = run("hello")
    assert "wrote reply.wav (--output names another file, --play plays)" in result.stderr
    assert soundfile.info(here / "reply.wav").frames > 0


@pytest.mark.usefixtures("loaded")
def test_speech_on_stdout_is_sound_and_nothing_else(engine: SpeechEngine) -> None:
    result = run("hello", "-o", "-", "--format", "wav")
    text, pcm = own(engine, [user("hello")])
    assert result.stdout_bytes[44:] == to_int16(pcm).tobytes()
    assert result.stderr.startswith(f"{text}\n(cut off: ") and "first sound" in result.stderr


@pytest.mark.usefixtures("loaded")
def test_text_only(here: Path, engine: SpeechEngine) -> None:
    result = run("hello", "--text-only", "--max-tokens", "4")
    text, _ = own(engine, [user("hello")], modalities=("text",), max_tokens=4)
    assert result.stdout == f"{text}\n" and len(text) == 4
    assert "cut off" in result.stderr and "sound" not in result.stderr and not list(here.iterdir())


def test_files_and_instructions(here: Path, engine: SpeechEngine, loaded: list[SpeechEngine]) -> None:
    for name, content in (("a.wav", bytes(range(200))), ("b.png", bytes(150)), ("c.mp4", bytes(range(90)))):
        (here / name).write_bytes(content)
    result = run(
        *("what is this?", "--audio", "a.wav", "--image", "b.png", "--video", "c.mp4"),
        *("--system", "be kind", "--text-only"),
    )
    system, asked = heard_by(loaded[0]).requests[-1].messages
    assert (system.role, system.parts[0].content) == ("system", "be kind")
    assert [(part.kind, part.content) for part in asked.parts] == [
        ("image", Path("b.png")), ("video", Path("c.mp4")), ("audio", Path("a.wav")), ("text", "what is this?")
    ]  # fmt: skip
    contents = (bytes(150), bytes(range(90)), bytes(range(200)), "what is this?")
    messages = [{"role": "system", "content": "be kind"}, user(*contents)]
    assert result.stdout == own(engine, messages, modalities=("text",))[0] + "\n"


# --- a conversation ---


def test_a_conversation_remembers(here: Path, engine: SpeechEngine, loaded: list[SpeechEngine]) -> None:
    result = run(input="hello\n\nand then?\n/exit\nnot this\n")
    first, first_pcm = own(engine, [user("hello")])
    turns = [user("hello"), {"role": "assistant", "content": first}, user("and then?")]
    second, second_pcm = own(engine, turns)
    assert (result.exit_code, result.stdout) == (0, f"{first}\n{second}\n"), result.stderr
    samples, _ = soundfile.read(here / "reply.wav", dtype="int16")
    assert np.array_equal(samples, to_int16(np.concatenate([first_pcm, second_pcm])))
    assert len(heard_by(loaded[0]).requests) == 2


@pytest.mark.usefixtures("loaded")
def test_a_turn_that_cannot_be_answered_ends_alone(here: Path, engine: SpeechEngine) -> None:
    result = run("--voice", "nobody", input="hello\nhello\n")
    assert result.exit_code == 0 and result.stdout == ""
    assert result.stderr.count("error: unknown voice 'nobody'") == 2 and not list(here.iterdir())


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Press Ctrl-C when the first condition holds, then when the next one does; the model is slow meanwhile."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which is off where tests run in the background
    monkeypatch.setattr(Hearing, "slow", True)
    pressing: list[threading.Thread] = []

    def press(conditions: tuple[Callable[[], bool], ...]) -> None:
        for condition in conditions:
            wait_for(condition)
            os.kill(os.getpid(), signal.SIGINT)

    def later(*conditions: Callable[[], bool]) -> None:
        pressing.append(threading.Thread(target=press, args=(conditions,)))
        pressing[0].start()

    yield later
    pressing[0].join()
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_the_reply_and_not_the_conversation(
    ctrl_c: Callable[..., None], loaded: list[SpeechEngine], here: Path
) -> None:
    def written(turn: int) -> bool:
        talks = heard_by(loaded[0]).talks if loaded else []
        return len(talks) > turn and talks[turn].writing.count > 2

    ctrl_c(lambda: written(0), lambda: written(1))
    result = run("--max-tokens", "300", input="hello\nand then?\n/exit\n")
    assert result.exit_code == 0 and result.stderr.splitlines().count("stopped") == 2, result.stderr
    first, second = result.stdout.splitlines()
    assert 0 < len(first) < 200 and 0 < len(second) < 200
    turns = [(m.role, m.parts[0].content) for m in heard_by(loaded[0]).requests[-1].messages]
    assert turns == [("user", "hello"), ("assistant", first), ("user", "and then?")]


@pytest.mark.usefixtures("loaded")
def test_ctrl_c_in_a_question_keeps_what_was_spoken(ctrl_c: Callable[..., None], here: Path) -> None:
    ctrl_c((here / "a.wav").exists)
    result = run("hello", "-o", "a.wav", "--max-tokens", "300")
    assert result.exit_code == 130 and 0 < len(result.stdout) < 200
    samples, _ = soundfile.read(here / "a.wav")
    assert len(samples)


# --- live sound ---


def sound(samples: int, seed: int = 0) -> np.ndarray:
    return to_int16(np.random.default_rng(seed).uniform(-0.9, 0.9, samples).astype(np.float32))


def as_float(samples: np.ndarray) -> np.ndarray:
    return (samples / 2**15).astype(np.float32)


def test_sound_on_stdin_is_heard_while_it_comes(
    here: Path, engine: SpeechEngine, loaded: list[SpeechEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    wave = as_float(sound(450))

    def coming() -> Iterator[tuple[np.ndarray, int]]:
        yield wave[:250], RATE_HZ
        replies = loaded[0].core.replies
        assert replies is not None
        wait_for(lambda: replies.lm.counters.prefill_tokens >= 4)  # two blocks of it are read already
        yield wave[250:], RATE_HZ

    monkeypatch.setattr("legato.cli.chat.stdin_sound", coming)
    result = run("well", "--audio", "-", "--text-only")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == own(engine, [user("well", wave)], modalities=("text",))[0] + "\n"


class Pipe:
    """A stream that gives what was written so far, in pieces of any size."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def read(self, most: int) -> bytes:
        if not self.pieces:
            return b""
        piece = self.pieces.pop(0)
        if len(piece) > most:
            self.pieces.insert(0, piece[most:])
        return piece[:most]


def wav(form: tuple[int, int, int], data: bytes, size: int | None = None, extra: bytes = b"") -> bytes:
    kind, channels, bits = form
    fmt = struct.pack("<HHIIHH", kind, channels, RATE_HZ, 0, 0, bits)
    if kind == 0xFFFE:
        fmt += struct.pack("<HHIH", 22, bits, 0, 1) + bytes(14)
    head = b"RIFF\xff\xff\xff\xffWAVE" + extra + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    return head + b"data" + struct.pack("<I", len(data) if size is None else size) + data


def joined(stretches: Iterator[tuple[np.ndarray, int]]) -> np.ndarray:
    pieces = list(stretches)
    assert all(rate_hz == RATE_HZ and wave.dtype == np.float32 for wave, rate_hz in pieces)
    return np.concatenate([wave for wave, _ in pieces])


@pytest.mark.parametrize("cut", [1, 7, 45, 1000])
@pytest.mark.parametrize("size", [None, 0, 0xFFFFFFFF])
def test_wav_streams(cut: int, size: int | None) -> None:
    samples = sound(300)
    whole = wav((1, 1, 16), samples.tobytes(), size, b"LIST\x03\x00\x00\x00abc\x00")
    pieces = [whole[i : i + cut] for i in range(0, len(whole), cut)]
    assert np.array_equal(joined(wav_stretches(Pipe(*pieces).read)), as_float(samples))


def test_wav_streams_of_other_kinds() -> None:
    samples = sound(300)
    floats = as_float(samples)
    stereo = np.stack([floats, -floats], 1).astype("<f4")
    cases = [
        (wav((3, 1, 32), floats.astype("<f4").tobytes()), floats),
        (wav((3, 2, 32), stereo.tobytes()), np.zeros(300, np.float32)),
        (wav((1, 1, 32), (samples.astype("<i4") << 16).tobytes()), floats),
        (wav((0xFFFE, 1, 16), samples.tobytes()), floats),
        (wav((1, 1, 16), samples.tobytes()) + b"LIST\x08\x00\x00\x00no sound", floats),
        (wav((1, 1, 16), samples.tobytes(), 10_000) + b"\x01", floats),
    ]
    for data, expected in cases:
        assert np.array_equal(joined(wav_stretches(Pipe(data).read)), expected)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ends before its first sample"),
        (b"OggS" + bytes(100), "no wav stream"),
        (wav_header(1000, None)[:30], "ends before its first sample"),
        (wav((1, 1, 24), b""), "24-bit"),
        (wav((1, 0, 16), b""), "0 channels"),
        (wav((85, 1, 16), b""), "kind 85"),
        (b"RIFF....WAVEfmt \x04\x00\x00\x00abcd", "damaged"),
    ],
)
def test_what_is_no_wav_stream(data: bytes, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        list(wav_stretches(Pipe(data).read))


class FakeMicrophone(ModuleType):
    """The sounddevice package, with a microphone that hears the same sound every time."""

    PortAudioError = type("PortAudioError", (Exception,), {})

    def __init__(self, wave: np.ndarray, broken: str = "") -> None:
        super().__init__("sounddevice")
        self.wave, self.broken, self.closed = wave, broken, 0

    def query_devices(self, kind: str) -> dict[str, Any]:
        if self.broken == "none":
            raise self.PortAudioError("no device")
        return {"name": f"an {kind}", "default_samplerate": float(RATE_HZ)}

    def InputStream(self, samplerate: int, channels: int, dtype: str, callback: Callable[..., None]) -> Any:
        assert (samplerate, channels, dtype) == (RATE_HZ, 1, "float32")

        def start() -> None:
            if self.broken == "later":
                raise self.PortAudioError("in use")
            buffer = np.zeros((90, 1), np.float32)  # the device's own, which it writes into again and again
            for piece in np.split(self.wave, range(90, len(self.wave), 90)):
                buffer[: len(piece), 0] = piece
                callback(buffer[: len(piece)], len(piece), None, None)

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(start=start, close=close)


@pytest.mark.usefixtures("loaded")
def test_a_question_into_the_microphone(monkeypatch: pytest.MonkeyPatch, engine: SpeechEngine) -> None:
    device = FakeMicrophone(as_float(sound(450)))
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    result = run("well", "--mic", "--text-only", input="\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == own(engine, [user("well", device.wave)], modalities=("text",))[0] + "\n"
    assert device.closed == 1 and "listening; Enter ends" in result.stderr


def test_a_conversation_into_the_microphone(
    monkeypatch: pytest.MonkeyPatch, engine: SpeechEngine, loaded: list[SpeechEngine]
) -> None:
    """An empty line starts a recording, another one ends it; what was said is part of the next turns."""
    device = FakeMicrophone(as_float(sound(450)))
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    result = run("--mic", "--text-only", input="\n\nand then?\n")
    first, _ = own(engine, [user(device.wave)], modalities=("text",))
    turns = [user(device.wave), {"role": "assistant", "content": first}, user("and then?")]
    second, _ = own(engine, turns, modalities=("text",))
    assert result.stdout == f"{first}\n{second}\n", result.stderr


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("broken", "words"),
    [("none", "no microphone was found (no device)"), ("later", "no microphone can be used (in use)")],
)
def test_no_microphone(monkeypatch: pytest.MonkeyPatch, broken: str, words: str) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", FakeMicrophone(np.zeros(10, np.float32), broken))
    result = run("well", "--mic", "--text-only", input="\n")
    assert result.exit_code == 1 and f"error: {words}; --audio FILE" in result.stderr


class FakeLoudspeaker(ModuleType):
    """The sounddevice package, with a loudspeaker that remembers."""

    PortAudioError = type("PortAudioError", (Exception,), {})

    def __init__(self) -> None:
        super().__init__("sounddevice")
        self.heard, self.opened = io.BytesIO(), 0

    def query_devices(self, kind: str) -> dict[str, str]:
        return {"name": f"an {kind}"}

    def OutputStream(self, samplerate: int, channels: int, dtype: str) -> Any:
        assert (samplerate, channels, dtype) == (400, 1, "float32")
        self.opened += 1
        quiet = {name: lambda **_: None for name in ("start", "stop", "close")}
        return SimpleNamespace(write=lambda samples: self.heard.write(samples.tobytes()), **quiet)


@pytest.mark.usefixtures("loaded")
def test_replies_are_played(monkeypatch: pytest.MonkeyPatch, here: Path, engine: SpeechEngine) -> None:
    device = FakeLoudspeaker()
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    assert run("hello", "--play").exit_code == 0
    _, pcm = own(engine, [user("hello")])
    assert np.array_equal(np.frombuffer(device.heard.getvalue(), np.float32), pcm) and not list(here.iterdir())
    assert run("--play", input="hello\nhello\n").exit_code == 0
    assert device.opened == 3


# --- refused ---


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["hello", "--voice", "nobody"], 1, "error: unknown voice 'nobody'; this model has: ann, bob"),
        (["--audio", "no.wav"], 1, "error: there is no file at no.wav"),
        (["--image", "."], 1, "error: there is no file at ."),
        (["--video", "broken.mp4"], 1, "error: messages: the video cannot be read"),
        (["hello", "-o", "a.xyz"], 1, "error: unknown audio format '.xyz'"),
        (["hello", "-o", "no/folder/a.wav"], 1, "error: cannot write no/folder/a.wav"),
        (["hello", "--config", "no.toml"], 1, "error: there is no config file at no.toml"),
        (["hello", "--text-only", "-o", "a.wav"], 2, "no speech to write or play"),
        (["hello", "--text-only", "--play"], 2, "no speech to write or play"),
        (["hello", "--max-tokens", "0"], 2, "--max-tokens"),
        (["hello", "--seed", "-1"], 2, "--seed"),
        (["--audio", "-", "--mic"], 2, "not to both"),
        (["--stats", "a.json"], 2, "is about one reply"),
    ],
)
def test_refusals(here: Path, arguments: list[str], code: int, words: str) -> None:
    (here / "broken.mp4").write_bytes(b"broken")
    (here / "reply.wav").write_bytes(b"precious")
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert words in " ".join(result.stderr.split())
    assert (here / "reply.wav").read_bytes() == b"precious"


def test_a_model_that_only_reads_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legato, "load", lambda name, settings: SpeechEngine(chatting_model(writes=False), SMALL))
    for result in (run("hello"), CliRunner().invoke(app, ["chat", "hello"])):
        assert result.exit_code == 2 and "holds no conversations; name a model that does" in result.stderr
        assert "--model" in result.stderr


def test_a_model_without_its_voice(here: Path, monkeypatch: pytest.MonkeyPatch, engine: SpeechEngine) -> None:
    def load(name: str, settings: Any) -> SpeechEngine:
        return SpeechEngine(replace(chatting_model(), voices={}, default_voice=""), SMALL)

    monkeypatch.setattr(legato, "load", load)
    result = run("hello")
    assert result.stdout == own(engine, [user("hello")], modalities=("text",))[0] + "\n", result.stderr
    assert not list(here.iterdir()) and "sound" not in result.stderr
    refused = run("hello", "-o", "a.wav")
    assert refused.exit_code == 1 and "was loaded without its voice; leave out --output" in refused.stderr


def test_playing_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    for option in ("--play", "--mic"):
        result = run("hello", option)
        assert result.exit_code == 1 and "pip install 'legato-speech[play]'" in result.stderr


# --- real processes ---

STARTER = """
import sys

sys.path.insert(0, {tests!r})
import legato
from serving.conversing import small_engine


def load(name, settings):
    engine = small_engine()
    engine.model.writer.chat.slow = {slow}
    return engine


legato.load = load
from legato.cli import main

main()
"""


def start(*arguments: str, folder: Path, slow: bool = False) -> subprocess.Popen[bytes]:
    """`legato chat …` as a user runs it, with the small model."""
    (folder / "start.py").write_text(STARTER.format(tests=str(TESTS), slow=slow))
    return subprocess.Popen(
        [sys.executable, "start.py", "chat", *arguments, "--model", "small"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        # Where the tests run in the background, Ctrl-C is ignored, and so would it be in what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.slow
def test_a_wav_stream_on_stdin(tmp_path: Path, engine: SpeechEngine) -> None:
    samples = sound(450)
    talking = start("well", "--audio", "-", "-o", "-", folder=tmp_path)
    assert talking.stdin
    talking.stdin.write(wav_header(RATE_HZ, None) + samples[:250].tobytes())
    talking.stdin.flush()
    time.sleep(0.1)
    stdout, stderr = talking.communicate(samples[250:].tobytes(), timeout=60)
    text, pcm = own(engine, [user("well", as_float(samples))])
    assert talking.returncode == 0 and stdout[44:] == to_int16(pcm).tobytes(), stderr
    assert text in stderr.decode().splitlines()


@pytest.mark.slow
def test_ctrl_c_stops_the_reply_and_not_the_program(tmp_path: Path) -> None:
    talking = start("--text-only", "--max-tokens", "300", folder=tmp_path, slow=True)
    assert talking.stdin and talking.stdout
    talking.stdin.write(b"hello\n")
    talking.stdin.flush()
    first = talking.stdout.read(3)
    began_s = time.monotonic()
    talking.send_signal(signal.SIGINT)
    rest = talking.stdout.readline()
    assert time.monotonic() - began_s < 3, "the reply would have taken six seconds"
    time.sleep(0.2)
    talking.stdin.write(b"hello\n")
    talking.stdin.flush()
    again = talking.stdout.read(3)
    talking.send_signal(signal.SIGINT)
    _, stderr = talking.communicate(b"/exit\n", timeout=60)
    assert talking.returncode == 0 and len(first + rest) < 200 and len(again) == 3, stderr
    assert stderr.decode().splitlines().count("stopped") == 2
