"""The `legato` command line."""

from __future__ import annotations

from typing import Annotated

import typer

import legato

from . import bench, chat, config, convert, doctor, glmtts, say, serve, voices_add
from .terminal import Commands, set_up_logging

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
app.command()(say.say)
app.command()(chat.chat)
app.command()(serve.serve)
app.add_typer(voices_add.commands, name="voices")
app.command()(bench.bench)
app.command()(doctor.doctor)
app.command()(glmtts.glmtts)
app.add_typer(convert.commands, name="convert")
app.add_typer(config.commands, name="config")


def main() -> None:
    """The entry point."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"legato {legato.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what happens, with tracebacks.")] = False,
) -> None:
    """Streaming speech generation: first sound early, and never a gap.

    \b
    legato say "Good morning." -o morning.wav
    legato serve
    legato doctor
    """
    set_up_logging(verbose)
