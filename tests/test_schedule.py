"""Schedule: whose listener runs dry first goes first. By table, and by simulation with made-up costs; no clock runs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import permutations

import pytest

from legato.schedule import Listener, Pace, Schedule
from legato.types import UtteranceId

GUARD_S = 0.2
NOW_S = 10.0


def waiting(accepted_s: float) -> Listener:
    return Listener(accepted_s)


def listening(slack_s: float) -> Listener:
    """One whose sound ends `slack_s` from now."""
    return Listener(0.0, first_sound_s=1.0, delivered_s=NOW_S + slack_s - 1.0)


BY_URGENCY = [
    listening(-0.5),
    listening(0.0),
    listening(0.1),
    listening(0.19),
    waiting(2.0),
    waiting(9.9),
    listening(0.21),
    listening(3.0),
]
"""Dry already or nearly so, by deadline; then without a sound, first come first; then who has sound enough."""


def schedule(listeners: Seq[Listener]) -> Schedule:
    made = Schedule(GUARD_S)
    made.listeners = dict(enumerate(listeners))
    return made


@pytest.mark.parametrize("turn", range(len(BY_URGENCY)))
def test_order_of_urgency(turn: int) -> None:
    """Whatever numbers the requests have and however they are asked for."""
    numbers = [(number + turn) % len(BY_URGENCY) for number in range(len(BY_URGENCY))]
    made = Schedule(GUARD_S)
    made.listeners = dict(zip(numbers, BY_URGENCY, strict=True))
    asked = [UtteranceId(number, 0) for number in range(len(BY_URGENCY))]
    assert [utterance.request for utterance in made.order(asked, NOW_S)] == numbers


def test_utterances_of_a_request_keep_their_order() -> None:
    made = schedule([listening(0.1), listening(5.0)])
    asked = [UtteranceId(1, 1), UtteranceId(1, 0), UtteranceId(0, 2), UtteranceId(0, 0)]
    assert made.order(asked, NOW_S) == [UtteranceId(0, 0), UtteranceId(0, 2), UtteranceId(1, 0), UtteranceId(1, 1)]


def test_equals_keep_the_order_of_acceptance() -> None:
    made = schedule([waiting(3.0), waiting(3.0), waiting(3.0)])
    for asked in permutations(UtteranceId(number, 0) for number in range(3)):
        assert made.order(asked, NOW_S) == [UtteranceId(number, 0) for number in range(3)]


VOCODER, FLOW, LM = 0, 1, 2
DRY, NEW, AHEAD = (UtteranceId(number, 0) for number in range(3))


@pytest.mark.parametrize(
    ("ready", "chosen"),
    [
        ([[], [], []], []),
        ([[], [], [DRY]], [LM]),
        ([[NEW], [NEW], [NEW]], [VOCODER, FLOW, LM]),
        ([[NEW], [], [DRY]], [LM, VOCODER]),
        ([[AHEAD], [AHEAD], [AHEAD, NEW]], [LM, VOCODER, FLOW]),
        ([[AHEAD], [NEW], [AHEAD, DRY]], [LM, FLOW, VOCODER]),
        ([[AHEAD, DRY], [NEW], [DRY]], [VOCODER, LM, FLOW]),
    ],
)
def test_choice_of_stage(ready: list[list[UtteranceId]], chosen: list[int]) -> None:
    """The stage whose most urgent utterance is the most urgent; among equals the one nearer the listener."""
    assert schedule([listening(0.1), waiting(5.0), listening(5.0)]).choose(ready, NOW_S) == chosen


def test_a_listener_from_first_sound_to_silence_and_on() -> None:
    listener = Listener(accepted_s=1.0)
    assert listener.dry_at_s == 1.0
    deliveries = [(2.0, 0.0), (2.0, 0.5), (2.1, 0.5), (3.0, 0.5), (4.0, 0.25)]
    heard = []
    for now_s, audio_s in deliveries:
        listener.deliver(now_s, audio_s)
        heard.append((listener.first_sound_s, listener.dry_at_s))
    assert heard == [(None, 1.0), (2.0, 2.5), (2.0, 3.0), (2.0, 3.5), (4.0, 4.25)]


# --- simulation: an engine whose stages only cost time ---

WINDOW_S, WINDOW_TOKENS, ODE_STEPS, MOST_WINDOWS = 0.32, 8, 6, 2
STEP_S = (0.0064, 0.0096, 0.0048)
"""What a step of the vocoder, the flow and the language model costs."""

MOST_STEPS = 20_000

Order = Callable[[Schedule, list[UtteranceId], float], list[UtteranceId]]
Choose = Callable[[Schedule, list[list[UtteranceId]], float], list[int]]


@dataclass
class Speaking:
    """A request and how far each stage has come with it."""

    arrives_s: float
    windows: int
    tokens: int = 0
    ode_steps: int = 0
    heard: int = 0
    first_sound_s: float | None = None
    silence_s: float = 0.0

    def can(self, stage: int) -> bool:
        flowed = self.ode_steps // ODE_STEPS
        if stage == LM:
            return self.tokens < self.windows * WINDOW_TOKENS
        return flowed < self.tokens // WINDOW_TOKENS if stage == FLOW else self.heard < flowed


@dataclass
class Engine:
    """Runs speakers through three stages, one step at a time, as the policy says."""

    speakers: list[Speaking]
    choose: Choose = Schedule.choose
    order: Order = Schedule.order
    now_s: float = 0.0
    schedule: Schedule = field(default_factory=lambda: Schedule(GUARD_S))

    def run(self) -> list[Speaking]:
        for _ in range(MOST_STEPS):
            if all(speaker.heard == speaker.windows for speaker in self.speakers):
                return self.speakers
            self.accept()
            ready = [[u for u in self.here() if self.speakers[u.request].can(stage)] for stage in (VOCODER, FLOW, LM)]
            chosen = self.choose(self.schedule, ready, self.now_s)
            if not chosen:
                self.now_s = min(s.arrives_s for s in self.speakers if s.arrives_s > self.now_s)
                continue
            stage = chosen[0]
            batch = self.order(self.schedule, ready[stage], self.now_s)
            self.now_s += STEP_S[stage]
            for utterance in batch if stage == LM else batch[:MOST_WINDOWS]:
                self.advance(stage, utterance.request)
        raise AssertionError("it does not end")

    def here(self) -> list[UtteranceId]:
        return [UtteranceId(number, 0) for number in self.schedule.listeners]

    def accept(self) -> None:
        for number, speaker in enumerate(self.speakers):
            if speaker.arrives_s <= self.now_s and number not in self.schedule.listeners:
                self.schedule.listeners[number] = Listener(speaker.arrives_s)

    def advance(self, stage: int, number: int) -> None:
        speaker = self.speakers[number]
        if stage == LM:
            speaker.tokens += 1
        elif stage == FLOW:
            speaker.ode_steps += 1
        else:
            self.hear(speaker, self.schedule.listeners[number])

    def hear(self, speaker: Speaking, listener: Listener) -> None:
        if speaker.first_sound_s is None:
            speaker.first_sound_s = self.now_s
        else:
            speaker.silence_s += max(0.0, self.now_s - listener.dry_at_s)
        speaker.heard += 1
        listener.deliver(self.now_s, WINDOW_S)


def by_arrival(_: Schedule, utterances: list[UtteranceId], __: float) -> list[UtteranceId]:
    return sorted(utterances, key=lambda utterance: utterance.request)


def newcomers_first(schedule: Schedule, utterances: list[UtteranceId], _: float) -> list[UtteranceId]:
    return sorted(utterances, key=lambda u: (schedule.listeners[u.request].first_sound_s is not None, -u.request))


def nearest_the_listener(_: Schedule, ready: list[list[UtteranceId]], __: float) -> list[int]:
    return [stage for stage, utterances in enumerate(ready) if utterances]


def first_wait_s(spoken: list[Speaking]) -> float:
    """The longest that anyone waited for a first sound."""
    assert all(speaker.first_sound_s is not None for speaker in spoken)
    return max((speaker.first_sound_s or 0.0) - speaker.arrives_s for speaker in spoken)


def crowd() -> list[Speaking]:
    """Nine requests of 4 to 12 seconds within half a second: just what the machine can do."""
    return [Speaking(arrives_s=0.06 * number, windows=12 + 3 * number) for number in range(9)]


def test_nobody_runs_dry_while_the_machine_keeps_up() -> None:
    spoken = Engine(crowd()).run()
    assert all(speaker.heard == speaker.windows for speaker in spoken)
    assert [speaker.silence_s for speaker in spoken] == [0.0] * len(spoken)


@pytest.mark.parametrize("order", [by_arrival, newcomers_first])
def test_simpler_orders_let_them_run_dry(order: Order) -> None:
    """The same crowd: the simulation is tight enough to tell."""
    spoken = Engine(crowd(), choose=nearest_the_listener, order=order).run()
    assert sum(speaker.silence_s for speaker in spoken) > 1.0


def test_first_sounds_come_in_order_of_arrival() -> None:
    first = [speaker.first_sound_s or 0.0 for speaker in Engine(crowd()).run()]
    assert first == sorted(first)


def test_a_newcomer_does_not_wait_for_those_who_have_sound() -> None:
    """Its first sound takes no longer than a few of its own steps and one of the others'."""
    old = [Speaking(0.0, 60) for _ in range(3)]
    newcomer = Speaking(3.0, 10)
    alone = Engine([Speaking(0.0, 10)]).run()[0].first_sound_s
    Engine([*old, newcomer]).run()
    assert alone is not None and newcomer.first_sound_s is not None
    assert newcomer.first_sound_s - newcomer.arrives_s < 2 * alone
    assert not any(speaker.silence_s for speaker in old)


def test_nobody_starves_among_newcomers() -> None:
    """A new request every 0.3 s, each 1.3 s long: all are heard whole, the long one of the start too."""
    speakers = [Speaking(0.0, 75), *(Speaking(0.3 * number, 4) for number in range(1, 80))]
    spoken = Engine(speakers).run()
    assert all(speaker.heard == speaker.windows for speaker in spoken)
    assert spoken[0].silence_s == 0.0
    assert first_wait_s(spoken) < 1.0


def test_a_crowd_too_large_is_served_all_the_same() -> None:
    """Twice what the machine can do: there are gaps, but everyone is heard to the end."""
    spoken = Engine([Speaking(0.01 * number, 10) for number in range(30)]).run()
    assert all(speaker.heard == speaker.windows for speaker in spoken)
    assert any(speaker.silence_s for speaker in spoken)


def test_pace_grows_with_listeners_and_follows_the_machine() -> None:
    pace = Pace(lm_steps=10, flow_blocks=5)
    assert pace.gap_s(3) == 0
    pace.note("lm", 0.002, parts=4)
    pace.note("flow", 0.008, parts=2)
    pace.note("vocoder", 0.003, parts=1)
    assert pace.gap_s(1) == pytest.approx(Pace.MARGIN * (10 * 0.002 + 5 * 0.004 + 0.003))
    assert pace.gap_s(3) == pytest.approx(Pace.MARGIN * (10 * 0.002 + 3 * (5 * 0.004 + 0.003)))
    for _ in range(60):
        pace.note("flow", 0.016, parts=2)
    assert pace.gap_s(1) == pytest.approx(Pace.MARGIN * (10 * 0.002 + 5 * 0.008 + 0.003), rel=1e-3)


def test_nobody_waits_for_what_waiting_cannot_mend() -> None:
    pace = Pace(lm_steps=10, flow_blocks=5, chunk_s=0.1)
    pace.note("lm", 0.002, 1)
    pace.note("flow", 0.005, 1)
    assert pace.gap_s(3) == pytest.approx(Pace.MARGIN * (10 * 0.002 + 3 * 5 * 0.005))
    assert pace.gap_s(4) == 0.0, "0.12 s of work for 0.1 s of sound"


def test_a_writing_model_takes_its_turns() -> None:
    pace = Pace(lm_steps=10, flow_blocks=5)
    pace.note("lm", 0.002, 3)
    alone_s = pace.gap_s(2, writing=True)
    pace.note("writer", 0.005, 3)
    assert pace.gap_s(2) == alone_s
    assert pace.gap_s(2, writing=True) == pytest.approx(alone_s + Pace.MARGIN * 10 * 0.005)


def test_pace_bears_what_sound_costs() -> None:
    pace = Pace(lm_steps=10, flow_blocks=5)
    assert pace.bears(4) and not pace.bears(5), "nothing was measured yet"
    for _ in range(100):
        pace.note("lm", 0.05, 4)
        pace.note("flow", 0.05, 4)
        pace.deliver(0.5)
    assert pace.bears(3) and not pace.bears(4), "a second costs a fifth of one, and some is kept back"
    for _ in range(300):
        pace.note("flow", 0.1, 4)
        pace.deliver(1.0)
    assert pace.bears(7) and not pace.bears(8), "it follows what is measured now"
