"""A corpus in one small file, to be carried to a machine that trains: what is said, mels and pitch in a byte each.

    python -m legato.training.packing pack FOLDER FILE.npz
    python -m legato.training.packing unpack FILE.npz FOLDER

4 kB per second of speech before compression. The samples stay behind, so a vocoder cannot be trained on what comes out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from legato.errors import CheckpointError

from .corpus import MEL_BINS

MEL_LOW, MEL_HIGH = -12.0, 3.0
PITCH_LOW, PITCH_HIGH = 4.0, 6.2
"""ln(Hz) of 1 … 255; 0 is unvoiced."""


def pack(folder: Path, out: Path) -> int:
    """Write the packed corpus; its size in bytes. Raises CheckpointError naming what the folder lacks."""
    try:
        lines = (folder / "utterances.jsonl").read_bytes()
        mel = np.fromfile(folder / "speech.mel", np.float16).reshape(-1, MEL_BINS)
        pitch = np.fromfile(folder / "speech.pitch", np.float16).astype(np.float32)
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename} is missing: make the corpus' features first") from None
    heights = np.clip(1 + 254 * (pitch - PITCH_LOW) / (PITCH_HIGH - PITCH_LOW), 1, 255)
    packed = {
        "utterances": np.frombuffer(lines, np.uint8),
        "mel": _bytes((mel.astype(np.float32) - MEL_LOW) / (MEL_HIGH - MEL_LOW)),
        "pitch": np.where(pitch > 0, np.rint(heights), 0).astype(np.uint8),
    }
    np.savez_compressed(out, **packed)  # type: ignore[arg-type]
    return out.stat().st_size


def unpack(file: Path, folder: Path) -> None:
    """Make a corpus folder without samples. Raises CheckpointError when the file is not a packed corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with np.load(file, allow_pickle=False) as packed:
            mel = packed["mel"].astype(np.float32) / 255 * (MEL_HIGH - MEL_LOW) + MEL_LOW
            heights = packed["pitch"].astype(np.float32)
            lines = packed["utterances"].tobytes()
    except (OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{file} is not a packed corpus: {error}") from error
    pitch = np.where(heights > 0, PITCH_LOW + (heights - 1) / 254 * (PITCH_HIGH - PITCH_LOW), 0)
    (folder / "utterances.jsonl").write_bytes(lines)
    mel.astype(np.float16).tofile(folder / "speech.mel")
    pitch.astype(np.float16).tofile(folder / "speech.pitch")


def _bytes(shares: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1] as bytes."""
    rounded: np.ndarray = np.rint(np.clip(shares, 0, 1) * 255).astype(np.uint8)
    return rounded


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m legato.training.packing", description=__doc__.split("\n")[0])
    parser.add_argument("direction", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args(arguments)
    if options.direction == "pack":
        print(f"{pack(options.source, options.target) / 1e6:.1f} MB in {options.target}")
    else:
        unpack(options.source, options.target)


if __name__ == "__main__":
    main()
