from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import legato

from .fakes import FakeEngine, Plan, Server, serving


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    with serving(FakeEngine()) as server:
        yield server


@pytest.fixture(scope="session")
def real() -> Iterator[Server]:
    """A server with the embedded voice."""
    with legato.load() as engine:
        engine.warm_up()
        with serving(engine) as server:
            yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """The shared server, with an engine that has forgotten the test before."""
    shared_server.engine.plan = Plan()
    shared_server.engine.runs.clear()
    return shared_server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=10) as client:
        yield client
