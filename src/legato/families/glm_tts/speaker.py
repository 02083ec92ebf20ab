"""Reference audio → speaker vector: CAM++ (arXiv:2303.00332), an ONNX file, run by onnxruntime on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from legato.errors import CheckpointError

from .files import is_pointer
from .kaldi_fbank import BINS, centred_fbank

WIDTH = 192

SOURCE = "https://github.com/zai-org/GLM-TTS/raw/main/frontend/campplus.onnx"


def _fetch(path: Path) -> str:
    """What puts the file in its place."""
    return f"curl -L --create-dirs -o {path} {SOURCE}"


def need_speaker_net(path: Path) -> Path:
    """The path itself. Raises CheckpointError when it is not there: which file, where it goes, what to run."""
    if not path.is_file():
        raise CheckpointError(
            f"{path.name} is missing: expected at {path}. It is the speaker encoder CAM++, which cloning needs and "
            f"which GLM-TTS ships with its code, not with its weights. To fetch it: {_fetch(path)}"
        )
    if is_pointer(path):
        raise CheckpointError(f"{path} is a Git LFS pointer, not the file. To fetch it: {_fetch(path)}")
    return path


class SpeakerNet:
    """CAM++. Holds the session, nothing of any voice."""

    def __init__(self, path: Path) -> None:
        """Raises CheckpointError when the file is missing, damaged or of another net, or onnxruntime is not there."""
        self._session: Any = _session(need_speaker_net(path))
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 3 or inputs[0].shape[2] not in (BINS, None):
            raise CheckpointError(
                f"{path} does not take one [1, frames, {BINS}] input; it is not CAM++. To fetch it: {_fetch(path)}"
            )
        self._path, self._input = path, str(inputs[0].name)

    def vector(self, wave: Tensor) -> Tensor:
        """Speaker vector float32 [192], not normalised, of a wave [n] at 16 kHz."""
        features = centred_fbank(wave.cpu())[None].numpy().astype(np.float32)
        out = np.asarray(self._session.run(None, {self._input: features})[0], np.float32).reshape(-1)
        if out.size != WIDTH:
            raise CheckpointError(
                f"{self._path} gives {out.size} values, not the {WIDTH} of CAM++. To fetch it: {_fetch(self._path)}"
            )
        return torch.from_numpy(out)


def _session(path: Path) -> Any:
    try:
        import onnxruntime as ort
        from onnxruntime.capi import onnxruntime_pybind11_state as states
    except ImportError as error:
        raise CheckpointError(
            "cloning a voice needs onnxruntime, for the speaker encoder: pip install 'legato-speech[glm-tts]'"
        ) from error
    damaged = tuple(kind for kind in vars(states).values() if isinstance(kind, type) and issubclass(kind, Exception))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(path), sess_options=options, providers=["CPUExecutionProvider"])
    except damaged as error:  # onnxruntime's own errors, which share no base of theirs
        raise CheckpointError(f"{path} is damaged or not an ONNX file. To fetch it again: {_fetch(path)}") from error
