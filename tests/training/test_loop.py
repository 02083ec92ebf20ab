"""The schedule, and that an interrupted run ends where an uninterrupted one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from legato.training.loop import LONGEST_STEP_S, RATE_FLOOR, WARM_UP_STEPS, Budget, Learner, train


class Line:
    """Learns y = 2x + 1."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.learners = {"line": Learner(nn.Linear(1, 1), 0.3, average=0.9)}
        self.steps = 0

    def step(self, factor: float) -> dict[str, float]:
        learner = self.learners["line"]
        x = torch.tensor([[float(learner.updates % 7) - 3.0]])
        loss = (learner.net(x) - (2 * x + 1)).square().mean()
        learner.update(loss, factor)
        return {"loss": float(loss.detach())}

    def evaluate(self) -> dict[str, float]:
        return {}


def test_interrupted_equals_whole(tmp_path: Path) -> None:
    whole, first, second = Line(), Line(), Line()
    train(whole, Budget(steps=60), tmp_path / "whole", report_steps=10)
    task = first
    step = task.step

    def dies(factor: float) -> dict[str, float]:
        if task.learners["line"].updates == 33:
            raise KeyboardInterrupt
        return step(factor)

    task.step = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train(task, Budget(steps=60), tmp_path / "broken", report_steps=10, save_seconds=0)
    progress = train(second, Budget(steps=60), tmp_path / "broken", report_steps=10)
    assert progress.steps == 60
    for name, tensor in whole.learners["line"].weights().items():
        assert torch.equal(tensor, second.learners["line"].weights()[name])
    assert progress.history[-1]["loss"] < 0.5


def test_rate_rises_then_falls() -> None:
    budget = Budget(steps=1000)
    rates = [budget.rate(step, 0.0) for step in range(1000)]
    assert rates[0] == pytest.approx(1 / WARM_UP_STEPS, rel=0.01)
    assert max(rates) == pytest.approx(1.0, abs=0.03)
    assert rates[WARM_UP_STEPS:] == sorted(rates[WARM_UP_STEPS:], reverse=True)
    assert rates[-1] == pytest.approx(RATE_FLOOR, abs=0.001)


def test_minutes_count_too() -> None:
    assert Budget(minutes=2).spent(10**6, 30.0) == 0.25
    assert Budget(steps=10, minutes=2).spent(9, 30.0) == 0.9
    with pytest.raises(ValueError, match="steps or minutes"):
        Budget().spent(0, 0.0)


def test_a_gradient_that_is_not_finite_is_skipped() -> None:
    learner = Learner(nn.Linear(1, 1), 0.1)
    before = learner.net.weight.clone()
    learner.update(learner.net(torch.tensor([[float("inf")]])).sum(), 1.0)
    assert torch.equal(learner.net.weight, before)
    assert learner.updates == 0


def test_standing_still_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped for an hour in the middle of a step goes on where its schedule was."""
    task, now = Line(), [0.0]
    step = task.step

    def slow(factor: float) -> dict[str, float]:
        now[0] += 3604.0 if task.learners["line"].updates == 2 else 4.0
        return step(factor)

    task.step = slow  # type: ignore[method-assign]
    monkeypatch.setattr("legato.training.loop.time.monotonic", lambda: now[0])
    progress = train(task, Budget(steps=4), tmp_path, report_steps=10)
    assert progress.seconds == 4 + 4 + LONGEST_STEP_S + 4


def test_minutes_of_a_core_are_those_of_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, computed = Line(), [0.0]
    step = task.step

    def busy(factor: float) -> dict[str, float]:
        computed[0] += 6.0
        return step(factor)

    task.step = busy  # type: ignore[method-assign]
    monkeypatch.setattr("legato.training.loop.time.process_time", lambda: computed[0])
    progress = train(task, Budget(minutes=0.5, of_core=True), tmp_path)
    assert (progress.steps, progress.seconds) == (5, 30.0)
