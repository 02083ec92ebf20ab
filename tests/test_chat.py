"""Replies of a small model that writes and speaks: the same alone, in company, live and whole; each ends once."""

from __future__ import annotations

import asyncio
import base64
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from chatting import BLOCK_SAMPLES, RATE_HZ, Ears, SmallTalk, model

from legato.config import EngineConfig
from legato.core import EngineCore
from legato.engine import SpeechEngine
from legato.errors import Cancelled, PromptTooLong, RequestError, SpeechError, UnknownVoice, UnsupportedFeature
from legato.messages import read_messages
from legato.streams import ChatStream
from legato.types import AudioChunk, ChatRequest, Message, Part, Sampling, TextDelta, UtteranceId

SMALL = EngineConfig(kv_memory_mb=1, writer_kv_memory_mb=1, media_rows_per_step=6, admit_by_deadline=False)


def sound(seconds: float, seed: int) -> np.ndarray:
    wave: np.ndarray = np.random.default_rng(seed).normal(size=int(seconds * RATE_HZ)).astype(np.float32)
    return wave


def request(seed: int = 0, **changes: Any) -> ChatRequest:
    """Some words, a sound, more words."""
    parts = (
        Part("text", "Listen: ".replace(":", ",")),
        Part("audio", sound(0.35, seed), RATE_HZ),
        Part("text", "well"),
    )
    return replace(ChatRequest((Message("user", parts),), seed=seed), **changes)


class Listening:
    """What came of each request of one core."""

    def __init__(self, config: EngineConfig = SMALL) -> None:
        self.pieces: dict[int, list[AudioChunk | TextDelta]] = {}
        self.errors: dict[int, SpeechError] = {}
        self.core = EngineCore(model(), config, self._on_piece, self._on_error)

    def _on_piece(self, number: int, piece: AudioChunk | TextDelta) -> None:
        before = self.pieces.setdefault(number, [])
        assert number not in self.errors and not any(p.final for p in before), "ended already"
        before.append(piece)

    def _on_error(self, number: int, error: SpeechError) -> None:
        assert number not in self.errors and not any(p.final for p in self.pieces.get(number, []))
        self.errors[number] = error

    def submit(self, number: int, request: ChatRequest) -> None:
        self.core.submit_chat(number, request, SmallTalk().prepare(request))

    def run(self, most_steps: int = 5000) -> None:
        for _ in range(most_steps):
            if not self.core.step():
                return
        raise AssertionError("it does not end")

    def text(self, number: int) -> str:
        return "".join(p.text for p in self.pieces[number] if isinstance(p, TextDelta))

    def pcm(self, number: int) -> np.ndarray:
        chunks = [p for p in self.pieces[number] if isinstance(p, AudioChunk)]
        starts = np.cumsum([0, *(len(c.pcm) for c in chunks)])
        assert [c.start_sample for c in chunks] == starts[:-1].tolist()
        return np.concatenate([c.pcm for c in chunks]) if chunks else np.zeros(0, np.float32)

    def assert_empty(self) -> None:
        core, replies = self.core, self.core.replies
        assert replies is not None
        assert not any(map(len, (core.lm, core.flow, core.vocoder, replies.lm, replies.media)))
        assert not core.running and not core.waiting and not core.schedule.listeners and not replies._open
        for pool in (core.lm.pool, replies.lm.pool):
            pool.forget_prefixes()
            assert not pool.used


def alone(wanted: ChatRequest) -> tuple[str, np.ndarray]:
    room = Listening()
    room.submit(0, wanted)
    room.run()
    room.assert_empty()
    return room.text(0), room.pcm(0)


def same(room: Listening, number: int, wanted: ChatRequest) -> bool:
    text, pcm = alone(wanted)
    return room.text(number) == text and np.array_equal(room.pcm(number), pcm)


def test_a_reply_is_written_and_spoken() -> None:
    room = Listening()
    room.submit(0, request())
    room.run()
    assert 0 < len(room.text(0)) <= 12 and len(room.pcm(0)) > 0
    assert [p.final for p in room.pieces[0]].count(True) == 1 and room.pieces[0][-1].final
    reasons = [p.finish_reason for p in room.pieces[0] if isinstance(p, TextDelta) and p.finish_reason]
    assert reasons == ["length" if len(room.text(0)) == 12 else "stop"]
    room.assert_empty()


def test_sound_leaves_while_the_text_is_still_written() -> None:
    """The speaker follows the writer, so the first code comes right after the reply's second letter."""
    room = Listening()
    room.submit(0, request(max_tokens=60))
    letters_at_first_code = None
    while room.core.step():
        sequence = room.core.lm.scheduler.find(UtteranceId(0, 0))
        if letters_at_first_code is None and sequence is not None and sequence.emitted:
            letters_at_first_code = len(room.text(0))
    assert letters_at_first_code == 2
    kinds = [type(p) for p in room.pieces[0]]
    first_sound, last_text = kinds.index(AudioChunk), len(kinds) - 1 - kinds[::-1].index(TextDelta)
    assert first_sound < last_text


@pytest.mark.parametrize("seed", range(4))
def test_any_company(seed: int) -> None:
    """Eight at once, arriving when they like, three of them cancelled: the others do not notice."""
    chance, room = random.Random(seed), Listening(SMALL.model_copy(update={"max_sequences": 4, "max_requests": 6}))
    wanted = [
        request(10 * seed + i, max_tokens=chance.randrange(1, 20), voice=chance.choice((None, "bob")),
                modalities=chance.choice((("text", "audio"), ("text", "audio"), ("text",))))
        for i in range(8)
    ]  # fmt: skip
    doomed = set(chance.sample(range(8), 3))
    coming = list(range(8))
    for _ in range(5000):
        if coming and chance.random() < 0.2:
            room.submit(coming[0], wanted[coming.pop(0)])
        for number in sorted(doomed):
            if number not in coming and chance.random() < 0.05:
                room.core.cancel(number)
                doomed.discard(number)
        if not room.core.step() and not coming:
            break
    for number in range(8):
        if number in room.errors:
            assert isinstance(room.errors[number], Cancelled)
        else:
            assert same(room, number, wanted[number])
    assert len(room.errors) >= 1
    room.assert_empty()


@pytest.mark.parametrize("modalities", [("text",), ("audio",), ("audio", "text")])
def test_modalities(modalities: Any) -> None:
    """Text is written either way, since speech is made from it; sound is not when nobody asked for it."""
    text, pcm = alone(request(3, modalities=modalities))
    whole, spoken = alone(request(3))
    assert text == whole
    assert np.array_equal(pcm, spoken if "audio" in modalities else spoken[:0])


def test_an_answer_that_ends_at_once_has_no_sound() -> None:
    """The end is the first thing the writer says: nothing was written, so nothing is spoken."""
    for seed in range(400):
        wanted = request(seed, max_tokens=30, sampling=Sampling(6.0))
        room = Listening()
        room.submit(0, wanted)
        room.run()
        if not room.text(0):
            assert not len(room.pcm(0)) and not room.errors
            room.assert_empty()
            return
    raise AssertionError("no seed ends at once")


@pytest.mark.parametrize("cuts", [1, 3, 10])
def test_live_sound_is_heard_as_if_it_had_been_there(cuts: int) -> None:
    wave = sound(0.77, 8)
    known = ChatRequest((Message("user", (Part("text", "go"), Part("audio", wave, RATE_HZ))),), seed=5)
    room = Listening()
    room.submit(0, replace(known, messages=(Message("user", (Part("text", "go"),)),), more_audio=True))
    chance, writer = random.Random(cuts), room.core.replies
    assert writer is not None
    for stretch in np.array_split(wave, cuts):
        room.core.push_audio(0, stretch, RATE_HZ)
        for _ in range(chance.randrange(4)):
            room.core.step()
    room.run()
    assert not room.pieces, "it listens until it is told that this was all"
    assert cuts == 1 or writer.lm.counters.prefill_tokens >= 2 * (len(wave) // BLOCK_SAMPLES - 1), "and reads meanwhile"
    room.core.push_audio(0, None, 0)
    room.run()
    assert same(room, 0, known)


def test_what_live_sound_may_not_be() -> None:
    room = Listening()
    silent = ChatRequest((Message("user", ()),), more_audio=True)
    for number in range(2):
        room.submit(number, silent)
    room.run()
    room.core.push_audio(0, sound(0.1, 0), 44_100)
    room.core.push_audio(1, None, 0)
    room.run()
    assert "44100" in str(room.errors[0]) and "nothing was heard" in str(room.errors[1])
    room.assert_empty()


def test_sounds_are_encoded_together_and_once() -> None:
    small = model()
    assert small.writer is not None
    ears = small.writer.media
    assert isinstance(ears, Ears)
    engine = EngineCore(small, SMALL, lambda *_: None, lambda *_: None)
    for number in range(3):
        engine.submit_chat(number, request(number % 2), request(number % 2))
    while engine.step():
        pass
    keys = [key for call in ears.calls for key in call]
    assert len(keys) == len(set(keys)) == 2 * 4, "the third asks for what the first had"
    assert max(map(len, ears.calls)) == 3, "as many blocks as a step may hold"
    assert engine.replies is not None and engine.replies.media.cached_bytes == 8 * 2 * 64 * 4


def test_a_full_cache_forgets_the_oldest_sound() -> None:
    room = Listening(SMALL.model_copy(update={"media_cache_mb": 1}))
    assert room.core.replies is not None
    media = room.core.replies.media
    media.cache_bytes = 3 * 2 * 64 * 4
    room.submit(0, request(1))
    room.run()
    assert media.cached_bytes == media.cache_bytes
    assert same(room, 0, request(1))


def test_the_next_turn_starts_behind_what_was_said() -> None:
    room = Listening()
    first = request(2, max_tokens=60)
    room.submit(0, first)
    room.run()
    assert room.core.replies is not None
    pool = room.core.replies.lm.pool
    before = pool.counters.shared
    room.submit(1, replace(first, messages=(*first.messages, Message("user", (Part("text", "and then?"),)))))
    room.run()
    assert pool.counters.shared > before
    assert same(room, 1, replace(first, messages=(*first.messages, Message("user", (Part("text", "and then?"),)))))


# --- through the engine ---


@pytest.fixture(scope="module")
def engine() -> Iterator[SpeechEngine]:
    with SpeechEngine(model(), SMALL) as engine:
        yield engine


def heard(stream: ChatStream) -> tuple[str, np.ndarray]:
    pieces = list(stream)
    text = "".join(p.text for p in pieces if isinstance(p, TextDelta))
    return text, np.concatenate([p.pcm for p in pieces if isinstance(p, AudioChunk)])


def test_engine_chat(engine: SpeechEngine) -> None:
    """Blocking and asyncio callers read the same; messages may be dicts."""
    wave = sound(0.35, 4)
    messages = [{"role": "user", "content": [{"type": "text", "text": "hear"},
                 {"type": "audio", "audio": wave, "sample_rate_hz": RATE_HZ}]}]  # fmt: skip
    stream = engine.chat(messages, seed=7, voice="bob")
    text, pcm = heard(stream)
    parts = (Part("text", "hear"), Part("audio", wave, RATE_HZ))
    wanted_text, wanted_pcm = alone(ChatRequest((Message("user", parts),), seed=7, voice="bob"))
    assert text == wanted_text and np.array_equal(pcm, wanted_pcm)
    assert stream.report.first_text_s is not None and stream.report.ttfa_s is not None
    assert stream.report.voice == "bob" and stream.report.usage.generated_tokens > len(text)

    async def ask() -> tuple[str, np.ndarray]:
        stream = await engine.achat(messages, seed=7, voice="bob")
        pieces = [piece async for piece in stream]
        return "".join(p.text for p in pieces if isinstance(p, TextDelta)), np.concatenate(
            [p.pcm for p in pieces if isinstance(p, AudioChunk)]
        )

    atext, apcm = asyncio.run(ask())
    assert atext == text and np.array_equal(apcm, pcm)


def test_engine_live(engine: SpeechEngine) -> None:
    wave = sound(0.5, 6)
    stream = engine.chat([{"role": "user", "content": "hm"}], seed=1, more_audio=True)
    for stretch in np.array_split(wave, 4):
        stream.push_audio(stretch, RATE_HZ)
    with pytest.raises(RequestError, match="float32"):
        stream.push_audio(wave.astype(np.float64), RATE_HZ)
    stream.end_audio()
    text, pcm = heard(stream)
    parts = (Part("text", "hm"), Part("audio", wave, RATE_HZ))
    wanted_text, wanted_pcm = alone(ChatRequest((Message("user", parts),), seed=1))
    assert text == wanted_text and np.array_equal(pcm, wanted_pcm)


def test_reading_aloud_goes_through_the_writer_too(engine: SpeechEngine) -> None:
    """A given text is put into the writer's mouth; what is heard depends on it, and on nothing that came before."""
    one = engine.generate("hello there", seed=3, normalize=False)
    other = engine.generate("good bye", seed=3, normalize=False)
    again = engine.generate("hello there", seed=3, normalize=False)
    assert len(one.samples) and np.array_equal(one.samples, again.samples)
    assert not np.array_equal(one.samples[:100], other.samples[:100])


def test_leaving_early_gives_everything_back(engine: SpeechEngine) -> None:
    with engine.chat([{"role": "user", "content": "talk"}], max_tokens=200) as stream:
        next(iter(stream))
    heard(engine.chat([{"role": "user", "content": "next"}]))
    core = engine.core
    assert core.replies is not None
    assert not any(map(len, (core.lm, core.flow, core.vocoder, core.replies.lm, core.replies.media)))


REFUSED: tuple[tuple[Any, dict[str, Any], type[SpeechError], str], ...] = (
    ([], {}, RequestError, "empty"),
    ("hello", {}, RequestError, "list of messages"),
    ([{"role": "robot", "content": "x"}], {}, RequestError, "'robot'"),
    ([{"role": "user"}], {}, RequestError, "content"),
    ([{"role": "user", "content": [{"type": "song"}]}], {}, RequestError, "'song'"),
    ([{"role": "user", "content": "x"}], {"voice": "eve"}, UnknownVoice, "'eve'"),
    ([{"role": "user", "content": "x"}], {"modalities": ("smell",)}, RequestError, "smell"),
    ([{"role": "user", "content": "x"}], {"max_tokens": 0}, RequestError, "max_tokens = 0"),
    ([{"role": "user", "content": "x"}], {"seed": "7"}, RequestError, "seed must be int"),
    ([{"role": "user", "content": [{"type": "audio", "audio": np.zeros(0, np.float32), "sample_rate_hz": 1000}]}],
     {}, RequestError, "0 samples"),
)  # fmt: skip


@pytest.mark.parametrize(("messages", "options", "kind", "said"), REFUSED)
def test_refused_at_the_door(
    engine: SpeechEngine, messages: Any, options: dict[str, Any], kind: type[SpeechError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        engine.chat(messages, **options)


def test_too_long_for_the_cache() -> None:
    room = Listening()
    assert room.core.replies is not None
    pool = room.core.replies.lm.pool
    pages, pool.pages = pool.pages, 3
    room.submit(0, request())
    room.run()
    pool.pages = pages
    assert isinstance(room.errors[0], PromptTooLong)
    room.assert_empty()


def test_a_model_without_a_writer_says_so() -> None:
    with SpeechEngine(model(writes=False), SMALL) as engine, pytest.raises(UnsupportedFeature, match="small-talk"):
        engine.chat([{"role": "user", "content": "hello"}])


# --- messages ---


def test_messages_of_openai_clients() -> None:
    data = base64.b64encode(b"RIFFxxxx").decode()
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "low"}},
        {"type": "video_url", "video_url": f"data:video/mp4;base64,{data}"},
    ]
    (system, user) = read_messages(
        [{"role": "developer", "content": "be kind"}, {"role": "user", "content": parts}], True
    )
    assert system == Message("system", system.parts) and system.parts[0].content == "be kind"
    assert [(p.kind, p.content) for p in user.parts] == [
        ("text", "what is this?"), ("audio", b"RIFFxxxx"), ("image", b"RIFFxxxx"), ("video", b"RIFFxxxx")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "image_url", "image_url": {"url": "http://host/cat.png"}}, "only data: URLs"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "only data: URLs"),
        ({"type": "audio", "audio": "/etc/passwd"}, "'audio'"),
        ({"type": "input_audio", "input_audio": {"data": "not base64!"}}, "not base64"),
        ({"type": "input_audio", "input_audio": "x"}, "must be base64"),
        ({"type": "text", "text": 3}, "must be a string"),
        ("text", "must be an object"),
        (Part("audio", "/etc/passwd"), "must be an object"),
    ],
)
def test_what_a_message_from_outside_may_not_hold(part: object, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        read_messages([{"role": "user", "content": [part]}], from_outside=True)
    assert caught.value.param is not None and caught.value.param.startswith("messages[0].content[0]")


def test_half_a_character_is_refused(engine: SpeechEngine) -> None:
    with pytest.raises(RequestError, match="no character") as caught:
        engine.chat([{"role": "user", "content": "a\ud800"}])
    assert caught.value.param == "messages[0].content"


def test_a_prompt_that_two_models_read_is_billed_once(engine: SpeechEngine) -> None:
    stream = engine.chat([{"role": "user", "content": "count me"}])
    heard(stream)
    assert stream.report.usage.prompt_tokens == len("count me") + 1


def test_a_model_without_a_voice_still_writes() -> None:
    with SpeechEngine(replace(model(), voices={}, default_voice=""), SMALL) as silent:
        silent.warm_up()
        with pytest.raises(UnsupportedFeature, match="without its voice"):
            silent.chat([{"role": "user", "content": "x"}])
        assert "".join(p.text for p in silent.chat([{"role": "user", "content": "x"}], modalities=("text",)))  # type: ignore[union-attr]


def test_status_counts_the_writers_pages_too(engine: SpeechEngine) -> None:
    with engine.chat([{"role": "user", "content": "count"}], max_tokens=100) as stream:
        next(iter(stream))
        status = engine.status()
    assert 0 < status["writer_kv_pages_used"] <= status["writer_kv_pages"]


NUMBERS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"temperature": 1e-40}, "temperature"), ({"temperature": float("nan")}, "temperature"),
    ({"temperature": "x"}, "temperature"), ({"temperature": -1.0}, "temperature"), ({"top_k": -1}, "top_k"),
    ({"top_k": 2.5}, "top_k"), ({"top_p": 2.0}, "top_p"), ({"repetition_penalty": 0}, "repetition_penalty"),
)  # fmt: skip


@pytest.mark.parametrize(("numbers", "named"), NUMBERS)
def test_numbers_that_would_break_a_draw(engine: SpeechEngine, numbers: dict[str, Any], named: str) -> None:
    for name in ("sampling", "speech_sampling"):
        with pytest.raises(RequestError, match=named):
            engine.chat([{"role": "user", "content": "x"}], **{name: Sampling(**numbers)})  # type: ignore[misc]
    with pytest.raises(RequestError, match=named):
        engine.generate("x", sampling=Sampling(**numbers))


@pytest.mark.parametrize("seed", [-1, 2**64, -(2**70)])
def test_any_integer_is_a_seed(engine: SpeechEngine, seed: int) -> None:
    (text, pcm), (again, pcm_again) = (heard(engine.chat([{"role": "user", "content": "x"}], seed=seed)) for _ in "ab")
    assert text == again and np.array_equal(pcm, pcm_again)
    assert np.array_equal(engine.generate("x", seed=seed).samples, engine.generate("x", seed=seed).samples)


def test_text_that_is_no_text(engine: SpeechEngine) -> None:
    broken = Message("user", (Part("text", "a\udcff"),))
    for refused in (lambda: engine.chat([broken]), lambda: engine.generate("a\udcff")):
        with pytest.raises(RequestError, match="no character"):
            refused()
    with pytest.raises(RequestError, match="no character"):
        engine.generate(iter(["a\udcff"]))
    with pytest.raises(RequestError, match="modalities"):
        engine.chat([{"role": "user", "content": "x"}], modalities=None)  # type: ignore[arg-type]


def test_an_engine_that_nobody_closes_ends_with_its_process() -> None:
    script = "import legato; legato.load().generate('Hi there.')"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
