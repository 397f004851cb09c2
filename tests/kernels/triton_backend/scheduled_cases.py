"""Schedules by Triton's interpreter beside torch's, in a process of its own.

    TRITON_INTERPRET=1 python scheduled_cases.py

Prints one JSON object per case: its name and what is wrong with it, empty when nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from torch import Tensor

from firstlight.kernels.schedule import longest_first, split_rows
from firstlight.kernels.triton_backend import segments
from tests.kernels.triton_backend.interpreted_cases import let_loop_bounds_be_arrays

NAMES = ("items", "first_slot", "slot_counts", "split_rows", "slots", "limit")


def cases() -> Iterator[tuple[str, Tensor, int]]:
    torch.manual_seed(0)
    for rows, most, limits in ((1, 5, (1, 3, 8)), (7, 0, (1, 4)), (12, 40, (1, 3, 8, 50)), (270, 9, (4,))):
        lengths = torch.randint(0, most + 1, (rows,))
        lengths[rows // 2 :: 5] = 0
        for limit in limits:
            for dtype in (torch.int32, torch.int64) if rows < 200 else (torch.int32,):
                starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(dtype)
                yield f"{rows} rows to {most}, limit {limit}, {dtype}", starts, limit
    yield "one row of 600 portions", torch.tensor([0, 0, 1800, 1803]), 3


def what_is_wrong(starts: Tensor, limit: int) -> str:
    entries = int(starts[-1])
    wanted = split_rows(starts, entries, limit=limit)
    found = segments.split_rows_here(starts, entries, limit=limit)
    wrong = [
        name
        for name in NAMES
        if not torch.equal(torch.as_tensor(getattr(found, name)), torch.as_tensor(getattr(wanted, name)))
    ]
    if not torch.equal(segments.order_here(starts), longest_first(starts)):
        wrong.append("order")
    return ", ".join(wrong)


def main() -> None:
    let_loop_bounds_be_arrays()
    for name, starts, limit in cases():
        print(json.dumps({"name": name, "wrong": what_is_wrong(starts, limit)}), flush=True)


if __name__ == "__main__":
    main()
