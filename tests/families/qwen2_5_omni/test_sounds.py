"""Sound of a request → what the encoder is fed: equal to the reference, live equal to whole, bad input refused."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from legato.errors import RequestError
from legato.families.qwen2_5_omni.mel import LogMel, Logs, log_mel_blocks
from legato.families.qwen2_5_omni.sounds import Stream, at_16_khz, read_sound

from .media_files import film_file, noise, picture_file, pixels, sine, sound_file

CLIPS = {199: 1, 700: 2, 16037: 3, 96000: 4, 64039: 5, 64040: 6}
"""Samples and the seed of their noise."""


def late_click(seed: int, samples: int) -> np.ndarray:
    """So quiet that the loudest, at its very end, sets the floor."""
    wave = noise(seed, samples) * 1e-5
    wave[-60:] *= 5e4
    return wave.numpy()


@pytest.mark.parametrize("samples", CLIPS)
def test_log_mel_is_the_references(gold_media: dict[str, Tensor], samples: int) -> None:
    mel = torch.from_numpy(np.concatenate(log_mel_blocks(late_click(CLIPS[samples], samples), 128, 200)))
    frames = -(-samples // 160)
    assert len(mel) == frames
    kept = sorted({*range(0, frames, 37), *range(max(0, frames - 3), frames), *range(min(3, frames))})
    assert (mel[kept] - gold_media[f"mel.{samples}"]).abs().max() < 2e-5


def test_silence_is_silence() -> None:
    assert np.unique(np.concatenate(log_mel_blocks(np.zeros(1600, np.float32), 128, 200))).tolist() == [-1.5]


@pytest.mark.parametrize("seed", range(5))
def test_pushed_in_any_pieces_is_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    wave = late_click(seed, chance.choice((1, 150, 201, 31999, 32000, 32040, 64039, 70000, 96010)))

    def heard(cuts: list[int]) -> list[Logs]:
        mel, out = LogMel(128, 200), []
        for start, stop in zip([0, *cuts], [*cuts, len(wave)], strict=True):
            out += mel.push(wave[start:stop])
        return out + mel.finish()

    whole = heard([])
    cut = heard(sorted(chance.randrange(len(wave) + 1) for _ in range(chance.randrange(1, 9))))
    assert [len(block.values) for block in whole] == [len(block.values) for block in cut]
    assert all(np.array_equal(a.values, b.values) and a.loudest == b.loudest for a, b in zip(whole, cut, strict=True))


def test_a_block_is_complete_forty_samples_behind_its_end() -> None:
    mel = LogMel(128, 200)
    assert not mel.push(np.zeros(32039, np.float32))
    assert len(mel.push(np.zeros(1, np.float32))) == 1


def test_the_floor_of_live_sound() -> None:
    """With the loudest in the first block the floor is the clip's; else quiet bins of early blocks are lower."""
    loud, quiet = noise(1, 32000).numpy(), noise(2, 64000).numpy() * 1e-5
    for wave, same in ((np.concatenate([loud, quiet]), True), (np.concatenate([quiet, loud]), False)):
        mel = LogMel(128, 200)
        live = [block.floored(block.loudest) for block in [*mel.push(wave), *mel.finish()]]
        whole = log_mel_blocks(wave, 128, 200)
        assert all(np.array_equal(a, b) for a, b in zip(live, whole, strict=True)) is same
        assert np.array_equal(live[-1], whole[-1])
        assert all(bool((a <= b + 1e-6).all()) for a, b in zip(live, whole, strict=True))


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_files_of_any_kind_rate_and_channels(kind: str) -> None:
    wave = np.stack([sine(0.5, 44100), sine(0.5, 44100)])
    heard = read_sound(sound_file(wave, 44100, kind), "it")
    assert heard.dtype == np.float32 and abs(len(heard) - 8000) < 1700
    assert 0.25 < np.abs(heard[1000:5000]).max() < 0.36


def test_a_stream_at_another_rate_is_the_whole() -> None:
    wave = noise(3, 48000).numpy() * 0.1
    stream = Stream(24000)
    pieces = [stream.push(piece) for piece in np.split(wave, [100, 7000, 30000])]
    assert np.abs(np.concatenate([*pieces, stream.finish()]) - at_16_khz(wave, 24000, "it")).max() < 1e-6


def nan_sound() -> np.ndarray:
    wave = sine(1)
    wave[77] = np.nan
    return wave


@pytest.mark.parametrize(
    ("wave", "rate", "message"),
    [
        (np.zeros(0, np.float32), 16000, "0 samples"),
        (nan_sound(), 16000, "not numbers"),
        (np.zeros(10, np.int16), 16000, "int16"),
        (np.zeros((2, 2, 2), np.float32), 16000, "float samples"),
        (sine(1), None, "sample_rate_hz"),
        (sine(1), 0, "sample_rate_hz = 0"),
        (sine(1), True, "sample_rate_hz"),
        (sine(1), 16000.0, "sample_rate_hz"),
        (sine(1), 999, "sample_rate_hz = 999: it must be from 1000 to 768000"),
        (sine(1), 768_001, "sample_rate_hz = 768001"),
        (sine(1), 2**63, "sample_rate_hz = 9223372036854775808"),
        (np.full(900, 1e300), 16000, "too large"),
        (np.full(900, 3.4e38, np.float32), 44100, "too large"),
        (np.zeros((900, 2), np.float32), 16000, "samples \\[900, 2\\].* transpose"),
        (np.zeros(16000 * 600, np.float32), 16000, "longer than 300 s"),
    ],
)
def test_sound_that_is_refused(wave: np.ndarray, rate: int | None, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        at_16_khz(wave, rate, "the sound")
    assert "the sound" in str(caught.value) and caught.value.param == "messages"


def test_sound_that_is_taken() -> None:
    wave = sine(0.5, 48000)
    heard = at_16_khz(np.stack([wave, wave]).astype(np.float64), np.int64(48000), "it")
    assert heard.dtype == np.float32 and np.array_equal(heard, at_16_khz(wave, 48000, "it"))
    for hz in (1_000, 768_000):
        assert len(at_16_khz(sine(0.1, hz), hz, "it")) == 1600


def test_files_that_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(sound_file(sine(1), 16000))
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\nfile://{secret}\n#EXT-X-ENDLIST\n"
    refused: list[tuple[bytes | Path, str]] = [
        (b"", "is empty"),
        (b"no sound at all" * 50, "cannot be read"),
        (sound_file(sine(1), 16000)[:30], "cannot be read|no samples"),
        (sound_file(np.zeros((39, 100), np.float32), 16000), "has 39 channels; at most 8"),
        (f"ffconcat version 1.0\nfile '{secret}'\n".encode(), "cannot be read"),
        (playlist.encode(), "cannot be read"),
        (tmp_path / "nothing.wav", "cannot be opened"),
        (tmp_path, "cannot be opened"),
        (film_file(pixels(1, 4, 32, 32, 3).numpy(), 4), "no sound"),
        (sound_file(np.zeros(8000 * 301, np.float32), 8000, "FLAC"), "longer than 300 s"),
    ]
    for content, message in refused:
        with pytest.raises(RequestError, match=message):
            read_sound(content, "it")
    assert len(read_sound(secret, "it")) == 16000


READ_IN_A_THREAD = """
import os, sys, threading
from pathlib import Path
from legato.families.qwen2_5_omni.config import read_config
from legato.families.qwen2_5_omni.media import MediaReader
from legato.families.qwen2_5_omni.pictures import PixelLimits
from legato.types import Part

def threads():
    return len(os.listdir("/proc/self/task"))

def read():
    reader = MediaReader(read_config(Path(sys.argv[1])).thinker, PixelLimits())
    for kind, file in (("audio", "a.wav"), ("image", "b.png"), ("video", "c.mkv")):
        reader.read(Part(kind, Path(sys.argv[2], file)), file, audio_in_video=False)
    print(threads() - before)

before = threads() + 1
thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux shows them")
def test_media_are_read_without_a_team_of_torch_threads(checkpoint: Path, tmp_path: Path) -> None:
    """Messages are read in callers' threads; a second team would slow down the one that speaks."""
    (tmp_path / "a.wav").write_bytes(sound_file(sine(5, 44100), 44100))
    (tmp_path / "b.png").write_bytes(picture_file(pixels(1, 500, 700, 3).numpy()))
    (tmp_path / "c.mkv").write_bytes(film_file(pixels(2, 6, 300, 400, 3).numpy(), 2))
    run = subprocess.run(
        [sys.executable, "-c", READ_IN_A_THREAD, str(checkpoint), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "0"
