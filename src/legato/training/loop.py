"""What all trainers share: a budget with its learning-rate schedule, one net with its optimiser, and the loop around.

The loop can be killed at any time: it goes on from its last checkpoint, and the schedule with it.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

WARM_UP_STEPS = 100
RATE_FLOOR = 0.02
"""The learning rate ends at this part of its height."""

LONGEST_STEP_S = 30.0
"""What a step counts for at most: if it took longer, the process was stopped meanwhile."""


@dataclass(frozen=True)
class Budget:
    """How long to train: steps or minutes, whichever ends first. Minutes in which the process stood still do not count
    (see LONGEST_STEP_S); with `of_core` only what was computed counts, so a busy machine does not shorten a run."""

    steps: int | None = None
    minutes: float | None = None
    of_core: bool = False

    def now_s(self) -> float:
        """The clock that minutes are read from."""
        return time.process_time() if self.of_core else time.monotonic()

    def spent(self, steps: int, seconds: float) -> float:
        """Share of the budget that is used up, 0 to 1."""
        shares = [steps / self.steps] if self.steps else []
        shares += [seconds / 60 / self.minutes] if self.minutes else []
        if not shares:
            raise ValueError("a budget needs steps or minutes")
        return min(1.0, max(shares))

    def rate(self, steps: int, seconds: float) -> float:
        """Learning-rate factor: a short warm-up, then half a cosine down. A budget in minutes ends annealed too."""
        warm = min(1.0, (steps + 1) / WARM_UP_STEPS)
        return warm * (RATE_FLOOR + (1 - RATE_FLOOR) * (0.5 + 0.5 * math.cos(math.pi * self.spent(steps, seconds))))


class Learner:
    """A net with AdamW, clipped gradients and, if `average` > 0, a moving average of its weights."""

    def __init__(
        self,
        net: nn.Module,
        rate: float,
        betas: tuple[float, float] = (0.9, 0.98),
        clip: float = 1.0,
        average: float = 0,
    ) -> None:
        self.net, self.rate, self.clip, self.average = net, rate, clip, average
        matrices = [p for p in net.parameters() if p.dim() > 1]
        others = [p for p in net.parameters() if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW([group for group in groups if group["params"]], rate, betas=betas)
        self.updates = 0
        self.averaged = {name: p.detach().clone() for name, p in net.named_parameters()} if average else {}

    def update(self, loss: Tensor, factor: float) -> float:
        """One step down the loss at `factor` of the learning rate. The norm of the gradient; not finite: no step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(self.net.parameters(), self.clip))
        if not math.isfinite(norm):
            return norm
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * factor
        self.optimizer.step()
        self.updates += 1
        share = 1 - min(self.average, (1 + self.updates) / (20 + self.updates))
        with torch.no_grad():
            for name, p in self.net.named_parameters() if self.averaged else ():
                self.averaged[name].lerp_(p, share)
        return norm

    def weights(self) -> dict[str, Tensor]:
        """The net's state, averaged where an average is kept."""
        return {name: t.detach().clone() for name, t in self.net.state_dict().items()} | self.averaged

    def state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "averaged": self.averaged,
            "updates": self.updates,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.averaged, self.updates = state["averaged"], state["updates"]


class Task(Protocol):
    """One net (or a pair that plays against each other) being learned."""

    learners: Mapping[str, Learner]

    def step(self, factor: float) -> dict[str, float]:
        """One update at `factor` of the learning rate; its losses by name."""

    def evaluate(self) -> dict[str, float]:
        """Losses on held-out utterances, always the same ones."""


@dataclass
class Progress:
    """What a run has done: `history` holds one line of mean losses per report."""

    steps: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


def train(
    task: Task,
    budget: Budget,
    folder: Path,
    say: Callable[[str], None] = print,
    report_steps: int = 100,
    save_seconds: float = 120.0,
) -> Progress:
    """Train within the budget, from the checkpoint in `folder` if there is one; leaves a last one behind."""
    folder.mkdir(parents=True, exist_ok=True)
    progress = _resume(task, folder)
    saved = time.monotonic()
    sums: dict[str, float] = defaultdict(float)
    while budget.spent(progress.steps, progress.seconds) < 1:
        began = budget.now_s()
        for name, value in task.step(budget.rate(progress.steps, progress.seconds)).items():
            sums[name] += value
        progress.steps += 1
        progress.seconds += min(budget.now_s() - began, LONGEST_STEP_S)
        ended = budget.spent(progress.steps, progress.seconds) >= 1
        if progress.steps % report_steps == 0 or ended:
            taken = (progress.steps - 1) % report_steps + 1
            _report(progress, {name: value / taken for name, value in sums.items()}, folder, say)
            sums.clear()
        if time.monotonic() - saved > save_seconds or ended:
            _save(task, progress, folder)
            saved = time.monotonic()
    say(f"held out: {_shown(task.evaluate())}")
    return progress


def _report(progress: Progress, losses: dict[str, float], folder: Path, say: Callable[[str], None]) -> None:
    line = {"step": float(progress.steps), "seconds": progress.seconds} | losses
    progress.history.append(line)
    with (folder / "losses.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({name: round(value, 5) for name, value in line.items()}) + "\n")
    say(f"{progress.steps} steps, {progress.seconds:.0f} s: {_shown(losses)}")


def _shown(losses: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in losses.items())


def _save(task: Task, progress: Progress, folder: Path) -> None:
    state = {name: learner.state() for name, learner in task.learners.items()}
    unfinished = folder / "checkpoint.part"
    torch.save({"learners": state, "steps": progress.steps, "seconds": progress.seconds}, unfinished)
    unfinished.replace(folder / "checkpoint.pt")


def _resume(task: Task, folder: Path) -> Progress:
    path = folder / "checkpoint.pt"
    if not path.is_file():
        return Progress()
    state = torch.load(path, weights_only=True)
    for name, learner in task.learners.items():
        learner.restore(state["learners"][name])
    return Progress(state["steps"], state["seconds"])
