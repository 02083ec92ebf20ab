"""`legato config`: write a config file for a model, and check one against a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legato.config import Config, load_config
from legato.errors import ConfigError
from legato.families import load as load_model
from legato.fit import fit
from legato.protocols import LoadOptions, SpeechModel

from .config_file import config_text
from .options import DEFAULT_MODEL, ModelOption
from .outputs import STDOUT
from .terminal import note

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Write and check config files.")


@commands.command()
def init(
    output: Annotated[str, typer.Option("--output", "-o", help="Where to write.", metavar="FILE|-")] = "config.toml",
    model: ModelOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented config file with a model's facts filled in.

    \b
    legato config init
    legato config init --model ./my-checkpoint --output my.toml
    """
    if output != STDOUT and Path(output).exists() and not force:
        raise ConfigError(f"{output} is there already; --force replaces it, --output names another")
    text = config_text(load_model(model or DEFAULT_MODEL, LoadOptions()))
    if output == STDOUT:
        typer.echo(text, nl=False)
        return
    Path(output).write_text(text, encoding="utf-8")
    note(f"wrote {output}")


@commands.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The config file.")],
    model: ModelOption = None,
) -> None:
    """Check a config file against a model.

    \b
    legato config check config.toml --model ./my-checkpoint
    """
    config = load_config(file)
    loaded = _load_as_configured(model or DEFAULT_MODEL, config)
    fitted = fit(config, loaded)
    for warning in [*fitted.warnings, *_missing_keys(config)]:
        note(f"warning: {warning}", style="yellow")
    note(f"{file} is good for {loaded.name}")


def _load_as_configured(model: str, config: Config) -> SpeechModel:
    """The model as `legato.load` makes it, but on the CPU: a file may be checked where its device is missing."""
    steps = config.engine.ode_steps or config.codec_streaming.flow_matching_steps
    return load_model(model, LoadOptions(ode_steps=steps, exact_joins=config.engine.exact_joins))


def _missing_keys(config: Config) -> list[str]:
    """Variables of keys that are not set here."""
    problems = []
    for section in (config.server, config.api):
        try:
            if section is not None:
                _ = section.api_key
        except ConfigError as error:
            problems.append(str(error))
    return problems
