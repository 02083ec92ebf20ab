"""Reference audio of any common kind is read, anything else refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from legato.audio_file import read_audio
from legato.errors import RequestError


@pytest.mark.parametrize("rate_hz", [8000, 44100, 96000])
@pytest.mark.parametrize("channels", [1, 2])
def test_rates_and_channels(tmp_path: Path, rate_hz: int, channels: int) -> None:
    wave = np.random.default_rng(0).uniform(-0.5, 0.5, (rate_hz // 10, channels)).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", wave, rate_hz, subtype="FLOAT")
    read, rate = read_audio(tmp_path / "a.wav")
    assert rate == rate_hz
    assert np.array_equal(read, wave.T.reshape(channels, -1))


def test_compressed(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", np.zeros(2400, np.float32), 24000)
    assert read_audio(tmp_path / "a.flac")[0].shape == (1, 2400)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no sound file"):
        read_audio(tmp_path / "none.wav")


def test_text_is_not_sound(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_text("this is a letter, not a recording")
    with pytest.raises(RequestError, match="cannot be read"):
        read_audio(tmp_path / "a.wav")


def test_no_samples(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(0, np.float32), 24000)
    with pytest.raises(RequestError, match="no samples"):
        read_audio(tmp_path / "a.wav")


@pytest.mark.parametrize("channels", [9, 39])
def test_too_many_channels(tmp_path: Path, channels: int) -> None:
    """Reading them would read beyond the memory that holds them."""
    soundfile.write(tmp_path / "a.wav", np.zeros((800, channels), np.float32), 8000)
    with pytest.raises(RequestError, match=f"{channels} channels"):
        read_audio(tmp_path / "a.wav")


def test_a_list_of_other_files_is_not_followed(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(800, np.float32), 8000)
    (tmp_path / "list.txt").write_text(f"ffconcat version 1.0\nfile {tmp_path / 'a.wav'}\n")
    with pytest.raises(RequestError, match="cannot be read"):
        read_audio(tmp_path / "list.txt")


def test_a_damaged_file(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.flac", np.random.default_rng(0).normal(size=8000).astype(np.float32) / 9, 8000)
    whole = (tmp_path / "a.flac").read_bytes()
    for seed in range(30):
        damaged = bytearray(whole)
        for at in np.random.default_rng(seed).integers(0, len(whole), 20):
            damaged[at] ^= 0x55
        (tmp_path / "b.flac").write_bytes(damaged)
        try:
            wave, rate = read_audio(tmp_path / "b.flac")
        except RequestError:
            continue
        assert wave.ndim == 2 and rate > 0
