"""What a piccolo checkpoint is worth: understood, alike, fast, without seams. Prints the table of the model card.

    pip install "legato-speech[training]"
    python recipes/piccolo/evaluate.py --checkpoint DIR|piccolo --asr DIR [--languages en zh mixed] [--unseen CORPUS] \\
        [--samples DIR] [--out results.json]
    python recipes/piccolo/evaluate.py --spoken CORPUS --asr DIR --languages zh      # a teacher's own speech

`--asr` holds whisper-base for CTranslate2. The sentences beside this file are in no training text. `--unseen` is a
corpus of speakers that were kept out of training (speak.py --unseen); each is cloned from one of its utterances.
Streamed equals whole, so whole utterances are measured.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from listening import Listener, error_rate, syllables, units
from similarity import SpeakerMeter

import legato
from legato.engine import SpeechEngine
from legato.training.corpus import SAMPLE_HZ, Corpus
from legato.training.joins import line_at_the_block_rate_db, measure_joins

HERE = Path(__file__).parent
SHARE_OF_CEILING = 0.8
"""A clone should be this near to its reference, as a share of what the speaker's own other utterance is."""

RUNAWAY_S_PER_CHARACTER = {"en": 0.25, "zh": 0.8, "mixed": 0.6}
"""Longer than this per character, and an utterance has run away."""


@dataclass(frozen=True)
class Spoken:
    """One sentence as it was said."""

    text: str
    wave: np.ndarray
    compute_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default="piccolo", help="checkpoint folder, or the name of an embedded voice")
    parser.add_argument("--spoken", type=Path, help="judge what a corpus holds (speak.py --read) instead")
    parser.add_argument("--asr", required=True, type=Path, help="folder of whisper-base for CTranslate2")
    parser.add_argument("--languages", nargs="+", default=["en"], choices=("en", "zh", "mixed"))
    parser.add_argument("--voice", action="append", default=[], metavar="LANGUAGE=VOICE")
    parser.add_argument("--unseen", type=Path, help="corpus of speakers kept out of training")
    parser.add_argument("--reading", action="store_true", help="look for a line at the block rate in a long reading")
    parser.add_argument("--limit", type=int, default=1000, help="sentences per language")
    parser.add_argument("--seeds", type=int, default=1, help="renderings of each sentence")
    parser.add_argument("--samples", type=Path, help="folder for wav files")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    listener = Listener(options.asr)
    results = _of_corpus(options, listener) if options.spoken else _of_checkpoint(options, listener)
    print(_table(results))
    if options.out:
        options.out.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _of_checkpoint(options: argparse.Namespace, listener: Listener) -> dict[str, object]:
    voices = dict(pair.split("=", 1) for pair in options.voice)
    results: dict[str, object] = {}
    with legato.load(options.checkpoint) as engine:
        for language in options.languages:
            texts = (HERE / f"sentences_{language}.txt").read_text(encoding="utf-8").splitlines()[: options.limit]
            spoken = [
                _say(engine, text, voices.get(language), seed * len(texts) + number)
                for seed in range(options.seeds)
                for number, text in enumerate(texts)
            ]
            results[language] = _judged(spoken, language, listener)
            _write_samples(options.samples, language, spoken)
        if options.reading:
            results["reading_line_db"] = line_at_the_block_rate_db(_say(engine, _reading(), None, 0).wave)
        if options.unseen:
            results["clones"] = _clones(engine, options.unseen, listener)
    return results


def _reading() -> str:
    """About a minute of English."""
    return " ".join((HERE / "sentences_en.txt").read_text(encoding="utf-8").splitlines()[:25])


def _of_corpus(options: argparse.Namespace, listener: Listener) -> dict[str, object]:
    corpus = Corpus([options.spoken])
    chosen = range(min(options.limit, len(corpus)))
    spoken = [Spoken(corpus.utterances[i].text, corpus.wave(i), 0.0) for i in chosen]
    return {options.languages[0]: _judged(spoken, options.languages[0], listener)}


def _say(engine: SpeechEngine, text: str, voice: object, seed: int) -> Spoken:
    begun = time.perf_counter()
    audio = engine.generate(text, voice=voice, seed=seed)  # type: ignore[arg-type]
    return Spoken(text, audio.samples, time.perf_counter() - begun)


def _judged(spoken: list[Spoken], language: str, listener: Listener) -> dict[str, object]:
    heard = [listener.hear(one.wave, SAMPLE_HZ, "en" if language == "en" else "zh") for one in spoken]
    rate, misheard = error_rate([one.text for one in spoken], heard)
    seconds = sum(len(one.wave) for one in spoken) / SAMPLE_HZ
    limit = RUNAWAY_S_PER_CHARACTER[language]
    joins = measure_joins([one.wave for one in spoken])
    by_sound = error_rate([syllables(one.text) for one in spoken], [syllables(text) for text in heard])[0]
    return {
        "error_rate": rate,
        "syllable_error_rate": by_sound if language != "en" else rate,
        "utterances": len(spoken),
        "seconds": seconds,
        "rtf": sum(one.compute_s for one in spoken) / seconds,
        "endings_lost": sum(units(one.text)[-1] not in units(text) for one, text in zip(spoken, heard, strict=True)),
        "runaways": sum(len(one.wave) / SAMPLE_HZ > 1 + limit * len(one.text) for one in spoken),
        "join_ratio": joins.ratio,
        "join_line_db": joins.line_db,
        "misheard": misheard,
    }


def _clones(engine: SpeechEngine, folder: Path, listener: Listener) -> dict[str, object]:
    """Every unseen speaker, cloned from its longest utterance; the next one says how alike it could be."""
    corpus, meter = Corpus([folder]), SpeakerMeter()
    cloner = engine.model.cloner
    assert cloner is not None, "this checkpoint cannot clone"
    english = (HERE / "sentences_en.txt").read_text(encoding="utf-8").splitlines()
    mandarin = (HERE / "sentences_zh.txt").read_text(encoding="utf-8").splitlines()
    built_in = [meter.vector(_say(engine, english[0], name, 0).wave) for name in engine.model.voices]
    rows = []
    several = {
        speaker: sorted(said, key=lambda index: -corpus.utterances[index].samples)
        for speaker, said in corpus.speakers.items()
        if len(said) > 1
    }
    for number, (speaker, (first, second, *_)) in enumerate(several.items()):
        reference, other = (meter.vector(corpus.wave(i)) for i in (first, second))
        voice = cloner.clone(f"unseen{number}", corpus.wave(first)[None], SAMPLE_HZ, None)
        text = (english if corpus.utterances[first].language == "en" else mandarin)[1 + number % 40]
        clone = meter.vector(_say(engine, text, voice, number).wave)
        nearest = max(float(reference @ vector) for vector in built_in)
        rows.append(
            {
                "speaker": speaker,
                "clone": float(reference @ clone),
                "ceiling": float(reference @ other),
                "nearest": nearest,
            }
        )
    alike = [row["clone"] >= SHARE_OF_CEILING * row["ceiling"] and row["clone"] > row["nearest"] for row in rows]  # type: ignore[operator]
    return {"speakers": rows, "alike": sum(alike)}


def _write_samples(folder: Path | None, language: str, spoken: list[Spoken]) -> None:
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(spoken[:10]):
        soundfile.write(folder / f"{language}_{number:02d}.wav", one.wave, SAMPLE_HZ)


def _table(results: dict[str, object]) -> str:
    lines = [
        "| | errors | by sound | utterances | RTF | runaways | endings lost | join ratio | line at the block rate |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for language in ("en", "zh", "mixed"):
        if isinstance(row := results.get(language), dict):
            percents = " | ".join(f"{100 * row[name]:.1f} %" for name in ("error_rate", "syllable_error_rate"))
            lines.append(
                f"| {language} | {percents} | {row['utterances']} | {row['rtf']:.3f} | {row['runaways']} | "
                f"{row['endings_lost']} | {row['join_ratio']:.2f} | {row['join_line_db']:+.1f} dB |"
            )
    if "reading_line_db" in results:
        lines.append(f"| line at the block rate in a reading of a minute | {results['reading_line_db']:+.1f} dB |")
    if isinstance(clones := results.get("clones"), dict):
        for row in clones["speakers"]:
            nearest = f"nearest built-in {row['nearest']:.2f}"
            lines.append(f"| clone of {row['speaker']} | {row['clone']:.2f} of {row['ceiling']:.2f}, {nearest} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
