"""Messages → conversation: the model's own form of a dialogue, limits, and who speaks."""

from __future__ import annotations

from dataclasses import dataclass

from legato.errors import PromptTooLong, RequestError, UnknownVoice, UnsupportedFeature
from legato.protocols import SHARE_ALL, Prompt
from legato.types import ChatRequest, Message, Part, Sampling, UtteranceId, Voice

from .conversation import Live, LiveLimits, OmniConversation, Writing
from .handover import Handover, Speak
from .media import MediaReader
from .parts import ThinkerConfig
from .pictures import PixelLimits
from .pieces import Pieces
from .sounds import PARAM
from .tokenizer import Detokenizer, TextTokenizer

SPEAKING_SYSTEM = (
    "You are Qwen, a virtual human developed by the Qwen Team, Alibaba Group, capable of perceiving auditory and "
    "visual inputs, as well as generating text and speech."
)
"""What stands in front of a dialogue without a system message. The model was trained to speak behind no other."""

WRITING_SYSTEM = "You are a helpful assistant."
"""The same for replies in text only."""

ROLES = ("system", "user", "assistant")
MAX_TOKENS = 1024
"""Ids of a reply when the request sets no limit, as in the model's own generation settings."""

LIVE = LiveLimits(seconds=120)
GREEDY = Sampling(temperature=0)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A request whose messages were read. `pieces` is for one conversation."""

    request: ChatRequest
    pieces: Pieces
    max_tokens: int


class OmniChat:
    """A Chat. `speak` makes the talker's side of a reply; None for a model that was loaded to write only."""

    def __init__(
        self,
        config: ThinkerConfig,
        tokenizer: TextTokenizer,
        limits: PixelLimits,
        speak: Speak | None = None,
        voices: dict[str, Voice] | None = None,
        default_voice: str = "",
    ) -> None:
        self.config, self.tokenizer, self.speak = config, tokenizer, speak
        self.voices, self.default_voice = voices or {}, default_voice
        self._reader = MediaReader(config, limits)

    def prepare(self, request: ChatRequest) -> Prepared:
        """Read and lay out the messages. Raises RequestError naming the part that cannot be used, PromptTooLong."""
        self._voice(request)
        pieces = Pieces(self.config, self.tokenizer)
        if request.messages[0].role != "system":
            pieces.open_turn("system")
            pieces.text(SPEAKING_SYSTEM if "audio" in request.modalities else WRITING_SYSTEM)
            pieces.close_turn()
        for index, message in enumerate(request.messages):
            last = index == len(request.messages) - 1
            self._message(pieces, request, message, f"messages[{index}]", live=last and request.more_audio)
        if not request.more_audio:
            pieces.open_turn("assistant")
        return Prepared(request, pieces, self._max_tokens(request, pieces))

    def _message(self, pieces: Pieces, request: ChatRequest, message: Message, name: str, *, live: bool) -> None:
        if message.role not in ROLES:
            raise RequestError(f"{name}.role = {message.role!r}: choose one of {', '.join(ROLES)}", PARAM)
        if live and message.role != "user":
            raise RequestError(f"{name} is the {message.role}'s; only a user's can go on with more_audio", PARAM)
        if not message.parts and not live:
            raise RequestError(f"{name} has no content", PARAM)
        pieces.open_turn(message.role)
        for index, part in enumerate(message.parts):
            self._part(pieces, request, message, part, f"{name}.content[{index}]")
        if live:
            pieces.open_live()
        else:
            pieces.close_turn()

    def _part(self, pieces: Pieces, request: ChatRequest, message: Message, part: Part, name: str) -> None:
        if part.kind not in ("text", "audio", "image", "video"):
            raise RequestError(f"{name} is of kind {part.kind!r}: choose one of text, audio, image, video", PARAM)
        if part.kind == "text":
            if not isinstance(part.content, str):
                raise RequestError(f"{name} must be text, not {type(part.content).__name__}", PARAM)
            pieces.text(part.content)
        elif message.role != "user":
            raise RequestError(f"{name}: {message.role} messages hold text only, not {part.kind}", PARAM)
        else:
            pieces.medium(self._reader.read(part, f"{name} ({part.kind})", audio_in_video=request.audio_in_video))

    def _max_tokens(self, request: ChatRequest, pieces: Pieces) -> int:
        """Ids the reply may have. Raises PromptTooLong when the model has no room for them."""
        known = pieces.count() + self._live_rows(request)
        room = self.config.context - known
        wanted = request.max_tokens or min(MAX_TOKENS, max(room, 1))
        if wanted > room:
            raise PromptTooLong(
                f"the messages need {known} positions and the reply up to {wanted}; "
                f"this model has {self.config.context}",
                PARAM,
            )
        return wanted

    def _live_rows(self, request: ChatRequest) -> int:
        """Positions kept free for what the user will say, and what ends it."""
        if not request.more_audio:
            return 0
        return LIVE.seconds * self.config.positions_per_second + len(self.tokenizer.encode("assistant\n")) + 8

    def _voice(self, request: ChatRequest) -> Voice:
        """The voice of the reply; one without facts for a reply in text only."""
        if "audio" not in request.modalities:
            return self.voices.get(self.default_voice, Voice("none"))
        if self.speak is None:
            raise UnsupportedFeature(
                "this model was loaded without its voice: ask for modalities = ['text']", "modalities"
            )
        name = request.voice or self.default_voice
        if name not in self.voices:
            raise UnknownVoice(name, tuple(self.voices))
        return self.voices[name]

    def open(self, prepared: Prepared, id: UtteranceId) -> OmniConversation:
        """The conversation of what `prepare` gave."""
        request, pieces, voice = prepared.request, prepared.pieces, self._voice(prepared.request)
        speaks = self.speak is not None and "audio" in request.modalities
        handover = Handover(pieces.length + self._live_rows(request)) if speaks else None
        writing = Writing(self.tokenizer.ends, prepared.max_tokens, handover)
        writer = Prompt(
            utterance=id,
            token_ids=(),
            continuation=writing,
            sampling=request.sampling or GREEDY,
            seed=request.seed,
            max_positions=pieces.length + self._live_rows(request) + prepared.max_tokens,
            shared_tokens=SHARE_ALL if request.use_cache else 0,
            share_key="thinker",
            use_cache=request.use_cache,
            places=(),
            keys=(),
            open=True,
            relay=handover,
        )
        speech = self.speak(id, handover, voice, request) if self.speak is not None and handover is not None else None
        conversation = OmniConversation(writer, speech, voice, writing, Detokenizer(self.tokenizer))
        conversation.begin(pieces, Live(pieces, LIVE) if request.more_audio else None)
        return conversation
