"""`legato serve`: the HTTP server around one engine."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

import legato
from legato.config import Config, ServerConfig, load_config
from legato.engine import SpeechEngine
from legato.errors import ConfigError, SpeechError

from .options import DEFAULT_MODEL, ConfigOption, ModelOption, VoicesDirOption, with_voices
from .terminal import console, note

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

DRAIN_S = 30
"""How long running requests may go on after the server was told to stop; a second Ctrl-C ends them."""


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [127.0.0.1]", metavar="HOST")] = None,
    port: Annotated[
        int | None, typer.Option(help="0 takes a free one. [8000]", min=0, max=65535, metavar="PORT")
    ] = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    voices_dir: VoicesDirOption = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="The environment variable that holds the key clients must send.", metavar="NAME")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Let other machines in without a key.")] = False,
) -> None:
    """Serve OpenAI's /v1/audio/speech, and a page to try it.

    \b
    legato serve
    LEGATO_KEY=… legato serve --host 0.0.0.0 --api-key-env LEGATO_KEY
    curl -s localhost:8000/v1/audio/speech -d '{"model":"piccolo","input":"Hello","response_format":"wav"}' \\
         -H 'Content-Type: application/json' > hello.wav
    """
    settings = _with_choices(with_voices(load_config(config), voices_dir), host, port, api_key_env)
    _check_exposure(settings.server, insecure)
    logging.getLogger("legato").setLevel(logging.INFO)
    name = model or DEFAULT_MODEL
    with listen(settings.server) as listener:
        with console.status(f"loading {name}"):
            engine = legato.load(name, settings)
        with engine:
            _run(engine, settings.server, listener)


def _with_choices(config: Config, host: str | None, port: int | None, api_key_env: str | None) -> Config:
    """The config with what was given on the command line."""
    given = {"host": host, "port": port, "api_key_env": api_key_env}
    changes = {name: value for name, value in given.items() if value is not None}
    return config.model_copy(update={"server": config.server.model_copy(update=changes)})


def _check_exposure(server: ServerConfig, insecure: bool) -> None:
    """Refuse to be reachable by other machines without a key. Raises ConfigError."""
    if server.api_key is None and not insecure and not is_loopback(server.host):
        raise ConfigError(
            f"listening on {server.host} lets other machines speak without a key: name the variable that holds one "
            "with --api-key-env (or server.api_key_env), or say --insecure"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(server: ServerConfig) -> socket.socket:
    """The listening socket, taken before the model is loaded. Raises SpeechError when it cannot be had."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    try:
        return socket.create_server((server.host, server.port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SpeechError(f"cannot listen on {server.host} port {server.port}: {reason}") from None


def _run(engine: SpeechEngine, config: ServerConfig, listener: socket.socket) -> None:
    """Serve until stopped by a signal; the health check answers while the engine warms up."""
    import uvicorn

    from legato.serving.app import create_app

    app = create_app(engine, config)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: object) -> None:
            app.state.ready = False
            super().handle_exit(sig, frame)  # type: ignore[arg-type]

    # Logs go where ours go: uvicorn's own would write to stdout.
    server = Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=DRAIN_S))
    url = f"http://{_shown_host(config.host)}:{listener.getsockname()[1]}"
    failures: list[Exception] = []
    threading.Thread(target=_warm_up, args=(engine, app, server, url, failures), daemon=True).start()
    # uvicorn raises the signal again once it has shut down; both kinds then end here, with the engine closed in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    if failures:
        raise failures[0]
    note("stopped")


def _warm_up(engine: SpeechEngine, app: FastAPI, server: uvicorn.Server, url: str, failures: list[Exception]) -> None:
    """Speak once, then let requests in. A failure stops the server."""
    try:
        engine.warm_up()
    except SpeechError as error:
        failures.append(error)
        server.should_exit = True
        return
    app.state.ready = not server.should_exit
    note(f"{engine.model.name} is ready: {url} (open it in a browser to try the voice; Ctrl-C stops)")


def _shown_host(host: str) -> str:
    """The host as a browser on this machine writes it."""
    if host in ("0.0.0.0", "::"):
        return "localhost"
    return f"[{host}]" if ":" in host else host
