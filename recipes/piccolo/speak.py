"""Teachers read the training sentences into a corpus: English by hibari-tts, many speakers and Mandarin by Kokoro.

    python recipes/piccolo/speak.py hibari --model hibari.onnx --texts DIR --out DIR --minutes 300
    python recipes/piccolo/speak.py kokoro --model kokoro.onnx --voices DIR --texts DIR --out DIR --minutes 60

`--model` is the teacher's ONNX file with its durations as one more output (durations.py). `--minutes` counts what is in
the corpus, so a second call goes on where the first stopped. Kokoro's speakers are convex blends of voice packs of one
language; the packs in HELD_OUT are never used, so that cloning can be tried on voices nobody has learned: with
`--unseen` they, and blends of them, are all that speaks. `--read FILE --speaker PACK` has one pack read a file instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from legato.families.piccolo import WEIGHTS
from legato.families.piccolo.config import read_config
from legato.families.piccolo.g2p import Phonemes
from legato.training.corpus import CorpusWriter, Spoken

HELD_OUT = ("af_kore", "am_echo", "bf_lily", "zf_xiaoyi", "zm_yunyang")
BUILT_IN = {"en": ("af_heart", "am_michael"), "zh": ("zf_xiaoxiao", "zm_yunxi")}
PREFIXES = {"en": ("af_", "am_", "bf_", "bm_"), "zh": ("zf_", "zm_")}
BUILT_IN_SHARE = 0.4
"""Of the speakers drawn, how many are the voices that the model will have by name."""

UTTERANCES_PER_SPEAKER = 4
MIXED_SHARE = 0.25
"""Of what a Mandarin speaker says, how much has English words in it."""

PHONEMES = (10, 190)
STYLE_ROWS = 510


@dataclass(frozen=True)
class Line:
    """What is to be said, by whom; Kokoro needs the speaker's pack, float32 [510, 256]: a row for each length."""

    text: str
    language: str
    speaker: str
    pack: np.ndarray | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", choices=("hibari", "kokoro"))
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--voices", type=Path, help="folder of Kokoro's voice packs (*.bin)")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--minutes", required=True, type=float)
    parser.add_argument("--read", type=Path, help="lines for one Kokoro voice to read, instead of --texts")
    parser.add_argument("--speaker", default="zf_xiaoxiao", help="whose voice --read is in")
    parser.add_argument("--unseen", action="store_true", help="speak with the packs kept out of training only")
    parser.add_argument("--mandarin", type=float, default=0.5, help="share of Kokoro's speakers that speak Mandarin")
    parser.add_argument("--seed", type=int, default=0, help="another one for every folder that is made at once")
    options = parser.parse_args()
    writer = CorpusWriter(options.out)
    session = _session(options.model)
    if options.teacher == "hibari":
        lines, render = _hibari_lines(options.texts), _hibari(session)
    elif options.read:
        pack = _packs(options.voices, options.speaker in HELD_OUT)[options.speaker]
        texts = options.read.read_text(encoding="utf-8").splitlines()
        language = "zh" if options.speaker.startswith(PREFIXES["zh"]) else "en"
        lines, render = (Line(text, language, options.speaker, pack) for text in texts), _kokoro(session)
    else:
        packs, order = _packs(options.voices, options.unseen), np.random.default_rng([options.seed, writer.count])
        lines = _kokoro_lines(options.texts, packs, order, options.unseen, options.mandarin)
        render = _kokoro(session)
    in_order = options.teacher == "hibari" or options.read
    _speak(writer, lines, render, options.minutes, skip=writer.count if in_order else 0)


def _speak(
    writer: CorpusWriter,
    lines: Iterator[Line],
    render: Callable[[Line, list[int]], tuple[np.ndarray, np.ndarray]],
    minutes: float,
    skip: int,
) -> None:
    """Render lines until the corpus holds so many minutes; the first `skip` that could be read are there already."""
    phonemize = Phonemes()
    inventory = read_config(WEIGHTS / "config.json").phonemes
    begun, cpu, before = time.monotonic(), time.process_time(), writer.seconds
    for line in lines:
        if writer.seconds >= 60 * minutes:
            break
        ids = [0, *(inventory[c] for c in phonemize(line.text) if c in inventory), 0]
        if not PHONEMES[0] <= len(ids) <= PHONEMES[1]:
            continue
        if skip:
            skip -= 1
            continue
        wave, durations = render(line, ids)
        spoken = Spoken(line.text, line.language, line.speaker, tuple(ids), tuple(int(d) for d in durations), 0, 0)
        writer.add(spoken, wave)
        if writer.count % 50 == 0:
            made = writer.seconds - before
            cost = f"{(time.process_time() - cpu) / made:.3f} core-s per s, {made / (time.monotonic() - begun):.2f}x"
            print(f"{writer.count} utterances, {writer.seconds / 60:.1f} min, {cost}", flush=True)


def _session(model: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _read(texts: Path, language: str) -> list[str]:
    return (texts / f"texts_{language}.txt").read_text(encoding="utf-8").splitlines()


def _hibari_lines(texts: Path) -> Iterator[Line]:
    for text in _read(texts, "en"):
        yield Line(text, "en", "hibari", None)


def _hibari(session: onnxruntime.InferenceSession) -> Callable[[Line, list[int]], tuple[np.ndarray, np.ndarray]]:
    from hibari import dsp

    def render(line: Line, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
        feeds = {"ids": np.asarray([ids], np.int64), "speed": np.ones(1, np.float32)}
        *spectra, durations = session.run(None, feeds)
        wave = dsp.synth(*(part[0] for part in spectra[:6]), np.random.default_rng(len(ids)))
        return wave, durations.reshape(-1)

    return render


def _packs(folder: Path, unseen: bool) -> dict[str, np.ndarray]:
    """Voice packs by name: those to learn, or those kept out."""
    files = [path for path in sorted(folder.glob("*.bin")) if (path.stem in HELD_OUT) == unseen]
    return {path.stem: np.fromfile(path, np.float32).reshape(STYLE_ROWS, -1) for path in files}


def _kokoro_lines(
    texts: Path, packs: dict[str, np.ndarray], order: np.random.Generator, unseen: bool, mandarin: float
) -> Iterator[Line]:
    """Speaker after speaker, a few sentences each."""
    said = {language: _read(texts, language) for language in ("en", "zh", "mixed")}
    while True:
        group = "zh" if order.random() < mandarin else "en"
        speaker, pack = _speaker(group, packs, order, built_in=not unseen and order.random() < BUILT_IN_SHARE)
        for _ in range(UTTERANCES_PER_SPEAKER):
            language = "mixed" if group == "zh" and order.random() < MIXED_SHARE else group
            yield Line(str(order.choice(said[language])), group, speaker, pack)


def _speaker(
    group: str, packs: dict[str, np.ndarray], order: np.random.Generator, built_in: bool
) -> tuple[str, np.ndarray]:
    """A voice that the model will have by name, or a blend of one to three packs."""
    if built_in:
        name = str(order.choice(BUILT_IN[group]))
        return name, packs[name]
    pool = [name for name in packs if name.startswith(PREFIXES[group])]
    names = [str(name) for name in order.choice(pool, int(order.integers(1, min(3, len(pool)) + 1)), replace=False)]
    shares = order.dirichlet(np.full(len(names), 1.5))
    label = "+".join(f"{share:.3f}{name}" for share, name in zip(shares, names, strict=True))
    return label, sum(share * packs[name] for share, name in zip(shares, names, strict=True))


def _kokoro(session: onnxruntime.InferenceSession) -> Callable[[Line, list[int]], tuple[np.ndarray, np.ndarray]]:
    def render(line: Line, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
        assert line.pack is not None
        style = line.pack[min(len(ids) - 2, STYLE_ROWS) - 1][None].astype(np.float32)
        feeds = {"tokens": np.asarray([ids], np.int64), "style": style, "speed": np.ones(1, np.float32)}
        wave, durations = session.run(None, feeds)
        return wave.ravel(), durations.ravel()

    return render


if __name__ == "__main__":
    main()
