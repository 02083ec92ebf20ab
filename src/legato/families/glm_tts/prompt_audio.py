"""Reference audio, measured before it is used: refused when it cannot make a voice, warned about when it may not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from legato.errors import RequestError

Samples = npt.NDArray[np.float32]

LEAST_S, MOST_S = 1.0, 30.0
ADVISED_S = (3.0, 10.0)
LEAST_RATE_HZ, ADVISED_RATE_HZ, MOST_RATE_HZ = 8_000, 16_000, 192_000
MOST_CHANNELS = 8

FRAME_S = 0.02
FLOOR_DBFS = -60.0
"""Below this a recording is silent."""

SILENCE_BELOW_PEAK_DB = 40.0
"""A frame this far below the loudest one is silence."""

MOST_SILENCE, ADVISED_SILENCE = 0.9, 0.5
CLIP_LEVEL, CLIP_RUN = 0.999, 3
"""This many samples in a row at the rails are clipped; a single peak may just be loud."""

MOST_CLIPPED, ADVISED_CLIPPED = 0.02, 0.0002
LEAST_SNR_DB, ADVISED_SNR_DB = 0.0, 15.0
NOISE_QUANTILE = 0.1

MOST_HAN_HZ, MOST_LETTERS_HZ = 12.0, 30.0
"""Chinese characters, and other letters and digits, that nobody speaks more of in a second."""


@dataclass(frozen=True)
class Measured:
    """Figures of a recording: shares from 0 to 1, levels in dB. `snr_db` is an estimate (see `measure`)."""

    seconds: float
    sample_hz: int
    channels: int
    peak_dbfs: float
    clipped_share: float
    silence_share: float
    snr_db: float


def measure(wave: Samples, sample_hz: int) -> Measured:
    """Figures of a wave float32 [channels, n ≥ 1].

    The signal-to-noise ratio takes the quietest tenth of the 20 ms frames (of the mean of the channels) for the noise
    and the frames above the silence level for speech in noise: a steady sound has none.
    """
    energies = _frame_energies(wave.mean(0), sample_hz)
    loud = energies > energies.max() * 10 ** (-SILENCE_BELOW_PEAK_DB / 10)
    noise = max(float(np.quantile(energies, NOISE_QUANTILE)), 1e-12)
    speech = max(float(energies[loud].mean()) if loud.any() else 0.0, 1e-12)
    return Measured(
        seconds=wave.shape[1] / sample_hz,
        sample_hz=sample_hz,
        channels=wave.shape[0],
        peak_dbfs=20 * float(np.log10(max(float(np.abs(wave).max()), 1e-9))),
        clipped_share=_clipped_share(wave),
        silence_share=float(1 - loud.mean()),
        snr_db=10 * float(np.log10(max(speech / noise - 1, 1e-6))),
    )


def _frame_energies(wave: Samples, sample_hz: int) -> npt.NDArray[np.float64]:
    """Mean square of each 20 ms frame around its own mean, float64 [frames ≥ 1]."""
    length = max(1, min(len(wave), round(FRAME_S * sample_hz)))
    frames = wave[: len(wave) // length * length].reshape(-1, length).astype(np.float64)
    energies: npt.NDArray[np.float64] = frames.var(1)
    return energies


def _clipped_share(wave: Samples) -> float:
    """Share of the samples that stand in a run of CLIP_RUN or more at the rails."""
    at_rail = np.abs(wave) >= CLIP_LEVEL
    starts = at_rail[:, : -CLIP_RUN + 1].copy()
    for shift in range(1, CLIP_RUN):
        starts &= at_rail[:, shift : at_rail.shape[1] - CLIP_RUN + 1 + shift]
    clipped = np.zeros_like(at_rail)
    for shift in range(CLIP_RUN):
        clipped[:, shift : starts.shape[1] + shift] |= starts
    return float(clipped.mean())


def check(wave: Samples, sample_hz: int) -> tuple[Measured, tuple[str, ...]]:
    """The figures of a wave float32 [channels, n] and what to warn about.

    Raises RequestError, with the figure and the remedy, when it cannot serve as a reference.
    """
    if wave.ndim != 2 or not wave.size or wave.shape[0] > MOST_CHANNELS:
        raise _refused(f"it should be [channels ≤ {MOST_CHANNELS}, samples], but is {list(wave.shape)}")
    if not LEAST_RATE_HZ <= sample_hz <= MOST_RATE_HZ:
        raise _refused(f"its sample rate is {sample_hz} Hz; give one from {LEAST_RATE_HZ} to {MOST_RATE_HZ} Hz")
    if not np.isfinite(wave).all():
        raise _refused("it holds values that are not numbers; export it again")
    found = measure(wave, sample_hz)
    problem = _problem(found)
    if problem is not None:
        raise _refused(problem)
    return found, _warnings(found)


def check_pace(text: str, seconds: float) -> None:
    """Raises RequestError, with the figure, for a text that nobody could say in that time."""
    said = [char for char in text if char.isalnum()]
    han = sum("\u4e00" <= char <= "\u9fff" for char in said)
    if han / MOST_HAN_HZ + (len(said) - han) / MOST_LETTERS_HZ > seconds:
        raise RequestError(
            f"prompt_text has {len(said)} letters for {seconds:.1f} s of audio, {len(said) / seconds:.0f} a second; "
            f"nobody says more than {MOST_HAN_HZ:.0f} Chinese or {MOST_LETTERS_HZ:.0f} English ones: give what the "
            "recording says, and no more",
            "prompt_text",
        )


def _refused(problem: str) -> RequestError:
    return RequestError(f"the reference audio cannot be used: {problem}", "prompt_audio")


def _problem(found: Measured) -> str | None:
    """Why a recording cannot make a voice; None when it can."""
    if found.seconds < LEAST_S:
        return f"it is {found.seconds:.2f} s long; give at least {LEAST_S:.0f} s, better {_advised()}"
    if found.seconds > MOST_S:
        return f"it is {found.seconds:.1f} s long; cut it to at most {MOST_S:.0f} s, better {_advised()}"
    if found.peak_dbfs < FLOOR_DBFS:
        return f"it is silent (peak {found.peak_dbfs:.0f} dBFS); record it louder"
    if found.silence_share > MOST_SILENCE:
        return f"{found.silence_share:.0%} of it is silence; cut it to the part that is spoken"
    if found.clipped_share > MOST_CLIPPED:
        return f"{found.clipped_share:.1%} of its samples are clipped; record it at a lower level"
    if found.snr_db < LEAST_SNR_DB:
        return f"nothing stands out of the noise (SNR about {found.snr_db:.0f} dB); record speech in a quiet room"
    return None


def _advised() -> str:
    return f"{ADVISED_S[0]:.0f} to {ADVISED_S[1]:.0f} s"


def _warnings(found: Measured) -> tuple[str, ...]:
    """What may make a poor clone, one sentence each."""
    poor = []
    if not ADVISED_S[0] <= found.seconds <= ADVISED_S[1]:
        poor.append(f"the reference audio is {found.seconds:.1f} s long; {_advised()} clone best")
    if found.sample_hz < ADVISED_RATE_HZ:
        poor.append(f"its sample rate is {found.sample_hz} Hz: the voice will sound dull; give {ADVISED_RATE_HZ}")
    if found.silence_share > ADVISED_SILENCE:
        poor.append(f"{found.silence_share:.0%} of it is silence: the voice may pause as much; cut it closer")
    if found.clipped_share > ADVISED_CLIPPED:
        poor.append(f"{found.clipped_share:.2%} of its samples are clipped: the voice may crackle")
    if found.snr_db < ADVISED_SNR_DB:
        poor.append(f"its SNR is about {found.snr_db:.0f} dB: the noise may be cloned; {ADVISED_SNR_DB:.0f} is good")
    return tuple(poor)
