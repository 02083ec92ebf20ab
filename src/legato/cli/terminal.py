"""What the commands share on the terminal: one console on stderr, logs and errors of one line, exit codes."""

from __future__ import annotations

import errno
import logging
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from legato.errors import SpeechError

FAILED, INTERRUPTED = 1, 130

console = Console(stderr=True, highlight=False)
"""Everything for people goes here: stdout may be carrying sound."""


class Commands(TyperGroup):
    """A group of commands whose failures are one line for the user: 1 for errors, 130 after Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SpeechError as error:
            say_error(error)
            raise typer.Exit(FAILED) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of our output has enough
                raise
            say_error(error)
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def say_error(error: Exception) -> None:
    """Print `error: …`, in one line whatever the message."""
    note(f"error: {one_line(error)}", style="bold red")


def note(text: str, style: str | None = None) -> None:
    """Print a line for the user. Nothing in it is taken for markup, and long lines stay whole for scripts."""
    console.print(text, style=style, markup=False, soft_wrap=True)


def one_line(message: object) -> str:
    return " ".join(str(message).split())


def set_up_logging(verbose: bool) -> None:
    """Logs as lines on the console; warnings and worse, or everything with tracebacks when `verbose`."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _ConsoleHandler)]:
        root.removeHandler(handler)
    root.addHandler(_ConsoleHandler(verbose))
    root.setLevel(logging.INFO if verbose else logging.WARNING)


class _ConsoleHandler(logging.Handler):
    def __init__(self, verbose: bool) -> None:
        super().__init__()
        self.verbose = verbose
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if self.verbose:
            note(self.format(record))
        else:
            note(f"{record.levelname.lower()}: {one_line(record.getMessage())}")
