"""`legato bench`: how soon, how fast, how steadily."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import legato
from legato.bench.compare import WAYS, Trial, compare, medians
from legato.bench.machine import machine_facts
from legato.bench.plot import check_plotting, plot_sweep
from legato.bench.speakers import EngineSpeaker, RemoteSpeaker, Speaker
from legato.bench.sweep import LEAST_ROUNDS, Take, sweep
from legato.bench.tables import compare_table, sweep_table
from legato.bench.texts import TEXTS
from legato.config import ApiConfig, load_config
from legato.errors import SpeechError
from legato.remote import RemoteSpeech

from .options import DEFAULT_MODEL, ConfigOption, ModelOption, VoiceOption
from .outputs import check_file
from .terminal import console, note


def bench(
    concurrency: Annotated[
        str, typer.Option(help="Listeners at the same time, level by level.", metavar="N…")
    ] = "1 2 4 8 16",
    requests: Annotated[
        int, typer.Option(help=f"Requests per level; {LEAST_ROUNDS} per listener at least.", min=1, metavar="N")
    ] = 24,
    comparing: Annotated[bool, typer.Option("--compare", help="Instead: no cache, cache, cache + streaming.")] = False,
    rounds: Annotated[int, typer.Option(help="With --compare: how often each text is spoken.", min=1, metavar="N")] = 3,
    url: Annotated[
        str | None, typer.Option(help="Measure this OpenAI-compatible endpoint instead.", metavar="URL")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="With --url: the variable that holds its key.", metavar="NAME")
    ] = None,
    voice: VoiceOption = None,
    model: ModelOption = None,
    seed: Annotated[int, typer.Option(help="Of the first text; the others follow.", min=0, metavar="N")] = 0,
    config: ConfigOption = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures of all streams.", metavar="FILE")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the sweep.", metavar="FILE.png")] = None,
) -> None:
    """Measure first sound, speed, underrun and throughput.

    Everything is measured where it is heard: at the reader of each stream.

    \b
    legato bench
    legato bench --concurrency "1 4 16" --json bench.json --plot bench.png
    legato bench --compare
    legato bench --url http://127.0.0.1:8000 --voice alloy
    """
    levels = _levels(concurrency)
    if comparing and (url is not None or plot is not None):
        raise typer.BadParameter(
            "it compares ways of the engine here, in a table: leave --url and --plot out", param_hint="--compare"
        )
    for target in (json_file, plot):
        if target is not None:
            check_file(target)
    if plot is not None:
        check_plotting()
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with _speaker(url, api_key_env, model, voice, config) as speaker:
        if isinstance(speaker, EngineSpeaker) and comparing:
            results = _compare(speaker, rounds, seed)
        else:
            results = _sweep(speaker, levels, requests, seed, plot)
    if json_file is not None:
        head = {"date": began, "machine": machine_facts(), "speaker": speaker.name}
        json_file.write_text(json.dumps(head | results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        note(f"wrote {json_file}")


@contextmanager
def _speaker(
    url: str | None, api_key_env: str | None, model: str | None, voice: str | None, config: Path | None
) -> Iterator[Speaker]:
    """An endpoint, or an engine of our own."""
    settings = load_config(config)
    if url is not None:
        with RemoteSpeech(ApiConfig(base_url=url, api_key_env=api_key_env), model) as client:
            yield RemoteSpeaker(client, voice)
        return
    name = model or DEFAULT_MODEL
    with console.status(f"loading {name}"):
        engine = legato.load(name, settings)
    with engine:
        yield EngineSpeaker(engine, voice)


def _levels(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise typer.BadParameter(f"{text!r} is not a list of numbers such as 1 2 4", param_hint="--concurrency")
    return [int(word) for word in words]


def _sweep(speaker: Speaker, levels: Sequence[int], requests: int, seed: int, plot: Path | None) -> dict[str, Any]:
    total = sum(max(requests, LEAST_ROUNDS * level) for level in levels)
    with _progress() as progress:
        task = progress.add_task(f"{levels[0]} listening", total=total)

        def on_take(concurrency: int, take: Take) -> None:
            progress.update(task, advance=1, description=f"{concurrency} listening")

        done = sweep(speaker, levels, requests, seed, on_take)
    _refuse_silence([take for level in done for take in level.takes])
    console.print(sweep_table(done))
    if plot is not None:
        plot_sweep(done, f"{speaker.name} · {machine_facts()['cpu']}", plot)
        note(f"wrote {plot}")
    settings = {"concurrency": list(levels), "requests": requests, "seed": seed}
    raw = [level.summary() | {"streams": [take.as_dict() for take in level.takes]} for level in done]
    return {"kind": "sweep", "settings": settings, "levels": raw}


def _refuse_silence(takes: Sequence[Take]) -> None:
    """Raise SpeechError, with the first reason given, when not one stream was heard to its end."""
    if all(take.report is None for take in takes):
        raise SpeechError(f"no stream was heard: {takes[0].error}")


def _compare(speaker: EngineSpeaker, rounds: int, seed: int) -> dict[str, Any]:
    with _progress() as progress:
        task = progress.add_task("comparing", total=rounds * len(TEXTS) * len(WAYS))

        def on_trial(trial: Trial) -> None:
            progress.update(task, advance=1, description=f"{trial.kind}: {trial.way}")

        trials = compare(speaker, rounds, seed, 1, on_trial)
    _refuse_silence([trial.take for trial in trials])
    console.print(compare_table(trials))
    raw = [trial.as_dict() for trial in trials]
    return {"kind": "compare", "settings": {"rounds": rounds, "seed": seed}, "medians": medians(trials), "trials": raw}


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
