"""torch's own kernels (not cuBLAS's) run on every GPU: there is machine code or PTX for it in the wheel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from firstlight.verify.children.witness import Witness

_OPERATIONS: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("exp", lambda x: torch.exp(x)),
    ("sum of rows", lambda x: x.sum(dim=1)),
    ("cumsum", lambda x: torch.cumsum(x, dim=1)),
    ("sort", lambda x: torch.sort(x, dim=1).values),
    ("softmax", lambda x: torch.softmax(x, dim=1)),
    ("index", lambda x: x[:, torch.arange(0, x.shape[1], 3, device=x.device)]),
)


def prove(question: dict[str, Any], witness: Witness) -> str:
    archs = torch.cuda.get_arch_list()
    witness.saw("torch is compiled for", " ".join(archs))
    count, capabilities, faults = torch.cuda.device_count(), [], []
    x = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0))
    for index in range(count):
        capabilities.append(list(torch.cuda.get_device_capability(index)))
        there = x.to(f"cuda:{index}")
        for name, operation in _OPERATIONS:
            try:
                off = float((operation(there).cpu().double() - operation(x.double())).abs().max())
            except RuntimeError as error:
                faults.append(f"{name} on GPU {index}: {' '.join(str(error).split())[:200]}")
                break  # after a CUDA error nothing more can be learned from this process
            witness.saw(f"{name} on GPU {index}, max error", off)
            if not off < 1e-3:
                faults.append(f"{name} on GPU {index} is off by {off:.2g}")
    witness.more.update(arch_list=archs, capabilities=capabilities)
    if faults:
        witness.fault("; ".join(faults), "Install a torch that is compiled for this GPU: firstlight plan")
    return f"{len(_OPERATIONS)} kernels of torch's own match on {count} GPU{'' if count == 1 else 's'}"
