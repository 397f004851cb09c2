"""The k best blocks of each row by Triton's interpreter beside those of a stable sort, in a process of its own.

    TRITON_INTERPRET=1 python att_triton_select_cases.py

Prints one JSON object per case: its name and what is wrong with it, empty when nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from torch import Tensor

from firstlight.kernels.block_attention.measured import best_by_sort
from firstlight.kernels.block_attention.triton.select import FORMATS, LONGEST_ROW, best_blocks, fits
from tests.kernels.triton_backend.interpreted_cases import let_loop_bounds_be_arrays

INF, NAN = float("inf"), float("nan")
SPECIAL = (NAN, -NAN, INF, -INF, 0.0, -0.0, 1e-45, -1e-45, 6e-8, -6e-8, 1.0, -1.0, 65504.0, -65504.0, 3e38, -3e38)
LENGTHS = (1, 2, 63, 64, 65, 1000, 1713)
COUNTS = (0, 1, 5, 64, 2**40)


def scores() -> Iterator[tuple[str, Tensor]]:
    """float32 [B, H, Qb, Kb]; each case is asked for in every type."""
    generator = torch.Generator().manual_seed(0)
    special = torch.tensor(SPECIAL)
    for length in LENGTHS:
        shape = (1, 2, 2, length) if length < 1000 else (1, 1, 2, length)
        normal = torch.randn(shape, generator=generator)
        yield f"normal, {length}", normal
        yield f"many equal, {length}", (normal * 3).round()
        drawn = torch.randint(0, len(special), shape, generator=generator)
        yield f"special, {length}", special[drawn]
        yield f"half special, {length}", torch.where(normal > 0, normal, special[drawn])
    row = torch.randn(1, 1, 1, 65, generator=generator)
    yield "few forced by +inf", torch.where(torch.arange(65) % 20 == 3, INF, row)
    yield "mostly -inf", torch.where(torch.arange(65) % 20 == 3, row, -INF)
    yield "large and small", row.sign() * 10.0 ** (row.abs() * 30 - 40)
    yield "all negative", -row.abs() - 10
    for name, value in (("zeros", 0.0), ("ones", 1.0), ("nan", NAN), ("-inf", -INF), ("inf", INF)):
        yield f"all {name}", torch.full((1, 1, 2, 70), value)
    yield "zeros of both signs", torch.tensor([-0.0, 0.0, 1e-30, -1e-30, -0.0, 0.0, -1.0]).view(1, 1, 1, 7)
    yield "rows of several programs", torch.randn(1, 3, 13, 5, generator=generator).mul(2).round()


def layouts() -> Iterator[tuple[str, Tensor]]:
    given = torch.randn(2, 2, 4, 20).mul(2).round()
    yield "turned", given.mT
    yield "a part", given[:, :, 1:4, 3:18]
    yield "repeated", given[:1, :1].expand(2, 3, 4, 20)
    yield "heads before batch", given.transpose(0, 1)


def what_is_wrong(given: Tensor, k: int) -> str:
    found, right = best_blocks(given, k), best_by_sort(given, k)
    if found.dtype != torch.uint8 or found.shape != right.shape or not found.is_contiguous():
        return f"{found.dtype}, {list(found.shape)}, stride {found.stride()}"
    different = int((found != right).sum())
    return f"k {k}: {different} blocks differ" if different else ""


def main() -> None:
    let_loop_bounds_be_arrays()
    torch.use_deterministic_algorithms(mode=True)  # torch.empty then writes 255 everywhere
    for name, given in (*scores(), *layouts()):
        for dtype in FORMATS:
            long = given.shape[3] > 99
            counts = (64,) if long else COUNTS if name.startswith("half") else (5, 64)
            wrong = [what_is_wrong(given.to(dtype), k) for k in counts]
            print(json.dumps({"name": f"{name}, {dtype}", "wrong": "; ".join(filter(None, wrong))}), flush=True)
    for length in (4095, LONGEST_ROW):
        given = torch.randn(1, 1, 1, length).mul(5).round()
        print(json.dumps({"name": f"{length}", "wrong": what_is_wrong(given, 300)}), flush=True)
    refused = fits(torch.empty(1, 1, 1, LONGEST_ROW + 1)) or fits(torch.empty(1, 1, 1, 5, dtype=torch.float64))
    print(json.dumps({"name": "longer rows and float64", "wrong": "not refused" if refused else ""}), flush=True)


if __name__ == "__main__":
    main()
