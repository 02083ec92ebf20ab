from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest

import legato

from .conversing import chat_of, small_engine
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


@pytest.fixture(scope="session")
def shared_talker() -> Iterator[Server]:
    """A server with the small model that holds conversations."""
    with small_engine() as engine, serving(engine, keep_alive_s=5.0) as server:
        yield server


@pytest.fixture
def talker(shared_talker: Server) -> Server:
    chat_of(shared_talker).slow = False
    chat_of(shared_talker).requests.clear()
    return shared_talker


@pytest.fixture
def talker_client(talker: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=talker.url, timeout=10) as client:
        yield client


@pytest.fixture
def openai_talker(talker: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=talker.url + "/v1", api_key="none", max_retries=0) as client:
        yield client
