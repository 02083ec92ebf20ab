"""Row tiles, norms, activations and rotary embedding against torch's own and the textbook."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from legato.nn.layers import GatedMLP, Linear, RMSNorm, Rotary, freeze, gelu_tanh, rotate, silu

THREADS = (1, 2, 3)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def frozen(inputs: int, outputs: int, tile: int, *, bias: bool = True) -> Linear:
    linear = Linear(inputs, outputs, bias=bias)
    linear.weight.data = randn(outputs, inputs, seed=1)
    if bias:
        linear.bias.data = randn(outputs, seed=2)
    freeze(linear, tile)
    return linear


@pytest.mark.parametrize("tile", [4, 16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 176), (256, 1408), (704, 256), (80, 2)])
def test_a_row_does_not_feel_its_neighbours(inputs: int, outputs: int, bias: bool, tile: int) -> None:
    """The same row anywhere in any number of tiles, among any others, on any number of threads."""
    linear = frozen(inputs, outputs, tile, bias=bias)
    row, *others = everywhere(linear, THREADS)
    assert all(torch.equal(row, other) for other in others)
    torch.testing.assert_close(row, F.linear(ROWS[inputs], linear.weight, linear.bias), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "outputs", "threads"),
    [(1024, 1024, (1, 2, 3, 4, 12, 16)), (2816, 96, (1, 2, 16)), (768, 256, (1, 12, 16))],
)
@pytest.mark.parametrize("tile", [4, 16])
def test_a_row_of_a_wide_layer_does_not_either(inputs: int, outputs: int, tile: int, threads: tuple[int, ...]) -> None:
    """MKL shares the sums of one wide tile out between threads, those of several tiles it does not."""
    row, *others = everywhere(frozen(inputs, outputs, tile), threads)
    assert all(torch.equal(row, other) for other in others)


@pytest.mark.parametrize("tile", [0, 4])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_half_precision_on_a_cpu_is_a_product_for_every_tile(tile: int, tied: bool, bias: bool) -> None:
    """Packed, or an embedding's weight too: torch's own product of each tile, added to a residual or not."""
    linear = Linear(96, 160, bias=bias).to(torch.bfloat16)
    weight, offset = linear.weight.detach().clone(), None if linear.bias is None else linear.bias.detach().clone()
    embedding = nn.Embedding(160, 96)
    if tied:
        embedding.weight = linear.weight
    freeze(nn.ModuleList([embedding, linear]), tile)
    assert not (linear.packed and tied)
    rows = randn(8, 96).to(torch.bfloat16)
    with torch.inference_mode():
        wanted = torch.cat([F.linear(piece, weight, offset) for piece in rows.split(tile or 8)])
        assert torch.equal(linear(rows), wanted)
        assert torch.equal(linear(rows.view(2, 4, 96)), wanted.view(2, 4, 160))
        assert torch.equal(linear.add_to(wanted, rows), wanted + wanted)
    assert linear.weight.dtype == torch.bfloat16
    if tile:
        with pytest.raises(ValueError, match="7 rows are not whole tiles of 4"):
            linear(rows[:7])


ROWS = {inputs: randn(inputs, seed=3) for inputs in (64, 80, 256, 704, 768, 1024, 2816)}


def everywhere(linear: Linear, threads: tuple[int, ...]) -> Iterator[Tensor]:
    """What becomes of one row in any place, among other rows, for all numbers of tiles and threads."""
    row, tile = ROWS[linear.in_features], linear.row_tile
    for count in threads:
        torch.set_num_threads(count)
        for tiles in (1, 2, 3, 40):
            for place in {0, 1, tile - 1, tiles * tile // 2, tiles * tile - 1}:
                rows = randn(tiles * tile, linear.in_features, seed=tiles) * 100
                rows[place] = row
                yield linear(rows)[place]


@pytest.mark.parametrize("tile", [4, 16])
def test_a_row_added_to_a_residual_does_not_either(tile: int) -> None:
    linear = frozen(176, 64, tile, bias=False)
    row, residual = randn(176, seed=3), randn(64, seed=4)
    results = []
    for tiles in (1, 2, 3, 40):
        for place in {0, tile - 1, tiles * tile - 1}:
            rows, base = randn(tiles * tile, 176, seed=5), randn(tiles * tile, 64, seed=6)
            rows[place], base[place] = row, residual
            results.append(linear.add_to(base, rows)[place])
    assert all(torch.equal(result, results[0]) for result in results)
    torch.testing.assert_close(results[0], residual + linear.weight @ row, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("tile", [0, 8])
def test_leading_dimensions_are_kept(tile: int) -> None:
    linear = frozen(12, 5, tile)
    x = randn(2, 3, 4, 12)
    assert linear(x).shape == (2, 3, 4, 5)
    torch.testing.assert_close(linear(x), F.linear(x, linear.weight, linear.bias), rtol=1e-5, atol=1e-5)


def test_rows_come_in_whole_tiles() -> None:
    with pytest.raises(ValueError, match="6 rows are not whole tiles of 4"):
        frozen(8, 8, 4)(randn(6, 8))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Linear(8, 6)
        self.inner = nn.ModuleList([Linear(6, 6, bias=False), nn.LayerNorm(6)])


@pytest.mark.parametrize("tile", [0, 4])
def test_freeze_changes_no_name_and_no_value(tile: int) -> None:
    net = Net()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    freeze(net, tile)
    after = net.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert not net.training and not any(parameter.requires_grad for parameter in net.parameters())
    assert [m.row_tile for m in net.modules() if isinstance(m, Linear)] == [tile, tile]
    changed = {name: tensor + 1 for name, tensor in before.items()}
    net.load_state_dict(changed)
    assert torch.equal(net.first.weight, changed["first.weight"])


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_rms_norm_is_torchs(scale: float) -> None:
    norm = RMSNorm(64, 1e-6)
    norm.weight.data = randn(64, seed=1)
    x = randn(5, 7, 64, seed=2) * scale
    torch.testing.assert_close(norm(x), F.rms_norm(x, (64,), norm.weight, 1e-6), rtol=2e-6, atol=1e-6)


def test_rms_norm_of_nothing_is_nothing() -> None:
    assert torch.equal(RMSNorm(16)(torch.zeros(2, 16)), torch.zeros(2, 16))


def test_gelu_tanh_is_torchs() -> None:
    x = torch.linspace(-12, 12, 9600).view(100, 96)
    torch.testing.assert_close(gelu_tanh(x), F.gelu(x, approximate="tanh"), rtol=1e-5, atol=1e-6)
    assert torch.equal(x, torch.linspace(-12, 12, 9600).view(100, 96))


@pytest.mark.parametrize("rows", [1, 4, 500])
def test_silu_is_torchs(rows: int) -> None:
    gate, _ = (3 * randn(rows, 352)).chunk(2, -1)
    torch.testing.assert_close(silu(gate), gate * torch.sigmoid(gate), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("activation", [silu, gelu_tanh])
def test_an_activation_does_not_feel_threads_or_rows(activation: Callable[[Tensor], Tensor]) -> None:
    """torch shares large tensors out between threads, and the ends of the shares are computed otherwise."""
    x = 3 * randn(500, 352)
    results = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        results.append(activation(x))
        results.append(torch.cat([activation(rows) for rows in x.split(20)]))
    assert all(torch.equal(result, results[0]) for result in results)


def test_rotary_is_the_textbooks() -> None:
    """Pair (i, i + d/2) turns by position × theta^(−2i/d)."""
    dim, theta, positions = 8, 100.0, [0, 1, 5, 700]
    x = randn(len(positions), 3, dim)
    turned = rotate(x, *Rotary(dim, theta).table(torch.tensor(positions)))
    for row, position in enumerate(positions):
        for i in range(dim // 2):
            angle = position * theta ** (-2 * i / dim)
            a, b = x[row, :, i], x[row, :, i + dim // 2]
            first = a * math.cos(angle) - b * math.sin(angle)
            second = b * math.cos(angle) + a * math.sin(angle)
            torch.testing.assert_close(turned[row, :, i], first, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(turned[row, :, i + dim // 2], second, rtol=1e-4, atol=1e-4)


def test_rotated_products_depend_on_distance_only() -> None:
    rotary, q, k = Rotary(16, 10_000.0), randn(1, 1, 16, seed=1), randn(1, 1, 16, seed=2)

    def product(at: int, other: int) -> Tensor:
        return (rotate(q, *rotary.table(torch.tensor([at]))) * rotate(k, *rotary.table(torch.tensor([other])))).sum()

    torch.testing.assert_close(product(3, 10), product(203, 210), rtol=1e-4, atol=1e-4)
    assert abs(product(3, 10) - product(3, 11)) > 1e-2


@pytest.mark.parametrize("tile", [0, 4])
def test_gated_mlp_is_swiglu(tile: int) -> None:
    mlp = GatedMLP(16, 24)
    freeze(mlp, tile)
    x, residual = randn(8, 16), randn(8, 16, seed=1)
    gate, up = F.linear(x, mlp.gate_up.weight).split(24, -1)
    expected = residual + F.linear(gate * torch.sigmoid(gate) * up, mlp.down.weight)
    torch.testing.assert_close(mlp.add_to(residual, x), expected, rtol=1e-5, atol=1e-5)
