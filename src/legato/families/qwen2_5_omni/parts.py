"""Settings of the parts of a Qwen2.5-Omni model, as nouns. Nothing here reads files (config.py does)."""

from __future__ import annotations

from dataclasses import dataclass

from legato.nn.decoder import DecoderConfig


@dataclass(frozen=True)
class AudioConfig:
    """Encoder of sound. Blocks of `block_frames` mel frames are encoded by themselves."""

    mel_bins: int
    width: int
    layers: int
    heads: int
    inner: int
    block_frames: int
    out_width: int

    def tokens(self, mel_frames: int) -> int:
        """Rows that so many mel frames become: a convolution halves them, then pairs are averaged."""
        whole, rest = divmod(mel_frames, self.block_frames)
        return whole * _rows(self.block_frames) + _rows(rest)


def _rows(mel_frames: int) -> int:
    return (mel_frames + 1) // 2 // 2


@dataclass(frozen=True)
class VisionConfig:
    """Encoder of pictures. A patch is `patch_pixels` square and `patch_frames` pictures deep; `merge` × `merge` patches
    become one row. All layers but `full_layers` attend within windows of `window_pixels` square."""

    width: int
    layers: int
    heads: int
    inner: int
    patch_pixels: int
    patch_frames: int
    merge: int
    window_pixels: int
    full_layers: tuple[int, ...]
    out_width: int

    @property
    def cell_pixels(self) -> int:
        """Side of what becomes one row."""
        return self.patch_pixels * self.merge


@dataclass(frozen=True)
class ThinkerIds:
    """Ids of the thinker's vocabulary that mean something. `audio`, `image` and `video` hold the place of one row of a
    medium. `ends` end a reply."""

    audio: int
    image: int
    video: int
    audio_start: int
    audio_end: int
    vision_start: int
    vision_end: int
    ends: tuple[int, ...]

    @property
    def media(self) -> tuple[int, int, int]:
        """Ids whose embeddings are replaced by features."""
        return self.audio, self.image, self.video


@dataclass(frozen=True)
class ThinkerConfig:
    """The part that hears, sees, reads and writes. At most `context` positions. Time passes at `positions_per_second`;
    a video and its sound take turns every `seconds_per_chunk`."""

    decoder: DecoderConfig
    vocabulary: int
    tied: bool
    context: int
    audio: AudioConfig
    vision: VisionConfig
    ids: ThinkerIds
    positions_per_second: int
    seconds_per_chunk: int


@dataclass(frozen=True)
class TalkerIds:
    """Ids the talker is driven by: `text_*` are of the thinker's vocabulary, `codec_*` of its own. `codec_mask` stands
    at prompt positions, which have no code."""

    text_end: int
    text_pad: int
    codec_start: int
    codec_end: int
    codec_pad: int
    codec_mask: int


@dataclass(frozen=True)
class TalkerConfig:
    """The part that speaks. Its inputs are `embedding_width` wide, as the thinker's rows are."""

    decoder: DecoderConfig
    vocabulary: int
    embedding_width: int
    context: int
    ids: TalkerIds


@dataclass(frozen=True)
class EcapaConfig:
    """ECAPA-TDNN (Desplanques et al. 2020, arXiv:2005.07143), which makes a vector of a reference mel."""

    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    dilations: tuple[int, ...]
    attention_channels: int
    res2net_scale: int
    se_channels: int
    out_width: int


@dataclass(frozen=True)
class FlowConfig:
    """Codes → mel. `codes` is the largest code that has an embedding (there are codes + 1 rows). Layers attend within
    blocks of `block_frames`, those listed also one block ahead or back."""

    width: int
    layers: int
    heads: int
    head_dim: int
    inner: int
    codes: int
    code_width: int
    frames_per_code: int
    mel_bins: int
    speaker_width: int
    block_frames: int
    look_ahead_layers: tuple[int, ...]
    look_back_layers: tuple[int, ...]
    ecapa: EcapaConfig
    rope_theta: float
