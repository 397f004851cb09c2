"""mask_lists.cu in the emulator against the same lists made by torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firstlight.kernels.block_attention.bits import FULL, NONE, PARTIAL
from firstlight.kernels.block_attention.lists import Lists, fill, order_of
from firstlight.kernels.sm90.arguments import mask_lists_bytes
from firstlight.kernels.sm90.mask_lists import THREADS, fields_of, room_sizes, shape_of
from firstlight.kernels.sm90.variants import MASK_LISTS
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.run import emulate

pytestmark = needs_compiler
UNWRITTEN = 2**31 - 1


def emulated(kinds: Tensor, which: Tensor | None, most: int, *, turned: bool, seed: int) -> Lists:
    """The lists as the kernel makes them; what it does not write stays the largest integer."""
    heads, of_head = shape_of(kinds, turned=turned)
    sizes = room_sizes(heads * of_head, most)
    room = torch.full((sum(sizes),), UNWRITTEN, dtype=torch.int32)
    given = mask_lists_bytes(fields_of(kinds, which, room.data_ptr(), most, turned=turned))
    defines = dict(MASK_LISTS.defines)
    cluster = int(defines["CLUSTER"])
    emulate(
        "mask_lists", defines, "mask_lists", given, grid=(cluster, 1, 1), threads=THREADS, shared_bytes=0, seed=seed
    )
    starts, free, columns, more, masks, further, order, last, _ = room.split_with_sizes(sizes)
    for left in (free, more, further, last):
        assert bool((left == UNWRITTEN).all())  # between the lists
    return Lists(starts, columns, masks, order.view(heads, of_head))


def wanted(kinds: Tensor, which: Tensor | None, most: int, *, turned: bool) -> Lists:
    if turned:
        kinds, which = kinds.mT.contiguous(), None if which is None else which.mT.contiguous()
    starts, columns, masks = fill(kinds, which, most)
    return Lists(starts, columns, masks, order_of(starts, (kinds.shape[0] * kinds.shape[1], kinds.shape[2])))


def drawn(shape: tuple[int, int, int, int], density: float, seed: int) -> tuple[Tensor, Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    kept = torch.rand(shape, generator=numbers) < density
    partial = torch.rand(shape, generator=numbers) < 0.4
    kinds = torch.where(kept, torch.where(partial, PARTIAL, FULL), NONE).to(torch.uint8)
    return kinds, torch.randint(0, 1000, shape, generator=numbers, dtype=torch.int32)


SHAPES = [
    ((1, 1, 1, 1), 1.0), ((1, 1, 5, 3), 0.5), ((1, 1, 32, 32), 0.25), ((2, 3, 7, 33), 0.3), ((1, 4, 65, 64), 0.1),
    ((1, 1, 3, 200), 0.9), ((1, 1, 300, 2), 0.5), ((2, 2, 6, 6), 0.0), ((1, 40, 33, 8), 0.4),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "density"), SHAPES)
@pytest.mark.parametrize("turned", [False, True])
def test_the_lists_are_those_of_torch(shape: tuple[int, int, int, int], density: float, turned: bool) -> None:  # noqa: FBT001
    kinds, which = drawn(shape, density, seed=shape[2])
    used = int((kinds != NONE).sum())
    for given, most in ((which, used), (None, kinds.numel())):
        found = emulated(kinds, given, most, turned=turned, seed=shape[3])
        right = wanted(kinds, given, most, turned=turned)
        assert torch.equal(found.starts, right.starts)
        assert torch.equal(found.columns[:used], right.columns[:used])
        assert torch.equal(found.masks[:used], right.masks[:used])
        assert torch.equal(found.order, right.order)
        assert bool((found.columns[used:] == UNWRITTEN).all())


@pytest.mark.parametrize("turned", [False, True])
def test_a_bound_that_is_too_low_is_kept_to(turned: bool) -> None:  # noqa: FBT001
    kinds, which = drawn((1, 2, 9, 11), 0.6, seed=4)
    for most in (0, 1, 17):
        found = emulated(kinds, which, most, turned=turned, seed=3)
        right = wanted(kinds, which, most, turned=turned)
        assert torch.equal(found.starts, right.starts)
        assert torch.equal(found.columns[:most], right.columns[:most])
        assert torch.equal(found.masks[:most], right.masks[:most])


def test_the_same_lists_whichever_thread_comes_first() -> None:
    kinds, which = drawn((1, 3, 40, 21), 0.3, seed=9)
    used = int((kinds != NONE).sum())
    first, second = (emulated(kinds, which, used, turned=False, seed=seed) for seed in (2, 5))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
