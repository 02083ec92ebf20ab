"""What an ASR hears, and how far that is from what was said. For the recipe's evaluation only."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from legato.nn.resample import resample
from legato.text.normalize import normalize

ASR_HZ = 16_000
_HAN = re.compile("[\u4e00-\u9fff]")


class Listener:
    """whisper-base by faster-whisper, int8, beam 5."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        from faster_whisper import WhisperModel

        self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=threads)

    def hear(self, wave: np.ndarray, sample_hz: int, language: str) -> str:
        """What was said; Chinese in simplified characters."""
        from zhconv import convert

        audio = resample(torch.from_numpy(np.asarray(wave, np.float32)), sample_hz, ASR_HZ).numpy()
        segments, _ = self._model.transcribe(
            audio, language=language, beam_size=5, without_timestamps=True, condition_on_previous_text=False
        )
        return str(convert(" ".join(segment.text.strip() for segment in segments), "zh-cn"))


def error_rate(said: list[str], heard: list[str]) -> tuple[float, list[dict[str, object]]]:
    """Edits over all units, a unit being a Chinese character or a word, and what was heard wherever it differs."""
    pairs = [(units(a), units(b), a, b) for a, b in zip(said, heard, strict=True)]
    edits = [_distance(a, b) for a, b, _, _ in pairs]
    misheard: list[dict[str, object]] = [
        {"edits": n, "said": a, "heard": b} for n, (_, _, a, b) in zip(edits, pairs, strict=True) if n
    ]
    return sum(edits) / sum(len(a) for a, *_ in pairs), misheard


def syllables(text: str) -> str:
    """The text with every Chinese character as its pinyin and tone, so that homophones are no errors."""
    from pypinyin import Style, lazy_pinyin

    return " ".join(lazy_pinyin("".join(units(text)) if _HAN.search(text) else text, style=Style.TONE3))


def units(text: str) -> list[str]:
    """Characters one by one and lower-case words; digits are spelled, and harbour is harbor."""
    text = text.lower().replace("'", "").replace("’", "")
    if _HAN.search(text):
        text = normalize(text, "zh")
    else:
        text = re.sub(r"\d+", _in_words, text.replace("-", " ")).replace("-", " ")
        text = re.sub(r"([a-z]{3,})our\b", r"\1or", text)
    return re.findall("[\u4e00-\u9fff]|[a-z0-9]+", text)


def _in_words(digits: re.Match[str]) -> str:
    from num2words import num2words

    return str(num2words(int(digits[0])))


def _distance(said: list[str], heard: list[str]) -> int:
    """Levenshtein's."""
    row = list(range(len(heard) + 1))
    for i, unit in enumerate(said, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (unit != other))
    return row[-1]
