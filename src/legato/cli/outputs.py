"""Where spoken samples go: files, stdout, the loudspeaker."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import typer

from legato.errors import SpeechError
from legato.playback import check_device
from legato.serving.encoders import Format, find_format, format_for, open_encoder, wav_header

STDOUT = "-"


class Output(Protocol):
    """Push samples, then end with `finish` (all was spoken) or `stop` (it was not; what was pushed stays valid)."""

    def push(self, pcm: npt.NDArray[np.float32]) -> None: ...

    def finish(self) -> None: ...

    def stop(self) -> None: ...


class FileOutput:
    """An encoder into a file. The file is made when the first bytes are there, so failures leave an old one alone."""

    def __init__(self, target: str, form: Format, sample_rate_hz: int, *, whole: bool) -> None:
        self._target, self._form, self._rate_hz = target, form, sample_rate_hz
        self._encoder = open_encoder(form, sample_rate_hz, whole=whole)
        self._exact_header = whole or form.name != "wav"
        self._file: BinaryIO | None = None
        self._ended = False

    def push(self, pcm: npt.NDArray[np.float32]) -> None:
        self._write(self._encoder.push(pcm))

    def finish(self) -> None:
        self._write(self._encoder.finish())
        self._close()

    def stop(self) -> None:
        """End the file after what was pushed. A file that holds nothing yet is not made."""
        if self._file is not None and not self._ended:
            self.finish()

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._file is None:
            self._file = sys.stdout.buffer if self._target == STDOUT else open(self._target, "wb")  # noqa: SIM115
        self._file.write(data)
        self._file.flush()

    def _close(self) -> None:
        self._ended = True
        if self._file is None or self._target == STDOUT:
            return
        if not self._exact_header and self._file.seekable():
            _write_sizes(self._file, self._rate_hz)
        self._file.close()


def _write_sizes(file: BinaryIO, sample_rate_hz: int) -> None:
    """Turn the header of a streamed wav into that of a file, now that its length is known."""
    header_bytes = len(wav_header(sample_rate_hz, None))
    data_bytes = (file.seek(0, io.SEEK_END) - header_bytes) // 2 * 2
    file.seek(0)
    file.write(wav_header(sample_rate_hz, data_bytes))


def output_format(target: str, name: str | None) -> Format:
    """The format by name, else by the target's extension; stdout gets wav. Raises UnsupportedFormat."""
    if name is not None:
        return find_format(name)
    return find_format("wav") if target == STDOUT else format_for(Path(target))


def check_writable(target: str) -> None:
    """Refuse, before anything is loaded, a target that could not be written."""
    if target == STDOUT:
        if sys.stdout.isatty():
            raise typer.BadParameter("stdout is a terminal; send it on with | or >", param_hint="--output")
        return
    check_file(Path(target))


def check_file(path: Path) -> None:
    """Raise SpeechError when there can be no file at this path."""
    if path.is_dir():
        raise SpeechError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise SpeechError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise SpeechError(f"cannot write {path}: permission denied")


def check_outputs(target: str | None, form: str | None, play: bool, stats: Path | None) -> None:
    """Refuse, before anything is loaded, what could not be written or played."""
    if target is not None:
        output_format(target, form)
        check_writable(target)
    if stats is not None:
        check_file(stats)
    if play:
        check_device()
