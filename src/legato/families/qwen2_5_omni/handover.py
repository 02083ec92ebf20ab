"""Handover: the rows of one writer's sequence on their way to the talker that speaks its reply.

The writer's positions are a prompt (L of them) and then the reply t_0 … t_{N-1}, whose last id is never fed back. Of
every position it leaves a row: hidden state after the last norm + embedding, the latter zero where a medium stands. So
there are L prompt rows and N − 1 reply rows.

    writer's continuation  announce(places, keys) … close_prompt(next_place) … end()
    engine (a Relay)       put(start, rows), every position once and in order
    talker's continuation  take_prompt() until `prompt_taken`, then take_reply() until `exhausted`

It belongs to one request and lives in the thread that computes; it computes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from legato.protocols import Place, Prompt
from legato.types import ChatRequest, UtteranceId, Voice


@dataclass(frozen=True, eq=False)
class PromptRows:
    """Consecutive rows [n, width] of the writer's prompt, where each stands, and what stands for it in a prefix cache
    (a hash of the medium at its rows, else the text id)."""

    rows: Tensor
    places: tuple[Place, ...]
    keys: tuple[int, ...]


class Handover:
    """The prompt will have at most `longest_prompt` positions. `next_place` is where text goes on behind it (all axes);
    it is known once the prompt is closed."""

    def __init__(self, longest_prompt: int) -> None:
        self.longest_prompt = longest_prompt
        self._places: deque[Place] = deque()
        self._keys: deque[int] = deque()
        self._rows: deque[Tensor] = deque()
        self._prompt_length = self._announced = self._received = self._taken = 0
        self.next_place = 0
        self.prompt_closed = self.ended = False

    # --- the writer's side ---

    def announce(self, places: Seq[Place], keys: Seq[int]) -> None:
        """Prompt positions that will be computed next."""
        if self.prompt_closed:
            raise ValueError("the prompt is closed")
        self._places.extend(places)
        self._keys.extend(keys)
        self._announced += len(places)

    def close_prompt(self, next_place: int) -> None:
        """All prompt positions are announced; what follows is the reply."""
        self._prompt_length, self.next_place, self.prompt_closed = self._announced, next_place, True

    def end(self) -> None:
        """The writer's last id has been drawn: no further rows will come."""
        self.ended = True

    def put(self, start: int, rows: Tensor) -> None:
        """Rows of positions [start, start + n), from the engine."""
        if start != self._received:
            raise ValueError(f"rows from {start} on do not follow the {self._received} that came")
        self._rows.extend(rows)
        self._received += len(rows)

    # --- the talker's side ---

    def take_prompt(self) -> PromptRows | None:
        """Prompt rows that came since the last call; None when there are none."""
        count = min(self._received, self._announced) - self._taken
        if count <= 0:
            return None
        self._taken += count
        return PromptRows(
            torch.stack([self._rows.popleft() for _ in range(count)]),
            tuple(self._places.popleft() for _ in range(count)),
            tuple(self._keys.popleft() for _ in range(count)),
        )

    @property
    def prompt_taken(self) -> bool:
        """Whether all prompt rows have come and were taken."""
        return self.prompt_closed and self._taken >= self._prompt_length

    def take_reply(self) -> Tensor | None:
        """The next reply row [width]; None while the writer is late, or when there are no more."""
        if not self.prompt_taken or not self._rows:
            return None
        return self._rows.popleft()

    @property
    def exhausted(self) -> bool:
        """Whether the writer has ended and all its rows were taken."""
        return self.ended and self.prompt_taken and not self._rows


Speak = Callable[[UtteranceId, Handover, Voice, ChatRequest], Prompt]
"""What makes the talker's prompt for one reply: it follows the handover and speaks with the voice."""
