"""The one thread that computes: jobs in order, results and errors come back."""

from __future__ import annotations

import threading

import pytest

from legato.engine import SpeechEngine
from legato.protocols import SpeechModel
from legato.worker import Worker


def test_jobs_run_in_one_other_thread_in_order() -> None:
    worker, seen = Worker("test"), []
    for number in range(5):
        worker.start(lambda number=number: seen.append((number, threading.current_thread().name)))  # type: ignore[misc]
    assert worker.call(lambda: 7) == 7
    worker.close()
    assert seen == [(number, "test") for number in range(5)]


def test_errors_come_back_and_the_next_job_runs() -> None:
    worker = Worker("test")
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda: 1 // 0)
    assert worker.call(lambda: "still here") == "still here"
    worker.close()


def test_the_engine_computes_only_there(piccolo: SpeechModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with SpeechEngine(piccolo) as engine:
        threads: set[str] = set()
        for stage in (engine.core.lm, engine.core.flow, engine.core.vocoder):
            run = stage.run
            monkeypatch.setattr(
                stage, "run", lambda b, run=run: (threads.add(threading.current_thread().name), run(b))[1]
            )
        engine.generate("Yes.")
        list(engine.stream("No."))
    assert threads == {"legato-engine"}
