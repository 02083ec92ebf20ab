"""Every format, pushed in any pieces, decodes to all of the sound."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.errors import UnsupportedFormat
from legato.serving.encoders import FORMATS, SIZE_UNKNOWN, encode_whole, find_format, format_for, open_encoder, to_int16

from .fakes import tone

LOSSLESS = ("wav", "flac", "pcm")
# Most extra samples, at 24 kHz: what the codec puts before the sound, and the filling of its last frame.
SLACK_SAMPLES = {"mp3": 1105 + 576, "aac": 1024 + 1024, "opus": 0, "flac": 0, "wav": 0, "pcm": 0}


def encode(name: str, pcm: np.ndarray, cuts: list[int], rate_hz: int = 24000, *, whole: bool = False) -> bytes:
    encoder = open_encoder(FORMATS[name], rate_hz, whole=whole)
    return b"".join(encoder.push(piece) for piece in np.split(pcm, sorted(cuts))) + encoder.finish()


def decode(name: str, data: bytes) -> tuple[np.ndarray, int]:
    """Samples in [-1, 1] and their rate."""
    if name == "pcm":
        return np.frombuffer(data, "<i2") / 32767, 24000
    with av.open(io.BytesIO(data)) as container:
        rate_hz = container.streams.audio[0].rate
        resampler = av.AudioResampler("flt", "mono", rate_hz)
        pieces = [out.to_ndarray()[0] for frame in container.decode(audio=0) for out in resampler.resample(frame)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32), rate_hz


def loudest_pitch_hz(pcm: np.ndarray, rate_hz: int) -> float:
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm))))
    return float(np.argmax(spectrum)) * rate_hz / len(pcm)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("rate_hz", [16000, 22050, 24000, 44100, 48000])
@pytest.mark.parametrize("name", FORMATS)
def test_decoded_duration_is_the_duration_of_the_samples(name: str, rate_hz: int, whole: bool) -> None:
    pcm = tone(440, 0, rate_hz + 123, rate_hz)
    decoded, decoded_hz = decode(name, encode(name, pcm, list(range(0, len(pcm), 1919)), rate_hz, whole=whole))
    slack_s = SLACK_SAMPLES[name] / min(decoded_hz, 24000)
    missing_s = len(pcm) / rate_hz - len(decoded) / decoded_hz
    one_sample_s = 1.01 / min(rate_hz, decoded_hz)
    assert -slack_s - one_sample_s <= missing_s <= one_sample_s
    assert loudest_pitch_hz(decoded, decoded_hz) == pytest.approx(440, abs=1.5)


@pytest.mark.parametrize("name", FORMATS)
def test_the_last_samples_are_not_lost(name: str) -> None:
    pcm = np.concatenate([np.zeros(24000, np.float32), tone(1000, 0, 1200)])
    decoded, rate_hz = decode(name, encode(name, pcm, [7, 24100]))
    heard = np.flatnonzero(np.abs(decoded) > 0.2) / rate_hz
    assert heard[-1] - heard[0] == pytest.approx(0.05, abs=0.003)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 5003), max_size=12), name=st.sampled_from(list(FORMATS)))
def test_pieces_do_not_change_the_bytes(cuts: list[int], name: str) -> None:
    pcm = tone(440, 0, 5003)
    assert encode(name, pcm, cuts) == encode(name, pcm, [])


@given(cuts=st.lists(st.integers(0, 3000), max_size=8))
@settings(max_examples=15, deadline=None)
def test_resampled_pcm_does_not_depend_on_the_pieces(cuts: list[int]) -> None:
    pcm = tone(440, 0, 3000, 22050)
    assert encode("pcm", pcm, cuts, 22050) == encode("pcm", pcm, [], 22050)


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_formats_hold_the_same_samples(name: str) -> None:
    pcm = tone(440, 0, 5003)
    decoded, _ = decode(name, encode(name, pcm, [1, 2, 900]))
    scale = 32767 if name == "pcm" else 32768
    assert np.array_equal(np.rint(decoded * scale).astype(np.int16), to_int16(pcm))


def test_loud_samples_are_clipped_and_do_not_wrap() -> None:
    assert to_int16(np.array([0, 1, -1, 1.5, -1.5, 40], np.float32)).tolist() == [
        0,
        32767,
        -32767,
        32767,
        -32767,
        32767,
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_stream_is_not_an_error(name: str) -> None:
    data = open_encoder(FORMATS[name], 24000).finish()
    headers = {"wav": b"RIFF", "opus": b"OggS", "flac": b"fLaC", "mp3": b"", "aac": b"", "pcm": b""}
    assert data[:4] == headers[name]


def test_wav_sizes() -> None:
    pcm = tone(440, 0, 1000)
    streamed, whole = encode("wav", pcm, [300]), encode("wav", pcm, [300], whole=True)
    assert [int.from_bytes(streamed[at : at + 4], "little") for at in (4, 40)] == [SIZE_UNKNOWN, SIZE_UNKNOWN]
    assert streamed[44:] == whole[44:]
    with wave.open(io.BytesIO(whole)) as file:
        assert (file.getnframes(), file.getframerate(), file.getnchannels(), file.getsampwidth()) == (1000, 24000, 1, 2)


@pytest.mark.parametrize("name", FORMATS)
def test_the_first_tenth_of_a_second_already_gives_sound(name: str) -> None:
    assert open_encoder(FORMATS[name], 24000).push(tone(440, 0, 2400))


@pytest.mark.parametrize("name", ["mp3", "flac", "wav", "opus"])
def test_whole_files_know_their_length(name: str, tmp_path: Path) -> None:
    pcm = tone(440, 0, 30000)
    path = tmp_path / f"sound.{name}"
    path.write_bytes(encode_whole(pcm, 24000, format_for(path)))
    info = soundfile.info(path)
    assert info.frames / info.samplerate == pytest.approx(1.25, abs=1e-4)


def test_formats_are_found_by_name_and_by_extension() -> None:
    assert find_format("opus").content_type == "audio/ogg"
    assert {format_for(Path(f"a{e}")).name for e in (".MP3", ".ogg", ".opus", ".aac", ".flac", ".wav", ".raw")} == {
        *("mp3", "opus", "aac", "flac", "wav", "pcm")
    }
    with pytest.raises(UnsupportedFormat, match="mp3, opus, aac"):
        find_format("ogg")
    with pytest.raises(UnsupportedFormat, match=r"\.m4a"):
        format_for(Path("a.m4a"))
