"""Windows of a block DiT in one call: as each by itself, with its own step, past and branches."""

from __future__ import annotations

import torch
from torch import Tensor

from legato.nn.dit import Neighbours, Stored
from legato.nn.dit_windows import WindowInput, WindowOutput, evaluate, in_blocks, neighbours, together

from .test_dit import BLOCK, HEADS, NET, TABLE, WIDTH, flat, randn

BRANCHES = 2
CPU = torch.device("cpu")


def window(frames: int, step: int, seed: int, *, past: bool = False) -> WindowInput:
    blocks = -(-frames // BLOCK)
    shape = (BRANCHES, BLOCK, HEADS, WIDTH // HEADS)
    stored: list[Stored] = [(randn(*shape, seed=seed + at), randn(*shape, seed=seed - at)) for at in (1, 2)]
    return WindowInput(
        randn(BRANCHES, blocks, BLOCK, WIDTH, seed=seed),
        step,
        neighbours(frames, BLOCK, BRANCHES, past, CPU),
        stored if past else None,
    )


def run(windows: list[WindowInput]) -> list[WindowOutput]:
    return evaluate(NET, TABLE, windows)


def test_together_as_alone() -> None:
    windows = [window(10, 0, 10), window(4, 2, 20, past=True), window(17, 1, 30), window(1, 0, 40, past=True)]
    for one, output in zip(windows, run(windows), strict=True):
        (alone,) = run([one])
        assert output.velocity.shape == (*one.embedded.shape[:3], NET.config.outputs)
        assert torch.equal(output.velocity, alone.velocity)
        assert torch.equal(flat(list(output.own)), flat(list(alone.own)))


def test_each_window_has_its_own_step_and_past() -> None:
    base = window(8, 0, 10, past=True)
    for other in (window(8, 1, 10, past=True), window(8, 0, 10)):
        assert not torch.equal(run([base])[0].velocity, run([other])[0].velocity)


def test_branches_do_not_meet() -> None:
    one = window(8, 0, 10, past=True)
    changed = one.embedded.clone()
    changed[1] += 1
    other = WindowInput(changed, one.step, one.near, one.stored)
    (a,), (b,) = run([one]), run([other])
    assert torch.equal(a.velocity[0], b.velocity[0]) and not torch.equal(a.velocity[1], b.velocity[1])


def test_a_block_of_the_output_is_a_copy_of_both_branches() -> None:
    one = window(12, 0, 10)
    (output,) = run([one])
    for at in range(3):
        for (k, v), (all_k, all_v) in zip(output.block(at), output.own, strict=True):
            assert torch.equal(k, all_k[[at, 3 + at]]) and torch.equal(v, all_v[[at, 3 + at]])
            assert k.untyped_storage().data_ptr() != all_k.untyped_storage().data_ptr()


def test_neighbours_of_one_window_and_of_two() -> None:
    near = neighbours(BLOCK + 1, BLOCK, BRANCHES, True, CPU)
    assert near.valid.tolist() == [[True] * BLOCK, [True] + [False] * (BLOCK - 1)] * 2
    assert facts(near) == ([-1, 0, -1, 2], [1, -1, 3, -1], [0, -1, 1, -1])
    both = together((near, neighbours(BLOCK, BLOCK, BRANCHES, True, CPU)))
    assert facts(both) == ([-1, 0, -1, 2, -1, -1], [1, -1, 3, -1, -1, -1], [0, -1, 1, -1, 2, 3])


def facts(near: Neighbours) -> tuple[list[int], list[int], list[int]]:
    return near.before.tolist(), near.after.tolist(), near.past.tolist()


def test_in_blocks_fills_with_zeros() -> None:
    frames: Tensor = randn(2, BLOCK + 1, 3)
    blocks = in_blocks(frames, BLOCK)
    assert blocks.shape == (2, 2, BLOCK, 3)
    assert torch.equal(blocks.flatten(1, 2)[:, : BLOCK + 1], frames) and not blocks[:, 1, 1:].any()
