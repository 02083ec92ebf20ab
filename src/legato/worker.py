"""Worker: the one thread that computes.

torch keeps a team of helper threads for every thread that calls it, and two teams on the same cores put each other to
sleep at every operation: loading in one thread and speaking in another is half as fast. So everything that computes,
from reading the weights on, runs here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs jobs one after the other in a daemon thread of its own, until closed."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def start(self, job: Callable[[], T]) -> Future[T]:
        """Queue a job."""
        future: Future[T] = Future()
        self._jobs.put((job, future))
        return future

    def call(self, job: Callable[[], T]) -> T:
        """Run a job and return what it returns, or raise what it raises."""
        return self.start(job).result()

    def close(self) -> None:
        """End the thread after the jobs queued so far, and wait for that unless called from one of them."""
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
