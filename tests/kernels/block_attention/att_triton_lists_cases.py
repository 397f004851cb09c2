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
from firstlight.kernels.block_attention.triton.lists import fill, fill_turned
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
    rest = max(most, 1) - len(columns)
    return starts, columns + [0] * rest, masks + [-1] * rest


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
        if tuple(part.tolist() for part in lists) != right or any(part.dtype != torch.int32 for part in lists)
    ]
    return ", ".join(wrong)


def main() -> None:
    let_loop_bounds_be_arrays()
    for name, kinds, which, most in cases():
        print(json.dumps({"name": name, "wrong": what_is_wrong(kinds, which, most)}), flush=True)


if __name__ == "__main__":
    main()
