"""What a listener experienced: first sound, real-time factor, underrun. One definition for every surface.

A player starts with the first samples at t_0. Before chunk i arrives at t_i it has (t_i − t_0) seconds to fill and has
received the audio of the chunks before it; what is missing is the deficit, and the largest deficit is the underrun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from legato.types import Usage

CONTINUITY_LIMIT_S = 0.1
"""A stream whose underrun stays within this counts as continuous."""


@dataclass
class StreamReport:
    """The figures of one stream. `chunks` are (seconds since the request was accepted, samples), in order; `texts` the
    same with characters, for a reply that the model writes itself."""

    sample_rate_hz: int
    seed: int = 0
    model: str = ""
    voice: str = ""
    chunks: list[tuple[float, int]] = field(default_factory=list)
    texts: list[tuple[float, int]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    wall_s: float = 0.0

    def add(self, at_s: float, samples: int) -> None:
        """Note `samples` that left `at_s` seconds after the request was accepted. Empty chunks carry no sound."""
        self.wall_s = max(self.wall_s, at_s)
        if samples:
            self.chunks.append((at_s, samples))

    def add_text(self, at_s: float, text: str) -> None:
        """Note text that left `at_s` seconds after the request was accepted."""
        self.wall_s = max(self.wall_s, at_s)
        if text:
            self.texts.append((at_s, len(text)))

    @property
    def first_text_s(self) -> float | None:
        """When the first text left; None while there is none."""
        return self.texts[0][0] if self.texts else None

    @property
    def ttfa_s(self) -> float | None:
        """Time to first audio; None while there is none."""
        return self.chunks[0][0] if self.chunks else None

    @property
    def audio_s(self) -> float:
        return sum(samples for _, samples in self.chunks) / self.sample_rate_hz

    @property
    def rtf(self) -> float | None:
        """Seconds of work per second of audio; below 1 is faster than real time."""
        return self.wall_s / self.audio_s if self.chunks else None

    @property
    def underrun_s(self) -> float:
        worst, received = 0.0, 0
        for at_s, samples in self.chunks:
            worst = max(worst, at_s - self.chunks[0][0] - received / self.sample_rate_hz) if received else worst
            received += samples
        return worst

    def as_dict(self) -> dict[str, Any]:
        """The stable shape of `stats.json`."""
        return {
            "ttfa_s": _rounded(self.ttfa_s),
            "wall_s": _rounded(self.wall_s),
            "audio_s": _rounded(self.audio_s),
            "rtf": _rounded(self.rtf),
            "underrun_s": _rounded(self.underrun_s),
            "sample_rate_hz": self.sample_rate_hz,
            "seed": self.seed,
            "model": self.model,
            "voice": self.voice,
            "chunks": [{"t_s": _rounded(at_s), "samples": samples} for at_s, samples in self.chunks],
            "lm": {
                "prompt_tokens": self.usage.prompt_tokens,
                "generated_tokens": self.usage.generated_tokens,
                "steps": self.usage.lm_steps,
            },
            "kv": {"pages_peak": self.usage.pages_peak, "page_operations": self.usage.page_operations},
        }

    def line(self) -> str:
        """One line for a person."""
        if self.ttfa_s is None or self.rtf is None:
            return "no sound"
        return (
            f"first sound {self.ttfa_s * 1000:.0f} ms · {self.audio_s:.2f} s of audio in {self.wall_s:.2f} s · "
            f"RTF {self.rtf:.3f} · underrun {self.underrun_s * 1000:.0f} ms"
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
