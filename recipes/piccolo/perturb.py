"""More speakers from a corpus, for nothing: every utterance once more, played faster or slower (higher or lower).

    python recipes/piccolo/perturb.py --corpus DIR [--corpus DIR …] --out DIR

One factor per speaker, so a perturbed speaker is as much of one voice as the first. (Speed perturbation: Ko et al.,
"Audio Augmentation for Speech Recognition", Interspeech 2015; here for timbre rather than for recognition.)
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import soxr

from legato.training.corpus import SAMPLE_HZ, Corpus, CorpusWriter

FACTORS = (0.86, 0.90, 0.94, 1.06, 1.11, 1.17)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, type=Path, action="append")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    corpus, writer = Corpus(options.corpus), CorpusWriter(options.out)
    order = np.random.default_rng(options.seed)
    factors = {speaker: float(order.choice(FACTORS)) for speaker in corpus.speakers}
    for index, spoken in list(enumerate(corpus.utterances))[writer.count :]:
        factor = factors[spoken.speaker]
        faster = soxr.resample(corpus.wave(index), SAMPLE_HZ * factor, SAMPLE_HZ)
        durations = scaled(spoken.durations, factor)
        writer.add(replace(spoken, speaker=f"{spoken.speaker}@{factor}", durations=durations), faster)
    print(f"{writer.count} utterances, {writer.seconds / 60:.1f} min")


def scaled(durations: tuple[int, ...], factor: float) -> tuple[int, ...]:
    """Durations of what is said `factor` times as fast; their sums stay within half a unit of the truth."""
    ends = np.rint(np.cumsum(durations) / factor).astype(int)
    return tuple(int(d) for d in np.diff(ends, prepend=0))


if __name__ == "__main__":
    main()
