"""`legato doctor`: is all well here?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import legato
from legato import doctor as checks
from legato.config import Config, load_config
from legato.doctor import Finding, look
from legato.engine import SpeechEngine
from legato.errors import SpeechError

from .options import DEFAULT_MODEL, ConfigOption, JsonFlag, ModelOption
from .terminal import FAILED, console

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "bold red")}


def doctor(
    model: ModelOption = None,
    config: ConfigOption = None,
    determinism: Annotated[
        bool, typer.Option("--determinism", help="Try more texts and window sizes: the same bits every time.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check whether all is well here; end with 1 when it is not.

    It looks at what is installed, the weights, the voice, that equal requests give equal bits, HTTP and memory.

    \b
    legato doctor
    legato doctor --determinism
    legato doctor --model ./my-checkpoint --json
    """
    name, settings = model or DEFAULT_MODEL, load_config(config)
    findings: list[Finding] = []
    with console.status("") as status, ExitStack() as stack:
        for step, check in _machine_checks(name, settings):
            status.update(f"checking {step}")
            findings += look(step, check)
        status.update(f"loading {name}")
        try:
            engine = stack.enter_context(legato.load(name, settings))
        except SpeechError as error:
            findings.append(Finding("model", "fail", str(error)))
        else:
            findings.append(Finding("model", "ok", f"{engine.model.name} fits its weights, on {engine.model.device}"))
            for step, check in _engine_checks(engine, determinism):
                status.update(f"checking {step}")
                findings += look(step, check)
    _show(findings, as_json)
    if not checks.healthy(findings):
        raise typer.Exit(FAILED)


Check = Callable[[], list[Finding]]


def _machine_checks(model: str, config: Config) -> Iterator[tuple[str, Check]]:
    yield "packages", checks.check_packages
    yield "device", partial(checks.check_device, config)
    yield "weights", partial(checks.check_weights, model)


def _engine_checks(engine: SpeechEngine, longer: bool) -> Iterator[tuple[str, Check]]:
    yield "attention", partial(checks.check_kernel, engine)
    yield "voice", partial(checks.check_voice, engine)
    yield "determinism", partial(checks.check_determinism, engine)
    if longer:
        yield "determinism", partial(checks.check_determinism_longer, engine)
    yield "http", partial(checks.check_http, engine)
    yield "memory", partial(checks.check_memory, engine)


def _show(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        report = {"healthy": checks.healthy(findings), "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(report, indent=1, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        sign, style = MARKS[finding.mark]
        table.add_row(Text(f"{sign} {finding.mark}", style), Text(finding.name), Text(finding.detail))
    Console(highlight=False).print(table)
