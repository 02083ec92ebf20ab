"""`POST /v1/chat/completions` through a real server and real clients: what is asked, what is answered."""

from __future__ import annotations

import base64
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from legato.errors import RequestError
from legato.serving.encoders import FORMATS, to_int16
from legato.serving.events import Base64Pieces
from legato.serving.transcripts import KEPT_S, MOST_KEPT, Transcripts
from legato.types import Sampling

from .conversing import BOTH, ROUTE, as_pcm16, body, chat_of, heard, own, said
from .fakes import Server
from .test_encoders import decode

# --- streamed ---


def test_streamed_text_and_sound_are_the_engines_own(talker_client: httpx.Client, talker: Server) -> None:
    answer = talker_client.post(ROUTE, json=body(stream=True, modalities=BOTH, audio={"voice": "bob"}, seed=3))
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/event-stream"
    assert (answer.headers["x-seed"], answer.headers["x-accel-buffering"]) == ("3", "no")
    got, (text, pcm) = heard(answer.text), own(talker.engine, said(), voice="bob", seed=3)
    assert got.text == got.transcript == text and len(text) > 1
    assert b"".join(map(base64.b64decode, got.pieces)) == as_pcm16(pcm) and len(pcm) > 100
    # Clients that join the texts and decode once get all of it too.
    assert base64.b64decode("".join(got.pieces)) == as_pcm16(pcm)
    assert len(got.pieces) > 2 and all(len(base64.b64decode(piece)) % 6 == 0 for piece in got.pieces[:-1])


def test_the_order_of_chunks(talker_client: httpx.Client) -> None:
    got = heard(talker_client.post(ROUTE, json=body(stream=True, modalities=BOTH, max_tokens=40)).text)
    first, *middle, expiry, last = got.choices
    assert first["delta"]["role"] == "assistant" and first["delta"]["audio"]["id"].startswith("audio_")
    assert all("role" not in choice["delta"] for choice in got.choices[1:])
    assert all(audio.keys() <= {"data", "transcript"} for audio in (c["delta"]["audio"] for c in middle))
    assert expiry["delta"]["audio"]["expires_at"] == pytest.approx(time.time() + KEPT_S, abs=5)
    assert (last["delta"], last["finish_reason"]) == ({}, "length")
    assert {choice["finish_reason"] for choice in got.choices[:-1]} == {None}
    assert {choice["index"] for choice in got.choices} == {0}
    [(made, kind, name)] = {(chunk["id"], chunk["object"], chunk["model"]) for chunk in got.chunks}
    assert made.startswith("chatcmpl-") and (kind, name) == ("chat.completion.chunk", "small-talk")
    kinds = ["sound" if choice["delta"]["audio"]["data"] else "text" for choice in middle]
    assert "text" in kinds[kinds.index("sound") :], "sound leaves while the text is still written"


def test_streamed_text_only(talker_client: httpx.Client, talker: Server) -> None:
    options = {"include_usage": True}
    got = heard(talker_client.post(ROUTE, json=body(stream=True, stream_options=options, seed=4)).text)
    assert got.text == own(talker.engine, said(), modalities=("text",), seed=4)[0]
    assert not got.audios, "no key at all: clients that see one read what is in it"
    *chunks, last = got.chunks
    assert last["choices"] == [] and all(chunk["usage"] is None for chunk in chunks)
    usage = last["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > len(got.text)
    assert last["stats"]["seed"] == 4


def test_no_usage_unless_wanted(talker_client: httpx.Client) -> None:
    got = heard(talker_client.post(ROUTE, json=body(stream=True)).text)
    assert all("usage" not in chunk and chunk["choices"] for chunk in got.chunks)


@pytest.mark.parametrize("name", [None, "pcm16", "pcm", "wav"])
def test_a_streamed_reply_is_bare_samples_under_any_of_its_names(talker_client: httpx.Client, name: str | None) -> None:
    got = heard(talker_client.post(ROUTE, json=body(stream=True, modalities=BOTH, audio={"format": name})).text)
    assert base64.b64decode(got.pieces[0])[:4] != b"RIFF"


# --- whole ---


def test_whole_reply(talker_client: httpx.Client, talker: Server) -> None:
    wanted = body(modalities=BOTH, audio={"voice": {"id": "bob"}, "format": "wav"}, seed=3)
    answer = talker_client.post(ROUTE, json=wanted)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.content))
    completion = answer.json()
    [choice] = completion["choices"]
    text, pcm = own(talker.engine, said(), voice="bob", seed=3)
    message = choice["message"]
    assert (message["role"], message["content"], message["audio"]["transcript"]) == ("assistant", text, text)
    sound = base64.b64decode(message["audio"]["data"])
    assert sound[44:] == to_int16(pcm).tobytes() and int.from_bytes(sound[4:8], "little") == len(sound) - 8
    assert choice["finish_reason"] in ("stop", "length") and completion["object"] == "chat.completion"
    assert completion["usage"]["completion_tokens"] > len(text)


def test_whole_text(talker_client: httpx.Client, talker: Server) -> None:
    [choice] = talker_client.post(ROUTE, json=body(max_completion_tokens=5, max_tokens=9)).json()["choices"]
    assert choice["message"] == {
        "role": "assistant", "content": own(talker.engine, said(), modalities=("text",), max_tokens=5)[0],
        "refusal": None,
    }  # fmt: skip
    assert choice["finish_reason"] == "length" and len(choice["message"]["content"]) == 5


@pytest.mark.parametrize("name", [*FORMATS, "pcm16"])
def test_every_format(talker_client: httpx.Client, talker: Server, name: str) -> None:
    wanted = body(modalities=BOTH, audio={"voice": "ann", "format": name}, max_tokens=3)
    data = base64.b64decode(talker_client.post(ROUTE, json=wanted).json()["choices"][0]["message"]["audio"]["data"])
    pcm = own(talker.engine, said(), max_tokens=3)[1]
    if name in ("pcm", "pcm16"):
        assert data == as_pcm16(pcm)
    else:
        decoded, rate_hz = decode(name, data)
        assert len(decoded) / rate_hz == pytest.approx(len(pcm) / 400, abs=0.3)


# --- what is asked ---


def test_media_as_data(talker_client: httpx.Client, talker: Server) -> None:
    """Sounds and pictures in a message are the bytes that were sent, and are heard."""
    sound, picture = bytes(range(250)), bytes(range(100, 220))
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(sound).decode(), "format": "wav"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(picture).decode()}},
    ]
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": parts}]
    message = talker_client.post(ROUTE, json=body(messages=messages, seed=2)).json()["choices"][0]["message"]
    contents = [[part.content for part in asked.parts] for asked in chat_of(talker).requests[-1].messages]
    assert contents == [["be kind"], ["what is this?", sound, picture]]
    own_parts = [{"type": "text", "text": "what is this?"}, *({"type": "audio", "audio": b} for b in (sound, picture))]
    own_messages = [messages[0], {"role": "user", "content": own_parts}]
    assert message["content"] == own(talker.engine, own_messages, modalities=("text",), seed=2)[0]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, {"modalities": ("text",), "voice": None, "sampling": None, "seed": 0, "max_tokens": None}),
        ({"modalities": BOTH}, {"voice": None}),
        ({"modalities": BOTH, "audio": {"voice": "alloy"}}, {"voice": "ann"}),
        ({"modalities": BOTH, "audio": {"voice": "ash"}}, {"voice": "bob"}),
        ({"modalities": ["audio"]}, {"modalities": ("audio",)}),
        ({"temperature": 0}, {"sampling": Sampling(0.0)}),
        ({"top_p": 0.5}, {"sampling": Sampling(1.0, top_p=0.5)}),
        ({"temperature": 0.3, "top_p": 1}, {"sampling": Sampling(0.3)}),
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"seed": 2**63 - 1}, {"seed": 2**63 - 1}),
        ({"audio_in_video": True}, {"audio_in_video": True}),
        (dict.fromkeys(["modalities", "audio", "stream", "n", "stop", "seed", "stream_options"]), {"seed": 0}),
    ],
)
def test_fields_reach_the_engine(
    talker_client: httpx.Client, talker: Server, fields: dict[str, Any], asked: dict[str, Any]
) -> None:
    assert talker_client.post(ROUTE, json=body(**fields)).status_code == 200
    request = chat_of(talker).requests[-1]
    assert {name: vars(request)[name] for name in asked} == asked


def test_fields_without_effect_are_named(talker_client: httpx.Client) -> None:
    extras = {"audio": {"voice": "bob"}, "stream_options": {"include_usage": True}, "tools": [], "user": "me"}
    answer = talker_client.post(ROUTE, json=body(**extras))
    assert answer.status_code == 200
    assert answer.headers["x-ignored-parameters"] == "audio, stream_options, tools, user"
    assert "x-ignored-parameters" not in talker_client.post(ROUTE, json=body(audio=None, stream_options=None)).headers


def test_a_spoken_reply_can_be_referred_to(talker_client: httpx.Client, talker: Server) -> None:
    first = talker_client.post(ROUTE, json=body(modalities=BOTH)).json()["choices"][0]["message"]
    turn = {"role": "assistant", "content": None, "audio": {"id": first["audio"]["id"]}}
    assert talker_client.post(ROUTE, json=body(messages=[*said(), turn, *said("and then?")])).status_code == 200
    roles = [(m.role, m.parts[0].content) for m in chat_of(talker).requests[-1].messages]
    assert roles == [("user", "hello"), ("assistant", first["content"]), ("user", "and then?")]
    streamed = heard(talker_client.post(ROUTE, json=body(modalities=BOTH, stream=True)).text)
    turn = {"role": "assistant", "audio": {"id": streamed.audios[0]["id"]}}
    assert talker_client.post(ROUTE, json=body(messages=[turn, *said()])).status_code == 200
    assert chat_of(talker).requests[-1].messages[0].parts[0].content == streamed.text


def test_transcripts_are_forgotten() -> None:
    now_s = 1000.0
    kept = Transcripts(lambda: now_s)
    assert kept.keep("a", "hello") == 1000 + KEPT_S
    turn = {"role": "assistant", "audio": {"id": "a"}}
    assert kept.filled_in([turn, "x"]) == [{"role": "assistant", "content": "hello"}, "x"]
    now_s += KEPT_S
    with pytest.raises(RequestError, match=r"messages\[1\]"):
        kept.filled_in([{"role": "user", "content": "x"}, turn])
    now_s = 0.0
    for number in range(MOST_KEPT):
        kept.keep(f"b{number}", "x")
    with pytest.raises(RequestError):
        kept.filled_in([turn])


@pytest.mark.parametrize("size", [1, 2, 5, 6, 7, 100])
def test_base64_pieces_can_be_joined_before_decoding(size: int) -> None:
    data, pieces = bytes(range(251)), Base64Pieces()
    texts = [pieces.push(data[start : start + size]) for start in range(0, len(data), size)]
    assert all(len(base64.b64decode(text)) % 6 == 0 for text in texts)
    assert base64.b64decode("".join(texts) + pieces.finish()) == data


# --- many at once ---


def test_eight_at_once_get_their_own_reply(talker: Server) -> None:
    def ask(seed: int) -> tuple[str, bytes]:
        wanted = body(stream=True, modalities=BOTH, seed=seed, messages=said(f"number {seed}"))
        got = heard(httpx.post(talker.url + ROUTE, json=wanted, timeout=30).text)
        return got.text, base64.b64decode("".join(got.pieces))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    alone = [own(talker.engine, said(f"number {seed}"), seed=seed) for seed in range(8)]
    assert answers == [(text, as_pcm16(pcm)) for text, pcm in alone]
    assert len({text for text, _ in answers}) == 8


# --- OpenAI's own client ---


def test_openai_client_streams(openai_talker: openai.OpenAI, talker: Server) -> None:
    chunks = openai_talker.chat.completions.create(
        model="small-talk", messages=said(), modalities=["text", "audio"], audio={"voice": "bob", "format": "pcm16"},
        stream=True, stream_options={"include_usage": True}, seed=3,
    )  # type: ignore[call-overload]  # fmt: skip
    text, sound, usage = "", "", None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if (audio := choice.delta.model_dump().get("audio")) is not None:
                sound += audio["data"]  # which is never missing: DashScope's examples rely on it
    own_text, pcm = own(talker.engine, said(), voice="bob", seed=3)
    assert text == own_text and base64.b64decode(sound) == as_pcm16(pcm)
    assert usage is not None and usage.total_tokens > 0


def test_openai_client_joins_chunks(openai_talker: openai.OpenAI, talker: Server) -> None:
    """Its own helper adds up whatever the chunks hold. It takes no reply that was cut off; this one was not."""
    with openai_talker.chat.completions.stream(
        model="small-talk", messages=said(), modalities=["text", "audio"], audio={"voice": "bob", "format": "pcm16"},
        seed=4,
    ) as stream:  # type: ignore[arg-type]  # fmt: skip
        message = stream.get_final_completion().choices[0].message
    own_text, pcm = own(talker.engine, said(), voice="bob", seed=4)
    assert message.audio is not None and message.audio.transcript == message.content == own_text
    assert base64.b64decode(message.audio.data) == as_pcm16(pcm)
    assert message.audio.id.count("audio_") == 1 and message.audio.expires_at < time.time() + 2 * KEPT_S


def test_openai_client_whole(openai_talker: openai.OpenAI, talker: Server) -> None:
    create = openai_talker.chat.completions.create
    completion = create(
        model="gpt-audio", messages=said(), modalities=["text", "audio"], audio={"voice": "alloy", "format": "flac"}
    )  # type: ignore[call-overload]
    message = completion.choices[0].message
    _, pcm = own(talker.engine, said())
    decoded, _ = decode("flac", base64.b64decode(message.audio.data))
    assert np.array_equal(np.rint(decoded * 32768), to_int16(pcm))
    turns = [*said(), {"role": "assistant", "audio": {"id": message.audio.id}}, *said("why?")]
    assert create(model="gpt-audio", messages=turns).choices[0].message.content  # type: ignore[call-overload]
    with pytest.raises(openai.BadRequestError, match="ann, bob") as refused:
        create(model="gpt-audio", messages=said(), modalities=["audio"], audio={"voice": "x", "format": "wav"})  # type: ignore
    assert refused.value.code == "voice_not_found"
