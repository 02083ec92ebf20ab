"""The engine as its users see it: whole, streamed, in pieces, in company, interrupted."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

import legato
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.engine import SpeechEngine
from legato.errors import (
    Cancelled,
    EmptyText,
    EngineError,
    Overloaded,
    RequestError,
    SpeechError,
    TextTooLong,
    UnknownVoice,
    UnsupportedFeature,
)
from legato.protocols import SpeechModel
from legato.types import AudioChunk, SpeechRequest

HELLO = "Hello there, how are you today?"
TWO = "The train leaves at nine. Please be there a little earlier."


@pytest.fixture(scope="module")
def engine(piccolo: SpeechModel) -> Iterator[SpeechEngine]:
    with SpeechEngine(piccolo) as engine:
        yield engine


class Bench:
    """A bare core with a made-up clock, and what came out of it."""

    def __init__(self, model: SpeechModel, **settings: object) -> None:
        self.chunks: dict[int, list[AudioChunk]] = {}
        self.errors: dict[int, SpeechError] = {}
        config = EngineConfig(**{"admit_by_deadline": False, **settings})  # type: ignore[arg-type]
        self.core = EngineCore(model, config, self._chunk, self.errors.__setitem__)

    def _chunk(self, number: int, chunk: AudioChunk) -> None:
        self.chunks.setdefault(number, []).append(chunk)

    def run(self) -> None:
        while self.core.step():
            pass

    def wave(self, number: int) -> np.ndarray:
        return np.concatenate([chunk.pcm for chunk in self.chunks[number]])

    def is_empty(self) -> bool:
        """Whether nothing is left of any request; a voice's reference may stay in the prefix cache."""
        core = self.core
        core.lm.pool.forget_prefixes()
        stages = len(core.lm) + len(core.flow) + len(core.vocoder)
        return not (
            stages or core.running or core.waiting or core.schedule.listeners or core.lm.pool.used or core.lm.usage
        )


# --- whole and streamed ---


def test_streamed_is_whole(engine: SpeechEngine) -> None:
    whole = engine.generate(TWO, seed=5)
    chunks = list(engine.stream(TWO, seed=5))
    assert np.array_equal(np.concatenate([c.pcm for c in chunks]), whole.samples)
    assert [c.final for c in chunks] == [False] * (len(chunks) - 1) + [True]
    starts = itertools.accumulate((len(c.pcm) for c in chunks), initial=0)
    assert [c.start_sample for c in chunks] == list(starts)[:-1]


def test_samples_are_tokens_times_samples_per_token(engine: SpeechEngine) -> None:
    audio = engine.generate(TWO, seed=1)
    assert len(audio.samples) == audio.stats.usage.generated_tokens * engine.model.rates.samples_per_token


def test_text_in_pieces_is_the_text(engine: SpeechEngine) -> None:
    whole = engine.generate(TWO, seed=2).samples
    assert np.array_equal(engine.generate(iter(TWO), seed=2).samples, whole)


def test_sound_comes_before_the_text_ends(engine: SpeechEngine) -> None:
    heard = threading.Event()

    def pieces() -> Iterator[str]:
        yield "This sentence is spoken at once. "
        assert heard.wait(30), "no sound although a sentence was complete"
        yield "And this one follows."

    for chunk in engine.stream(pieces()):
        heard.set()
        assert len(chunk.pcm) or chunk.final


def test_asyncio_twins(engine: SpeechEngine) -> None:
    async def letters() -> AsyncIterator[str]:
        for letter in HELLO:
            await asyncio.sleep(0)
            yield letter

    async def both() -> tuple[np.ndarray, np.ndarray]:
        audio, chunks = await asyncio.gather(
            engine.agenerate(letters(), seed=3), _collect(engine.astream(HELLO, seed=3))
        )
        return audio.samples, np.concatenate([c.pcm for c in chunks])

    pieces, streamed = asyncio.run(both())
    whole = engine.generate(HELLO, seed=3).samples
    assert np.array_equal(pieces, whole)
    assert np.array_equal(streamed, whole)


async def _collect(stream: AsyncIterator[AudioChunk]) -> list[AudioChunk]:
    return [chunk async for chunk in stream]


def test_seeds_differ_and_repeat(engine: SpeechEngine) -> None:
    first, again, other = (engine.generate(HELLO, seed=seed).samples for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[: len(other)], other[: len(first)])


def test_without_cache_the_same_sound(engine: SpeechEngine) -> None:
    text = "No cache at all."
    cached, bare = engine.generate(text), engine.generate(text, use_cache=False)
    assert np.array_equal(cached.samples, bare.samples)
    assert bare.stats.usage.lm_steps > cached.stats.usage.lm_steps


def test_speed_changes_duration_not_pitch_data_loss(engine: SpeechEngine) -> None:
    normal, fast, slow = (engine.generate(HELLO, speed=speed).duration_s for speed in (1.0, 2.0, 0.5))
    assert fast == pytest.approx(normal / 2, rel=0.05)
    assert slow == pytest.approx(normal * 2, rel=0.05)


def test_save_and_stats(engine: SpeechEngine, tmp_path) -> None:  # type: ignore[no-untyped-def]
    import soundfile

    audio = engine.generate(HELLO, seed=9)
    audio.save(tmp_path / "hello.wav")
    samples, rate = soundfile.read(tmp_path / "hello.wav")
    assert (len(samples), rate) == (len(audio.samples), audio.sample_rate_hz)
    stats = audio.stats.as_dict()
    assert sum(c["samples"] for c in stats["chunks"]) == len(audio.samples)
    assert (stats["seed"], stats["model"], stats["voice"]) == (9, "piccolo", "heart")
    assert stats["lm"]["generated_tokens"] * engine.model.rates.samples_per_token == len(audio.samples)
    assert stats["kv"]["pages_peak"] > 0


# --- in company ---

TEXTS = (
    "Yes.", "Good morning.", "Where is my umbrella?", "It rained all night.", "Take the second street on the left.",
    "He sold the blue bicycle.", "Dinner is almost ready.", "We met in a small cafe by the river.",
)  # fmt: skip
RAMPS = {"smallest": (1,), "default": None, "one big": (64,)}


@pytest.mark.parametrize(
    "ramp", [pytest.param(r, id=n, marks=() if r is None else pytest.mark.slow) for n, r in RAMPS.items()]
)
def test_company_changes_nothing(piccolo: SpeechModel, ramp: tuple[int, ...] | None) -> None:
    """Alone, all at once, and with random arrivals and cancellations among them: the same samples, bit for bit."""
    alone = _alone(piccolo, ramp)
    together = Bench(piccolo, ramp_blocks=ramp)
    for number, text in enumerate(TEXTS):
        together.core.submit(number, SpeechRequest(text, seed=number))
    together.run()
    for number in range(len(TEXTS)):
        assert np.array_equal(together.wave(number), alone[number])
    assert together.is_empty()

    mixed, rng = Bench(piccolo, ramp_blocks=ramp, kv_memory_mb=8), random.Random(7)
    kept = _arrive_at_random(mixed, rng)
    assert all(isinstance(error, Cancelled) for error in mixed.errors.values())
    for number in kept:
        assert np.array_equal(mixed.wave(number), alone[number])
    assert mixed.is_empty()


def _alone(model: SpeechModel, ramp: tuple[int, ...] | None) -> list[np.ndarray]:
    waves = []
    for number, text in enumerate(TEXTS):
        bench = Bench(model, ramp_blocks=ramp)
        bench.core.submit(0, SpeechRequest(text, seed=number))
        bench.run()
        waves.append(bench.wave(0))
    return waves


def _arrive_at_random(bench: Bench, rng: random.Random) -> list[int]:
    """Submit TEXTS between random steps, and others that are cancelled after random steps. The numbers kept."""
    doomed: list[int] = []
    for number, text in enumerate(TEXTS):
        bench.core.submit(number, SpeechRequest(text, seed=number))
        if rng.random() < 0.5:
            doomed.append(100 + number)
            bench.core.submit(doomed[-1], SpeechRequest("Nobody will hear the end of this.", seed=rng.randrange(99)))
        for _ in range(rng.randrange(40)):
            bench.core.step()
        if doomed and rng.random() < 0.7:
            bench.core.cancel(doomed.pop())
    for number in doomed:
        bench.core.cancel(number)
    bench.run()
    return list(range(len(TEXTS)))


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 12, 25, 31, 40, 60])
def test_cancel_at_any_moment_leaves_nothing(piccolo: SpeechModel, steps: int) -> None:
    bench = Bench(piccolo)
    bench.core.submit(1, SpeechRequest(TWO))
    for _ in range(steps):
        bench.core.step()
    bench.core.cancel(1)
    assert isinstance(bench.errors[1], Cancelled)
    bench.core.cancel(1)
    assert bench.is_empty()
    assert not bench.core.step()


def test_order_of_delivery_is_the_order_of_text(piccolo: SpeechModel) -> None:
    bench = Bench(piccolo, utterances_ahead=3, first_utterance_chars=20, utterance_chars=30)
    bench.core.submit(1, SpeechRequest("One is short. Two is a good deal longer than that. Three. Four."))
    bench.run()
    indices = [chunk.utterance for chunk in bench.chunks[1]]
    assert indices == sorted(indices)
    assert bench.is_empty()


def test_first_come_first_served_beyond_the_limit(piccolo: SpeechModel) -> None:
    bench = Bench(piccolo, max_requests=1)
    for number in range(3):
        bench.core.submit(number, SpeechRequest("Yes.", seed=number))
    bench.run()
    assert list(bench.chunks) == [0, 1, 2]


def test_a_held_first_sound_changes_when_not_what(piccolo: SpeechModel) -> None:
    waves = []
    for hold in (True, False):
        bench = Bench(piccolo, hold_first_sound=hold)
        bench.core.pace.gap_s = lambda *_: 0.5  # type: ignore[method-assign]
        bench.core.submit(0, SpeechRequest(TWO, seed=4))
        while not bench.chunks:
            bench.core.step()
        waiting = sum(len(chunk.pcm) for chunk in bench.chunks[0]) / piccolo.rates.sample_hz
        assert (waiting >= 0.5) == hold
        bench.run()
        waves.append(bench.wave(0))
        assert bench.is_empty()
    assert np.array_equal(*waves)


# --- slow readers, full queues, broken parts ---


def test_a_slow_reader_holds_back_only_itself(piccolo: SpeechModel) -> None:
    bench = Bench(piccolo, max_buffered_s=0.5)
    bench.core.submit(1, SpeechRequest(TWO))
    bench.core.submit(2, SpeechRequest("Yes."))
    bench.core.taken(2, 10**9)
    bench.run()
    assert bench.chunks[2][-1].final
    assert not bench.chunks[1][-1].final
    buffered = len(bench.wave(1)) / piccolo.rates.sample_hz
    assert buffered < 3
    bench.core.taken(1, 10**9)
    bench.run()
    assert bench.chunks[1][-1].final
    assert bench.is_empty()


def test_full_queue_is_refused_and_recovers(piccolo: SpeechModel) -> None:
    with SpeechEngine(piccolo, EngineConfig(max_requests=1, max_waiting=1)) as engine:
        streams = [engine.submit(SpeechRequest(TWO)) for _ in range(2)]
        with pytest.raises(Overloaded, match="waiting"):
            engine.submit(SpeechRequest(HELLO))
        for stream in streams:
            stream.cancel()
            with pytest.raises(Cancelled):
                list(stream)
        assert len(engine.generate("Yes.").samples)


def test_a_broken_net_fails_everyone_once_and_says_so(piccolo: SpeechModel, caplog: pytest.LogCaptureFixture) -> None:
    engine = SpeechEngine(piccolo)

    def burn(_: object) -> None:
        raise RuntimeError("the flow burned down")

    engine.core.flow.run = burn  # type: ignore[method-assign, assignment]
    with pytest.raises(EngineError, match="burned down"):
        engine.generate(HELLO)
    with pytest.raises(EngineError, match="burned down"):
        engine.submit(SpeechRequest(HELLO))
    engine.close()


def test_closing_ends_open_streams(piccolo: SpeechModel) -> None:
    engine = SpeechEngine(piccolo)
    stream = engine.submit(SpeechRequest("", more_text=True))
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        list(stream)
    with pytest.raises(EngineError, match="closed"):
        engine.generate(HELLO)


def test_a_failing_text_source_fails_the_request(engine: SpeechEngine) -> None:
    def source() -> Iterator[str]:
        yield "This much is fine. "
        raise OSError("the line went dead")

    with pytest.raises(RequestError, match="the line went dead"):
        engine.generate(source())
    assert len(engine.generate("Yes.").samples)


# --- refused at the door ---


@pytest.mark.parametrize("text", ["", "   \n\t", "🎉🎉", "…!?", "\x00\x1b\x07"])
def test_nothing_to_speak(engine: SpeechEngine, text: str) -> None:
    with pytest.raises(EmptyText):
        engine.generate(text)


def test_an_empty_stream_of_text_ends_with_an_error(engine: SpeechEngine) -> None:
    with pytest.raises(EmptyText):
        engine.generate(iter(["", "  ", "\n"]))


def test_text_too_long(engine: SpeechEngine) -> None:
    with pytest.raises(TextTooLong, match="100001 characters"):
        engine.generate("a" * 100_001)


def test_text_that_grows_too_long(piccolo: SpeechModel) -> None:
    with SpeechEngine(piccolo, EngineConfig(max_text_chars=50)) as engine, pytest.raises(TextTooLong):
        engine.generate(iter(["word " * 5] * 5))


def test_unknown_voice_names_the_known(engine: SpeechEngine) -> None:
    with pytest.raises(UnknownVoice, match="heart"):
        engine.generate(HELLO, voice="nobody")


def test_a_missing_reference_and_other_scripts_are_refused(engine: SpeechEngine) -> None:
    with pytest.raises(RequestError, match="me.wav"):
        engine.generate(HELLO, prompt_audio="me.wav")
    with pytest.raises(UnsupportedFeature, match="English and Mandarin"):
        engine.generate("Привет")


@pytest.mark.parametrize("speed", [0.2, 4.1, float("nan")])
def test_speed_out_of_range(engine: SpeechEngine, speed: float) -> None:
    with pytest.raises(RequestError, match="speed"):
        engine.generate(HELLO, speed=speed)


@pytest.mark.parametrize("text", [123, None, b"bytes", [1, 2], iter([None]), ["fine. ", 7]])
def test_text_of_a_wrong_type_is_refused_and_the_next_request_works(engine: SpeechEngine, text: object) -> None:
    with pytest.raises(RequestError, match="must be a str"):
        engine.generate(text)  # type: ignore[arg-type]
    assert len(engine.generate("Yes.").samples)


def test_an_async_iterator_needs_the_async_twin(engine: SpeechEngine) -> None:
    async def letters() -> AsyncIterator[str]:
        yield "a"

    with pytest.raises(RequestError, match="agenerate"):
        engine.generate(letters())  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"seed": "x"}, {"seed": 1.5}, {"voice": 3}, {"speed": "x"}, {"sampling": 1}])
def test_options_of_a_wrong_type_are_refused(engine: SpeechEngine, options: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="must be"):
        engine.generate(HELLO, **options)  # type: ignore[arg-type]
    assert len(engine.generate("Yes.", seed=2**70).samples) and len(engine.generate("Yes.", seed=-1).samples)


def test_control_characters_are_passed_over(engine: SpeechEngine) -> None:
    clean, dirty = engine.generate("Good morning."), engine.generate("Good\x00 morn\u200bing.\x07")
    assert np.array_equal(clean.samples, dirty.samples)


def test_unknown_model() -> None:
    with pytest.raises(SpeechError, match="unknown model 'forte'"):
        legato.load("forte")
