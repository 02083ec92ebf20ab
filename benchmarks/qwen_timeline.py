"""One reply of Qwen2.5-Omni as it happens: benchmarks/qwen_timeline.py [--size middle] [--plot FILE] [--json FILE]

The real engine core on a random checkpoint, with real durations on this machine: what the writer (thinker), the talker,
the flow and the vocoder compute when, and which chunks of sound leave meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from legato.bench.machine import machine_facts
from legato.config import EngineConfig
from legato.core import EngineCore
from legato.types import AudioChunk, ChatRequest, Message, Part, SpeechTokens, TextDelta

sys.path.insert(0, str(Path(__file__).resolve().parent))
from qwen_random import QUESTION, SIZES, build, fixed_length
from timeline import CHUNKS, Recorder, merged, plot, show, show_chunks

LANES = ("thinker", "talker", "flow", "vocoder", CHUNKS)


class Reply:
    """One reply, watched. `codes_at_chunk` are (text ids, codes) there when each chunk left."""

    def __init__(self, folder: Path, codes: int) -> None:
        self.recorder = Recorder()
        self.model = fixed_length(folder, codes)
        self.letters = self.codes = 0
        self.known_at_chunk: list[str] = []
        self.ended = False
        self.core = EngineCore(self.model, EngineConfig(hold_first_sound=False), self._piece, self._error)
        assert self.core.replies is not None
        self.recorder.watch(self.core.replies.lm, "thinker", lambda span: span.sequence.utterance)
        self.recorder.watch(self.core.lm, "talker", lambda span: span.sequence.utterance)
        self.recorder.watch(self.core.flow, "flow", lambda window: window.utterance)
        self.recorder.watch(self.core.vocoder, "vocoder", lambda window: window.utterance)
        self._count(self.core.replies.lm, "letters")
        self._count(self.core.lm, "codes")

    def _count(self, stage: Any, name: str) -> None:
        """Count what a language model emits."""
        commit = stage.commit

        def counted(batch: Any, result: Any) -> list[SpeechTokens]:
            out: list[SpeechTokens] = commit(batch, result)
            setattr(self, name, getattr(self, name) + sum(len(tokens.ids) for tokens in out))
            return out

        stage.commit = counted

    def _piece(self, request: int, piece: AudioChunk | TextDelta) -> None:
        if isinstance(piece, AudioChunk) and len(piece.pcm):
            self.recorder.chunk(request, piece.duration_s)
            self.known_at_chunk.append(f"{self.letters} text ids, {self.codes} codes")
        self.ended = self.ended or piece.final

    def _error(self, _: int, error: Exception) -> None:
        raise error

    def answer(self, number: int, text_ids: int) -> None:
        assert self.model.writer is not None
        self.recorder.events.clear()
        self.known_at_chunk.clear()
        self.letters = self.codes = 0
        request = ChatRequest((Message("user", (Part("text", QUESTION),)),), max_tokens=text_ids)
        self.core.submit_chat(number, request, self.model.writer.chat.prepare(request))
        self.core.taken(number, 10**9)
        start_s = self.recorder.now()
        while self.core.step():
            pass
        shifted = [
            type(event)(event.lane, event.start_s - start_s, event.stop_s - start_s, event.request, event.amount)
            for event in self.recorder.events
        ]
        self.recorder.events[:] = shifted

    def summary(self) -> dict[str, Any]:
        events = self.recorder.events
        last = {lane: max(event.stop_s for event in events if event.lane == lane) for lane in LANES}
        first = {lane: min(event.start_s for event in events if event.lane == lane) for lane in LANES}
        return {
            "first_s": first,
            "last_s": last,
            "text_ids": self.letters,
            "codes": self.codes,
            "known_at_first_sound": self.known_at_chunk[0],
            "audio_s": sum(event.amount for event in events if event.lane == CHUNKS) / 1000,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=tuple(SIZES), default="middle")
    parser.add_argument("--codes", type=int, default=200)
    parser.add_argument("--text-ids", type=int, default=60)
    parser.add_argument("--plot", type=Path, default=None, help="a picture; the ending chooses its format")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), SIZES[options.size])
        with torch.inference_mode():
            reply = Reply(Path(folder), options.codes)
            for number in range(2):  # the first warms up
                reply.answer(number, options.text_ids)
    events = reply.recorder.events
    show(events, LANES, Console())
    show_chunks(events, reply.known_at_chunk, "known by then", Console())
    figures = {"machine": machine_facts(), "size": options.size} | reply.summary()
    print(json.dumps(figures, indent=1))
    if options.json:
        rows = [asdict(event) for event in merged(events)]
        options.json.write_text(json.dumps(figures | {"events": rows}, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        plot(events, LANES, f"One reply of a random Qwen2.5-Omni ({options.size}), on two CPU cores", options.plot)


if __name__ == "__main__":
    main()
