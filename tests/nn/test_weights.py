"""Loading weights: exactly what fits, or an error that names what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from legato.errors import CheckpointError
from legato.nn.weights import load_strict, read_tensors

HERE = Path("some.safetensors")


def tensors() -> dict[str, Tensor]:
    return {"weight": torch.arange(6.0).view(2, 3), "bias": torch.tensor([1.0, 2.0])}


def test_everything_fits(tmp_path: Path) -> None:
    save_file(tensors() | {"ids": torch.tensor([1, 2])}, file := tmp_path / "net.safetensors")
    read = read_tensors(file)
    assert read.pop("ids").dtype == torch.int64
    load_strict(net := nn.Linear(3, 2), read, file)
    assert all(torch.equal(value, tensors()[name]) for name, value in net.state_dict().items())


def test_half_precision_is_read_as_float32(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2, dtype=torch.bfloat16)}, file := tmp_path / "half.safetensors")
    assert read_tensors(file)["a"].dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"weight": None}, "missing weight"),
        ({"extra": torch.ones(1)}, "unexpected extra"),
        ({"bias": torch.ones(3)}, r"bias is \[3\], expected \[2\]"),
        ({"bias": torch.tensor([1.0, float("nan")])}, "bias holds values that are not finite"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Tensor | None], problem: str) -> None:
    given = {name: tensor for name, tensor in (tensors() | changes).items() if tensor is not None}
    net = nn.Linear(3, 2)
    before = net.weight.detach().clone()
    with pytest.raises(CheckpointError, match=f"some.safetensors does not fit this model: {problem}"):
        load_strict(net, given, HERE)
    assert torch.equal(net.weight, before)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="none.safetensors is missing"):
        read_tensors(tmp_path / "none.safetensors")


@pytest.mark.parametrize("content", [b"", b"not tensors at all", b"\xff" * 64])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="broken.safetensors is damaged"):
        read_tensors(file)


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    save_file(tensors(), file := tmp_path / "cut.safetensors")
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="cut.safetensors is damaged"):
        read_tensors(file)
