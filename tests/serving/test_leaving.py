"""Clients that leave, and clients that do not read: by real sockets."""

from __future__ import annotations

import json
import socket
import time

import httpx
import pytest

from .fakes import Plan, Server, wait_for

STEP_S = 0.05
"""Far below the time between two chunks in these tests: it is the leaving that ends the request, not the next chunk."""


def ask(server: Server, receive_buffer: int | None = None, **fields: object) -> socket.socket:
    """A connection that has sent its request."""
    content = json.dumps({"model": "fake", "voice": "ada", "input": "hello", **fields}).encode()
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(("127.0.0.1", server.port))
    head = "POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


def cancelled_after_s(server: Server, connection: socket.socket) -> float:
    """Seconds from closing the connection until the engine is told."""
    left_s = time.perf_counter()
    connection.close()
    run = server.engine.runs[-1]
    assert run.cancelled.wait(2)
    assert run.cancelled_s is not None
    return run.cancelled_s - left_s


@pytest.mark.parametrize("fields", [{}, {"stream_format": "sse"}, {"stream": False}])
def test_leaving_before_the_first_sound(server: Server, fields: dict[str, object]) -> None:
    server.engine.plan = Plan(before_first_s=3)
    connection = ask(server, **fields)
    wait_for(lambda: server.engine.runs)
    time.sleep(0.05)
    assert cancelled_after_s(server, connection) < STEP_S
    assert server.engine.runs[-1].made_chunks == 0


@pytest.mark.parametrize("fields", [{"response_format": "pcm"}, {"stream_format": "sse"}, {"stream": False}])
def test_leaving_in_the_middle(server: Server, fields: dict[str, object]) -> None:
    server.engine.plan = Plan(between_s=1.0)
    connection = ask(server, **fields)
    wait_for(lambda: server.engine.runs and server.engine.runs[-1].made_chunks)
    if fields != {"stream": False}:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert cancelled_after_s(server, connection) < STEP_S


def test_one_that_leaves_does_not_disturb_the_others(server: Server) -> None:
    server.engine.plan = Plan(between_s=0.02)
    leaving = ask(server)
    with httpx.stream("POST", server.url + "/v1/audio/speech", json={"model": "fake", "input": "hi"}) as answer:
        leaving.close()
        assert len(answer.read()) > 1000
    assert [run.made_chunks for run in server.engine.runs if run.request.text == "hi"] == [10]


def test_a_reader_that_stops_stops_its_engine(server: Server) -> None:
    """Only the buffers of the two sockets and of uvicorn fill up; then nothing more is made until it reads on."""
    server.engine.plan = Plan(chunks=1500, chunk_samples=24000, queue_chunks=3)
    connection = ask(server, receive_buffer=65536, response_format="pcm")
    connection.settimeout(5)
    wait_for(lambda: server.engine.runs and server.engine.runs[-1].made_chunks > 3)
    run = server.engine.runs[-1]

    def stands_still() -> bool:
        before = run.made_chunks
        time.sleep(0.15)
        return run.made_chunks == before

    wait_for(stands_still)
    made = run.made_chunks
    assert made * 48000 < 12e6 < server.engine.plan.samples * 2
    assert run.most_waiting <= 3
    received = 0
    while received < 12e6:
        received += len(connection.recv(1 << 20))
    assert run.made_chunks > made
    connection.close()
    assert run.cancelled.wait(2)


def test_leaving_while_not_reading(server: Server) -> None:
    server.engine.plan = Plan(chunks=1500, chunk_samples=24000, queue_chunks=3)
    connection = ask(server, receive_buffer=65536, response_format="pcm")
    wait_for(lambda: server.engine.runs and server.engine.runs[-1].made_chunks > 20)
    time.sleep(0.1)
    assert cancelled_after_s(server, connection) < STEP_S


def test_the_server_answers_others_while_one_stream_is_ahead(server: Server) -> None:
    """A stream whose chunks are all there must not keep the event loop to itself."""
    server.engine.plan = Plan(chunks=400, chunk_samples=24000, queue_chunks=400)
    connection = ask(server, response_format="mp3", stream=False)
    wait_for(lambda: server.engine.runs)
    began_s = time.perf_counter()
    assert httpx.get(server.url + "/health").status_code == 200
    assert time.perf_counter() - began_s < 1.0
    assert not server.engine.runs[-1].cancelled.is_set()
    connection.close()
    assert server.engine.runs[-1].cancelled.wait(2)
