"""Word error rate of the embedded voice by an ASR, beside the teacher's own.

    pip install faster-whisper num2words
    python benchmarks/wer.py --asr DIR [--out results.json]

DIR holds whisper-base converted for CTranslate2. The sentences are ours and in no training text. Streamed equals
whole, so one figure serves both.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np
import soxr

import legato

ASR_HZ = 16_000
SENTENCES = Path(__file__).with_name("sentences_en.txt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asr", required=True, type=Path, help="folder of whisper-base for CTranslate2")
    parser.add_argument("--seeds", type=int, default=1, help="renderings of each sentence")
    parser.add_argument("--teacher", action="store_true", help="measure the teacher (hibari-tts) too")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    texts = SENTENCES.read_text(encoding="utf-8").split("\n")[:-1]
    listen = _listener(options.asr)
    with legato.load(config=options.config) as engine:
        waves = [(text, engine.generate(text, seed=seed).samples) for seed in range(options.seeds) for text in texts]
        results = {"piccolo": _score([(text, listen(wave, engine.model.rates.sample_hz)) for text, wave in waves])}
    if options.teacher:
        from hibari import Hibari

        teacher = Hibari()
        results["teacher"] = _score([(text, listen(teacher(text), teacher.sample_rate)) for text in texts])
    for name, result in results.items():
        print(f"{name}: WER {100 * result['wer']:.1f} % over {result['words']} words")
    if options.out:
        options.out.write_text(json.dumps(results, indent=1, ensure_ascii=False))


def _listener(folder: Path):  # type: ignore[no-untyped-def]
    from faster_whisper import WhisperModel

    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=2)

    def listen(wave: np.ndarray, rate_hz: int) -> str:
        audio = soxr.resample(np.asarray(wave, np.float32), rate_hz, ASR_HZ)
        segments, _ = model.transcribe(
            audio, language="en", beam_size=5, without_timestamps=True, condition_on_previous_text=False
        )
        return " ".join(segment.text.strip() for segment in segments)

    return listen


def _score(pairs: list[tuple[str, str]]) -> dict[str, object]:
    """Errors over all words, and what was heard wherever it differs."""
    scored = [(_distance(_words(said), _words(heard)), len(_words(said)), said, heard) for said, heard in pairs]
    words = sum(count for _, count, _, _ in scored)
    misheard = [{"errors": e, "said": said, "heard": heard} for e, _, said, heard in scored if e]
    return {"wer": sum(e for e, *_ in scored) / words, "words": words, "misheard": misheard}


def _words(text: str) -> list[str]:
    """Lower-case words, digits spelled, hyphens and punctuation aside."""
    from num2words import num2words

    spelled = re.sub(r"\d+", lambda match: num2words(int(match[0])), text.lower().replace("-", " "))
    return re.sub(r"[^a-z ]", " ", spelled.replace("'", "").replace("-", " ")).split()


def _distance(said: list[str], heard: list[str]) -> int:
    """Word edits (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1]


if __name__ == "__main__":
    main()
