"""Lists of masks by Triton's interpreter beside lists put together one by one, in a process of its own.

    TRITON_INTERPRET=1 python att_triton_lists_cases.py

Prints one JSON object per case: its name and what is wrong with it, empty when nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from torch import Tensor

from firstlight.kernels.block_attention import lists as by_torch
from firstlight.kernels.block_attention.triton.lists import MOST_RANKED, fill, fill_turned, sum_and_order
from tests.kernels.triton_backend.interpreted_cases import let_loop_bounds_be_arrays

Lists = tuple[list[int], list[int], list[int]]


def written_out(kinds: Tensor, which: Tensor | None, most: int) -> Lists:
    """(starts, columns, masks), block by block; at most `most` entries."""
    starts, columns, masks = [0], list[int](), list[int]()
    for b, h, row in torch.cartesian_prod(*(torch.arange(n) for n in kinds.shape[:3])).tolist():
        for column, kind in enumerate(kinds[b, h, row].tolist()):
            if kind and len(columns) < most:
                columns.append(column)
                masks.append(int(which[b, h, row, column]) if which is not None and kind == 1 else -1)
        starts.append(len(columns))
    return starts, columns, masks


def read(lists: tuple[Tensor, ...], most: int) -> Lists | None:
    """What kernels read of lists; None where a tensor has not the size or type it should have."""
    starts, columns, masks = lists[:3]
    if {part.dtype for part in lists} != {torch.int32} or {len(columns), len(masks)} != {max(most, 1)}:
        return None
    return starts.tolist(), columns[: starts[-1]].tolist(), masks[: starts[-1]].tolist()


def cases() -> Iterator[tuple[str, Tensor, Tensor | None, int]]:
    torch.manual_seed(0)
    for shape in ((1, 1, 1, 1), (1, 1, 5, 3), (2, 3, 4, 7), (1, 2, 33, 2), (1, 1, 2, 300), (1, 1, 70, 33)):
        kinds = torch.randint(0, 3, shape, dtype=torch.uint8)
        kinds[:, :, shape[2] // 2] = 0
        which = torch.randint(0, 1000, shape, dtype=torch.int32)
        used = int((kinds != 0).sum())
        yield f"{shape}", kinds, which, used
        yield f"{shape}, room to spare", kinds, which, kinds.numel() + 3
        yield f"{shape}, no bits", kinds // 2 * 2, None, used
    yield "nothing", torch.zeros(1, 2, 3, 4, dtype=torch.uint8), None, 0
    yield "everything", torch.full((1, 2, 3, 4), 2, dtype=torch.uint8), None, 24
    yield "no keys", torch.zeros(1, 2, 3, 0, dtype=torch.uint8), None, 0
    yield "no heads", torch.zeros(1, 0, 3, 4, dtype=torch.uint8), None, 0
    yield "more than are ranked", torch.randint(0, 3, (1, 1, MOST_RANKED + 1, 2), dtype=torch.uint8) * 2, None, 9000
    yield "less room than blocks", torch.full((1, 1, 3, 4), 2, dtype=torch.uint8), None, 7
    strided = torch.randint(0, 3, (2, 3, 4, 5), dtype=torch.uint8).permute(1, 0, 3, 2)
    yield "other layout", strided, strided.to(torch.int32) * 7, strided.numel()


def what_is_wrong(kinds: Tensor, which: Tensor | None, most: int) -> str:
    turned = kinds.mT, None if which is None else which.mT
    wanted, wanted_turned = written_out(kinds, which, most), written_out(*turned, most)
    found = fill(kinds, which, most), fill_turned(kinds, which, most)
    torch_found = by_torch.fill(kinds.contiguous(), None if which is None else which.contiguous(), most)
    wrong = [
        name
        for name, lists, right in (
            ("fill", found[0], wanted),
            ("fill_turned", found[1], wanted_turned),
            ("fill of lists.py", torch_found, wanted),
        )
        if read(lists, most) != right
    ]
    heads = kinds.shape[0] * kinds.shape[1]
    for lists, blocks in zip(found, kinds.shape[2:], strict=True):
        if not torch.equal(lists.order, by_torch.order_of(lists.starts, (heads, blocks))):
            wrong.append(f"order of {(heads, blocks)}")
    return ", ".join(wrong)


def orders() -> Iterator[tuple[str, Tensor]]:
    """Lengths of lists, [heads, blocks of a head]."""
    torch.manual_seed(1)
    for shape in ((1, 1), (3, 1), (5, 7), (2, 8), (3, 9), (2, 511), (1, 513)):
        yield f"lengths {shape}, few different", torch.randint(0, 4, shape)
        yield f"lengths {shape}, many different", torch.randint(0, 100_000, shape)
    yield "all empty", torch.zeros(2, 40, dtype=torch.int64)
    yield "all as long", torch.full((2, 40), 5)
    yield "ascending", torch.arange(600).view(1, 600)
    yield "descending", torch.arange(600).flip(0).view(1, 600)
    yield "one long among empty ones", torch.eye(30, dtype=torch.int64)[[0, 13, 29]] * 9
    yield "no blocks", torch.zeros(2, 0, dtype=torch.int64)
    yield "many blocks", torch.randint(0, 300, (1, 1713))
    yield "more than are ranked", torch.randint(0, 50, (1, MOST_RANKED + 1))


def what_is_wrong_with_order(lengths: Tensor) -> str:
    shape = lengths.shape[0], lengths.shape[1]
    starts = torch.zeros(lengths.numel() + 1, dtype=torch.int32)
    starts[1:] = lengths.flatten().cumsum(0)
    totals = torch.randint(0, 1000, (lengths.numel() * 3,), dtype=torch.int32)
    counts = torch.cat([lengths.flatten().to(torch.int32), totals])
    found, right = sum_and_order(counts, shape), by_torch.order_of(starts, shape)
    sums = totals.cumsum(0).to(torch.int32) - totals
    wrong = [] if torch.equal(counts[lengths.numel() :], sums) else ["sums"]
    if lengths.shape[1] > MOST_RANKED:
        wrong += [] if found is None else ["ranked"]
    elif found is None or found.dtype != torch.int32 or not torch.equal(found, right):
        wrong.append(f"order of {shape}")
    return ", ".join(wrong)


def main() -> None:
    let_loop_bounds_be_arrays()
    torch.use_deterministic_algorithms(mode=True)  # torch.empty then writes a large number everywhere
    for name, kinds, which, most in cases():
        print(json.dumps({"name": name, "wrong": what_is_wrong(kinds, which, most)}), flush=True)
    for name, lengths in orders():
        print(json.dumps({"name": name, "wrong": what_is_wrong_with_order(lengths)}), flush=True)


if __name__ == "__main__":
    main()
