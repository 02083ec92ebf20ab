"""Command line of the trainers; `recipes/piccolo/run.sh` shows every stage in order.

python -m legato.training STAGE --work DIR --corpus DIR [--corpus DIR …] [--minutes M | --core-minutes M | --steps N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from .export import export
from .loop import Budget, Progress
from .settings import Recipe, read_recipe
from .stages import (
    Workshop,
    make_codes,
    make_features,
    slim,
    train_codec,
    train_flow,
    train_lm,
    train_vocoder,
    write_config,
)

TRAINERS: dict[str, Callable[[Workshop, Budget], Progress]] = {
    "codec": train_codec,
    "lm": train_lm,
    "flow": train_flow,
    "vocoder": train_vocoder,
}
STAGES = ("config", "features", "codes", "slim", "export", *TRAINERS)


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high")
    recipe = read_recipe(options.recipe) if options.recipe else Recipe()
    shop = Workshop(options.work, tuple(options.corpus), recipe, options.device, options.start)
    if options.stage in TRAINERS:
        of_core = options.core_minutes is not None
        minutes = options.core_minutes if of_core else options.minutes
        TRAINERS[options.stage](shop, Budget(options.steps, minutes, of_core))
    elif options.stage == "config":
        write_config(shop, options.sizes)
    elif options.stage == "features":
        make_features(shop)
    elif options.stage == "codes":
        print(f"{make_codes(shop)} of {shop.config.codes} codes are used")
    elif options.stage == "slim":
        slim(shop)
    else:
        voices = dict(pair.split("=", 1) for pair in options.voice)
        print(f"{export(shop, options.out, voices) / 1e6:.1f} MB in {options.out}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m legato.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--work", required=True, type=Path, help="folder of config.json and the checkpoints")
    parser.add_argument("--corpus", required=True, type=Path, action="append", help="corpus folder; may be repeated")
    parser.add_argument("--recipe", type=Path, help="settings of the trainers (TOML)")
    parser.add_argument("--sizes", type=Path, help="config: sizes of the nets (JSON)")
    parser.add_argument("--start", type=Path, help="checkpoint folder of piccolo to start from")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--minutes", type=float, help="by the clock")
    parser.add_argument("--core-minutes", type=float, help="of computing, whatever else the machine does")
    parser.add_argument("--out", type=Path, help="export: checkpoint folder to write")
    parser.add_argument("--voice", action="append", default=[], metavar="NAME=SPEAKER", help="export; may be repeated")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
