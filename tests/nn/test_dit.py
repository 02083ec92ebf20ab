"""BlockDiT against plain attention over all frames with a mask, and windows against the whole."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from legato.nn.dit import BlockDiT, DiTConfig, DiTLayer, Neighbours, Stored
from legato.nn.layers import freeze

BLOCK, WIDTH, HEADS, INPUTS, OUTPUTS = 4, 32, 2, 11, 6
BACK, AHEAD = (1, 3), (2,)
CONFIG = DiTConfig(
    inputs=INPUTS, width=WIDTH, layers=5, heads=HEADS, inner=80, outputs=OUTPUTS, block_frames=BLOCK,
    look_back_layers=BACK, look_ahead_layers=AHEAD, rope_theta=50.0,
)  # fmt: skip
QWEN = replace(CONFIG, rotary_heads=1, time_features=8, time_whole_range=True, norm_eps=1e-2)
"""As Qwen2.5-Omni has it: one head knows of positions, and the times have features of a width of their own."""
TIMES = torch.tensor([0.0, 0.3, 0.7])


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def make_net(config: DiTConfig) -> tuple[BlockDiT, Tensor]:
    """A random net with row tiles, and its modulations at TIMES."""
    net = BlockDiT(config)
    for index, parameter in enumerate(net.parameters()):
        scale = 0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
        parameter.data = randn(*parameter.shape, seed=index) * scale
    freeze(net)
    table = net.modulations(TIMES)
    freeze(net, BLOCK)
    return net, table


PLAIN, LIKE_QWEN = make_net(CONFIG), make_net(QWEN)
NET, TABLE = PLAIN


# --- the reference: every frame a node, every look allowed by a mask ---


@dataclass(frozen=True)
class Nodes:
    """Frames [T] at absolute positions, and who may look at whom in each kind of layer: own, back and ahead [T, T]."""

    positions: Tensor
    own: Tensor
    back: Tensor
    ahead: Tensor

    def mask(self, layer: int) -> Tensor:
        allowed = self.own
        allowed = allowed | self.back if layer in BACK else allowed
        return allowed | self.ahead if layer in AHEAD else allowed


def whole(frames: int) -> Nodes:
    block = torch.arange(frames) // BLOCK
    distance = block[None] - block[:, None]
    return Nodes(torch.arange(frames), distance == 0, distance == -1, distance == 1)


def turned(x: Tensor, positions: Tensor) -> Tensor:
    """x [T, heads, d] with the pairs (i, i + d/2) turned by position × theta^(−2i/d)."""
    half = x.shape[-1] // 2
    angles = positions[:, None, None] * CONFIG.rope_theta ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def time_embedding(time: float, net: BlockDiT) -> Tensor:
    half = net.time_in.in_features // 2
    steps = half - 1 if net.config.time_whole_range else half
    angles = time * 1000 * 10000 ** (-torch.arange(half) / steps)
    features = torch.cat([angles.sin(), angles.cos()])
    hidden = F.silu(F.linear(features, net.time_in.weight, net.time_in.bias))
    return F.silu(F.linear(hidden, net.time_out.weight, net.time_out.bias))


def dense(features: Tensor, time: float, nodes: Nodes, net: BlockDiT = NET) -> Tensor:
    """Velocity [T, outputs] of features [T, inputs]: the noisy mel, then what is given."""
    noisy, given = features.split([OUTPUTS, INPUTS - OUTPUTS], -1)
    x = F.linear(noisy, net.state_inputs.weight) + F.linear(given, net.condition.weight, net.condition.bias)
    time_vector = time_embedding(time, net)
    for index, layer in enumerate(cast("list[DiTLayer]", net.layers)):
        modulation = F.linear(time_vector, layer.modulation.weight, layer.modulation.bias).chunk(6)
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = modulation
        y = F.layer_norm(x, (WIDTH,), eps=net.config.norm_eps) * (1 + scale) + shift
        q, k, v = F.linear(y, layer.qkv.weight, layer.qkv.bias).view(len(x), 3, HEADS, -1).unbind(1)
        heads = net.config.rotary_heads or HEADS
        q, k = (torch.cat([turned(t[:, :heads], nodes.positions), t[:, heads:]], 1) for t in (q, k))
        scores = torch.einsum("qhd,khd->hqk", q, k)
        scores = (scores / math.sqrt(WIDTH // HEADS)).masked_fill(~nodes.mask(index), float("-inf"))
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(x.shape)
        x = x + gate * F.linear(mixed, layer.out.weight, layer.out.bias)
        y = F.layer_norm(x, (WIDTH,), eps=net.config.norm_eps) * (1 + scale_mlp) + shift_mlp
        y = F.gelu(F.linear(y, layer.inner.weight, layer.inner.bias), approximate="tanh")
        x = x + gate_mlp * F.linear(y, layer.outer.weight, layer.outer.bias)
    shift, scale = F.linear(time_vector, net.final_modulation.weight, net.final_modulation.bias).chunk(2)
    return F.linear(
        F.layer_norm(x, (WIDTH,), eps=net.config.norm_eps) * (1 + scale) + shift, net.outputs.weight, net.outputs.bias
    )


# --- windows through the net ---


@dataclass
class Piece:
    """Frames that go through the net together: features [F, inputs], at one ODE step, perhaps with a block before."""

    features: Tensor
    step: int
    memory: list[Stored] = field(default_factory=list)

    @property
    def blocks(self) -> int:
        return -(-len(self.features) // BLOCK)


def run(pieces: list[Piece], made: tuple[BlockDiT, Tensor] = PLAIN) -> tuple[list[Tensor], list[list[Stored]]]:
    """Velocities [F, outputs] and own keys and values of each piece, all in one call."""
    net, table = made
    features, valid, before, after, past, steps = [], [], [], [], [], []
    first = memories = 0
    for piece in pieces:
        n, frames = piece.blocks, len(piece.features)
        features.append(F.pad(piece.features, (0, 0, 0, n * BLOCK - frames)).view(n, BLOCK, -1))
        valid.append((torch.arange(n * BLOCK) < frames).view(n, BLOCK))
        before += [-1, *range(first, first + n - 1)]
        after += [*range(first + 1, first + n), -1]
        past += [memories if piece.memory else -1, *[-1] * (n - 1)]
        steps += [piece.step] * n
        first, memories = first + n, memories + bool(piece.memory)
    near = Neighbours(torch.cat(valid), torch.tensor(before), torch.tensor(after), torch.tensor(past))
    kept = [piece.memory for piece in pieces if piece.memory]
    stored = [tuple(torch.cat([m[i][kv] for m in kept]) for kv in (0, 1)) if kept else None for i in range(len(BACK))]
    out, own = net(embedded(torch.cat(features), net), table, torch.tensor(steps), near, stored)
    counts = [piece.blocks for piece in pieces]
    velocities = [o.flatten(0, 1)[: len(p.features)] for o, p in zip(out.split(counts), pieces, strict=True)]
    parts = [[(k[a : a + n], v[a : a + n]) for k, v in own] for n, a in zip(counts, starts(counts), strict=True)]
    return velocities, parts


def embedded(features: Tensor, net: BlockDiT = NET) -> Tensor:
    """Blocks of features [N, b, inputs] → [N, b, D]."""
    noisy, given = features.split([OUTPUTS, INPUTS - OUTPUTS], -1)
    blocks: Tensor = net.state_inputs(noisy) + net.condition(given)
    return blocks


def starts(counts: list[int]) -> list[int]:
    return [sum(counts[:i]) for i in range(len(counts))]


def last_kept(own: list[Stored], blocks: int) -> list[Stored]:
    """What is kept for the next window: the last kept block at each look-back layer."""
    return [(k[blocks - 1 : blocks], v[blocks - 1 : blocks]) for k, v in own]


@pytest.mark.parametrize("frames", [1, 3, 4, 5, 8, 21, 40])
@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("made", [PLAIN, LIKE_QWEN], ids=["plain", "like_qwen"])
def test_whole_sequence_is_masked_attention(frames: int, step: int, made: tuple[BlockDiT, Tensor]) -> None:
    features = randn(frames, INPUTS, seed=frames)
    (velocity,), _ = run([Piece(features, step)], made)
    expected = dense(features, float(TIMES[step]), whole(frames), made[0])
    torch.testing.assert_close(velocity, expected, rtol=1e-4, atol=1e-5)


def test_every_look_matters() -> None:
    """The masks of the reference are not slack: without a look back or ahead the result differs."""
    features, nodes = randn(20, INPUTS), whole(20)
    full = dense(features, 0.3, nodes)
    nothing = torch.zeros_like(nodes.own)
    for less in (replace(nodes, back=nothing), replace(nodes, ahead=nothing)):
        assert (dense(features, 0.3, less) - full).abs().max() > 1e-2


RAMPS = [(1, 1, 1, 1, 1, 1), (2, 1, 3), (6,), (4, 2)]


@pytest.mark.parametrize("ramp", RAMPS)
@pytest.mark.parametrize("frames", [21, 24])
@pytest.mark.parametrize("made", [PLAIN, LIKE_QWEN], ids=["plain", "like_qwen"])
def test_windows_with_memory_are_the_whole(ramp: tuple[int, ...], frames: int, made: tuple[BlockDiT, Tensor]) -> None:
    """One evaluation of the net: kept blocks, one block ahead and stored keys of the block before are all it takes."""
    features = randn(frames, INPUTS, seed=4)
    expected = dense(features, 0.3, whole(frames), made[0])
    memory: list[Stored] = []
    at = 0
    for blocks in ramp:
        stop = min(frames, at + blocks * BLOCK)
        (velocity,), (own,) = run([Piece(features[at : min(frames, stop + BLOCK)], 1, memory)], made)
        torch.testing.assert_close(velocity[: stop - at], expected[at:stop], rtol=1e-4, atol=1e-5)
        memory, at = last_kept(own, blocks), stop
    assert at == frames


def windowed(ramp: tuple[int, ...], frames: int) -> tuple[Nodes, list[slice], list[int]]:
    """Nodes of all windows side by side: each has its own copy of its look-ahead, and looks back at what was kept.

    Also where each window's nodes are, and how many of them are kept.
    """
    positions: list[int] = []
    windows: list[int] = []
    kept: list[bool] = []
    slices, counts, at = [], [], 0
    for number, blocks in enumerate(ramp):
        stop = min(frames, at + blocks * BLOCK)
        load = min(frames, stop + BLOCK)
        slices.append(slice(len(positions), len(positions) + load - at))
        counts.append(stop - at)
        positions += range(at, load)
        windows += [number] * (load - at)
        kept += [t < stop for t in range(at, load)]
        at = stop
    where, window = torch.tensor(positions), torch.tensor(windows)
    block = where // BLOCK
    distance, same = block[None] - block[:, None], window[None] == window[:, None]
    joined = (window[None] - window[:, None] == -1) & torch.tensor(kept)[None]
    nodes = Nodes(where, (distance == 0) & same, (distance == -1) & (same | joined), (distance == 1) & same)
    return nodes, slices, counts


@pytest.mark.parametrize("ramp", RAMPS)
@pytest.mark.parametrize("frames", [21, 24])
def test_the_whole_integration_of_windows(ramp: tuple[int, ...], frames: int) -> None:
    """Euler from noise, window after window with stored keys of every step, is one masked integration of them all."""
    nodes, slices, counts = windowed(ramp, frames)
    given = randn(frames, INPUTS - OUTPUTS, seed=5)[nodes.positions]
    noise = randn(frames, OUTPUTS, seed=6)[nodes.positions]
    grid = [*TIMES.tolist(), 1.0]
    together = noise
    for step, time in enumerate(grid[:-1]):
        together = together + (grid[step + 1] - time) * dense(torch.cat([together, given], -1), time, nodes)
    memories: list[list[Stored]] = [[] for _ in grid[:-1]]
    for here, count, blocks in zip(slices, counts, ramp, strict=True):
        x = noise[here]
        for step, time in enumerate(grid[:-1]):
            (velocity,), (own,) = run([Piece(torch.cat([x, given[here]], -1), step, memories[step])])
            x = x + (grid[step + 1] - time) * velocity
            memories[step] = last_kept(own, blocks)
        torch.testing.assert_close(x[:count], together[here][:count], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("threads", "made"), [(1, PLAIN), (2, PLAIN), (3, PLAIN), (1, LIKE_QWEN)])
def test_company_changes_no_bit(threads: int, made: tuple[BlockDiT, Tensor]) -> None:
    """Windows of any length and step, with a past and without, short at the end or not: alone or together."""
    torch.set_num_threads(threads)
    chance = random.Random(threads)
    (_,), (own,) = run([Piece(randn(12, INPUTS, seed=8), 0)], made)
    memories = [last_kept(own, blocks) for blocks in (1, 2, 3)]
    for size in (2, 3, 9, 80):
        pieces = [
            Piece(randn(chance.randrange(1, 30), INPUTS, seed=i), chance.randrange(3), chance.choice([[], *memories]))
            for i in range(size)
        ]
        velocities, parts = run(pieces, made)
        for piece, velocity, own in zip(pieces, velocities, parts, strict=True):
            (alone,), (own_alone,) = run([piece], made)
            assert torch.equal(velocity, alone)
            assert torch.equal(flat(own), flat(own_alone))


def flat(own: list[Stored]) -> Tensor:
    return torch.cat([tensor.flatten() for stored in own for tensor in stored])


def test_what_fills_a_short_block_is_not_seen() -> None:
    features = randn(2 * BLOCK, INPUTS)
    (short,), _ = run([Piece(features[: BLOCK + 1], 0)])
    near = Neighbours(
        torch.tensor([[True] * BLOCK, [True] + [False] * (BLOCK - 1)]),
        torch.tensor([-1, 0]), torch.tensor([1, -1]), torch.tensor([-1, -1]),
    )  # fmt: skip
    out, _ = NET(embedded(features.view(2, BLOCK, INPUTS)), TABLE, torch.tensor([0, 0]), near, [None, None])
    assert torch.equal(out.flatten(0, 1)[: BLOCK + 1], short)
