"""Replies: what stands in front of the speaking stages of a model that holds conversations.

It owns the stage that encodes media, the stage of the writing language model and the conversations in them. It moves
rows and text; deadlines and delivery are the core's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from legato.config import EngineConfig
from legato.conversation import Conversation, Writer
from legato.lm.media import Encoded, MediaStage
from legato.lm.scheduler import SchedulerLimits
from legato.lm.stage import LMStage
from legato.nn.attention import choose_backend
from legato.types import SpeechTokens, UtteranceId


class Replies:
    """The writing half of the engine."""

    def __init__(self, writer: Writer, config: EngineConfig, batch_invariant: bool) -> None:
        kv = writer.lm.kv_shape
        backend, _ = choose_backend(config.attn_kernel, kv.device, kv.dtype, batch_invariant)
        self.lm = LMStage(
            writer.lm,
            pages=config.writer_pages(kv.bytes_per_position),
            page_size=config.kv_page_size,
            limits=SchedulerLimits(
                config.max_tokens_per_step, config.prefill_tokens_beside_decodes, config.max_sequences
            ),
            backend=backend,
            memory_key="engine.writer_kv_memory_mb",
        )
        self.media = MediaStage(writer.media, config.media_rows_per_step, config.media_cache_mb * 2**20)
        self._chat = writer.chat
        self._open: dict[UtteranceId, Conversation] = {}

    def open(self, id: UtteranceId, prepared: Any) -> Conversation:
        """Begin a reply. Raises PromptTooLong."""
        conversation = self._chat.open(prepared, id)
        self.lm.add(conversation.writer)
        self._open[id] = conversation
        self._encode(id)
        return conversation

    def hear(self, id: UtteranceId, wave: np.ndarray | None, sample_rate_hz: int) -> None:
        """More of what the user says, or its end (None). Raises RequestError."""
        conversation = self._open[id]
        if wave is None:
            conversation.end_audio()
        else:
            conversation.push_audio(wave, sample_rate_hz)
        self._encode(id)

    def _encode(self, id: UtteranceId) -> None:
        """What was encoded before is there at once, so that a next turn can start behind the last one."""
        conversation, fresh = self._open[id], []
        for block in conversation.blocks():
            features = self.media.recall(block.key)
            if features is None:
                fresh.append(block)
            else:
                conversation.encoded(block, features)
        self.media.add((id, fresh))

    def encoded(self, item: Encoded) -> None:
        self._open[item.utterance].encoded(item.block, item.features)

    def text(self, tokens: SpeechTokens) -> str | None:
        """The text that these ids complete; None where they belong to a given text that is only read aloud."""
        conversation = self._open.get(tokens.utterance)
        return None if conversation is None else conversation.text(tokens.ids, tokens.final)

    def find(self, id: UtteranceId) -> Conversation | None:
        return self._open.get(id)

    def drop(self, id: UtteranceId) -> None:
        """Give back everything of a reply."""
        self._open.pop(id, None)
        self.lm.drop(id)
        self.media.drop(id)
