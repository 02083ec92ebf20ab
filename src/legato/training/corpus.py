"""A corpus of spoken utterances on disk: samples, phonemes with durations, and what later stages add (mel, codes).

    utterances.jsonl    one utterance a line
    speech.pcm          int16 samples, utterance after utterance, each padded to whole codec tokens
    speech.mel          float16 [frames, bins], in the same order       (features.py)
    speech.pitch        float16 [frames], ln(Hz), 0 where unvoiced      (features.py)
    speech.codes        uint16 [tokens], in the same order              (features.py)

Files grow at the end only, so an interrupted writer goes on where it stopped. Not a loader of anyone else's format.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from legato.errors import CheckpointError

SAMPLE_HZ = 24_000
SAMPLES_PER_FRAME = 480
FRAMES_PER_TOKEN = 2
SAMPLES_PER_TOKEN = SAMPLES_PER_FRAME * FRAMES_PER_TOKEN
TOKEN_S = SAMPLES_PER_TOKEN / SAMPLE_HZ
MEL_BINS = 80
PEAK = 32767
"""The int16 that stands for 1."""

DURATION_S = 0.025
"""Unit of the teachers' durations."""

DRAWS = 8

HELD_OUT_EVERY = 50
"""Of every so many utterances one is kept for validation."""


@dataclass(frozen=True)
class Spoken:
    """One utterance: who says what, and where its samples are.

    `phonemes` are ids of the inventory with EDGE at both ends; `durations` count DURATION_S for each of them.
    """

    text: str
    language: str
    speaker: str
    phonemes: tuple[int, ...]
    durations: tuple[int, ...]
    start_sample: int
    samples: int

    @property
    def frames(self) -> int:
        return self.samples // SAMPLES_PER_FRAME

    @property
    def tokens(self) -> int:
        return self.samples // SAMPLES_PER_TOKEN

    def phoneme_at(self, times_s: np.ndarray) -> np.ndarray:
        """Index of the phoneme spoken at each time [n] (seconds from the utterance's start)."""
        ends = np.cumsum(self.durations) * DURATION_S
        return np.minimum(np.searchsorted(ends, times_s, side="right"), len(self.phonemes) - 1)


class Corpus:
    """Read access to one or several corpus folders, as one list of utterances."""

    def __init__(self, folders: Seq[Path], min_tokens: int = 12) -> None:
        self.utterances: list[Spoken] = []
        self.speakers: dict[str, list[int]] = defaultdict(list)
        self._folders = tuple(folders)
        self._folder_of: list[int] = []
        for number, folder in enumerate(self._folders):
            for spoken in read_utterances(folder):
                if spoken.tokens >= min_tokens:
                    self.speakers[spoken.speaker].append(len(self.utterances))
                    self.utterances.append(spoken)
                    self._folder_of.append(number)
        if not self.utterances:
            raise CheckpointError(f"no utterance in {', '.join(map(str, folders))}")
        self.training = [i for i in range(len(self.utterances)) if i % HELD_OUT_EVERY]
        self.held_out = [i for i in range(len(self.utterances)) if not i % HELD_OUT_EVERY]

    def __len__(self) -> int:
        return len(self.utterances)

    @property
    def hours(self) -> float:
        return sum(u.samples for u in self.utterances) / SAMPLE_HZ / 3600

    def wave(self, index: int, start_sample: int = 0, samples: int | None = None) -> np.ndarray:
        """Float32 samples in [-1, 1] of an utterance, or a part of them."""
        first, count = self._range(index, start_sample, samples, 1)
        return self._waves[self._folder_of[index]][first : first + count].astype(np.float32) / PEAK

    def mel(self, index: int, start_frame: int = 0, frames: int | None = None) -> np.ndarray:
        """Log-mel float32 [F, bins] of an utterance, or a part of it."""
        first, count = self._range(index, start_frame, frames, SAMPLES_PER_FRAME)
        return self._mels[self._folder_of[index]][first : first + count].astype(np.float32)

    def pitch(self, index: int, start_frame: int = 0, frames: int | None = None) -> np.ndarray:
        """ln(Hz) float32 [F] of an utterance, or a part of it; 0 where nothing is voiced."""
        first, count = self._range(index, start_frame, frames, SAMPLES_PER_FRAME)
        return self._pitches[self._folder_of[index]][first : first + count].astype(np.float32)

    def other_by_speaker(self, index: int, order: np.random.Generator, min_tokens: int = 0) -> int | None:
        """Another utterance of the same speaker, at least so long; None if none is found in a few draws."""
        mine = self.speakers[self.utterances[index].speaker]
        for _ in range(DRAWS):
            other = mine[int(order.integers(len(mine)))]
            if other != index and self.utterances[other].tokens >= min_tokens:
                return other
        return None

    def codes(self, index: int, start_token: int = 0, tokens: int | None = None) -> np.ndarray:
        """Codec tokens int64 [n] of an utterance, or a part of them."""
        first, count = self._range(index, start_token, tokens, SAMPLES_PER_TOKEN)
        return self._codes[self._folder_of[index]][first : first + count].astype(np.int64)

    def _range(self, index: int, start: int, count: int | None, unit_samples: int) -> tuple[int, int]:
        spoken = self.utterances[index]
        whole = spoken.samples // unit_samples
        return spoken.start_sample // unit_samples + start, whole - start if count is None else count

    @cached_property
    def _waves(self) -> list[np.ndarray]:
        return [np.memmap(folder / "speech.pcm", np.int16, "r") for folder in self._folders]

    @cached_property
    def _mels(self) -> list[np.ndarray]:
        return [np.memmap(folder / "speech.mel", np.float16, "r").reshape(-1, MEL_BINS) for folder in self._folders]

    @cached_property
    def _pitches(self) -> list[np.ndarray]:
        return [np.memmap(folder / "speech.pitch", np.float16, "r") for folder in self._folders]

    @cached_property
    def _codes(self) -> list[np.ndarray]:
        return [np.memmap(folder / "speech.codes", np.uint16, "r") for folder in self._folders]


def read_utterances(folder: Path) -> list[Spoken]:
    """All whole lines of utterances.jsonl. Raises CheckpointError naming the file that is missing or damaged."""
    path = folder / "utterances.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [_spoken(json.loads(line)) for line in lines]
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _spoken(raw: dict[str, object]) -> Spoken:
    spoken = Spoken(**raw)  # type: ignore[arg-type]
    fields = asdict(spoken) | {"phonemes": tuple(spoken.phonemes), "durations": tuple(spoken.durations)}
    return Spoken(**fields)


class CorpusWriter:
    """Appends utterances to a corpus folder; opening one that exists drops a half-written end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines, self._pcm = folder / "utterances.jsonl", folder / "speech.pcm"
        for path in (self._lines, self._pcm):
            path.touch()
        written = read_utterances(folder)
        self.count = len(written)
        self.samples = written[-1].start_sample + written[-1].samples if written else 0
        whole = self._lines.read_bytes()
        self._lines.write_bytes(whole[: whole.rfind(b"\n") + 1])
        with self._pcm.open("r+b") as file:
            file.truncate(2 * self.samples)

    @property
    def seconds(self) -> float:
        return self.samples / SAMPLE_HZ

    def add(self, spoken: Spoken, wave: np.ndarray) -> None:
        """Append `wave` float32 [n]; `spoken`'s place and length are set here, and peaks above 1 brought down."""
        padded = np.pad(wave, (0, -len(wave) % SAMPLES_PER_TOKEN))
        padded = padded / max(1.0, float(np.abs(padded).max()))
        with self._pcm.open("ab") as file:
            file.write(np.rint(padded * PEAK).astype("<i2").tobytes())
        placed = asdict(spoken) | {"start_sample": self.samples, "samples": len(padded)}
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(placed, ensure_ascii=False) + "\n")
        self.count, self.samples = self.count + 1, self.samples + len(padded)
