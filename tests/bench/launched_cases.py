"""Launches of a user's kernel against a stand-in for the driver that runs them; test_user_cases_cuda.py starts this."""

from __future__ import annotations

import json
from typing import Any

import torch

from firstlight.bench.user_cases import CudaFile, Grid
from firstlight.bench.user_cases.cuda_file import launcher
from firstlight.errors import FirstlightError

IMAGE = b"\x7fELF and the rest"
torch_c: Any = torch._C
torch_c._cuda_getCurrentRawStream = lambda device: 0  # a torch without CUDA has no streams


def launched(entry: str, *first: Any, threads: int = 256) -> str:
    x, y, out = torch.randn(1000), torch.randn(1000), torch.empty(1000)
    grid = Grid((4, 1, 1), (threads, 1, 1), arguments=(*first, x, y, out))
    try:
        launcher(IMAGE, CudaFile("axpy.cu", entry, Grid), grid, device=0)()
    except FirstlightError as error:
        return str(error)
    return "right" if torch.allclose(out, 2.5 * x + y) else "wrong"


print(
    json.dumps(
        {
            "ints": launched("axpy", 1000, 2.5),
            "longs": launched("axpy_by_four", 250, 2.5),
            "a number for a float": launched("axpy", 1000, 2),
            "few": launched("axpy", 2.5),
            "absent": launched("axpi", 1000, 2.5),
            "large": launched("axpy", 1 << 40, 2.5),
            "text": launched("axpy", "many", 2.5),
            "refused": launched("axpy", 1000, 2.5, threads=2048),
        }
    )
)
