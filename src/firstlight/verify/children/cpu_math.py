"""The processor part of torch computes: a product, an element-wise function and a gradient against float64."""

from __future__ import annotations

import math
from typing import Any

import torch

from firstlight.verify.children.products import distance
from firstlight.verify.children.witness import Witness


def prove(question: dict[str, Any], witness: Witness) -> str:
    torch.manual_seed(0)
    left, right = torch.randn(256, 512), torch.randn(512, 192)
    found = distance(left @ right, left, right, kind="float32")
    witness.saw("float32 product", str(found))
    # The float64 product is torch's own: one of its elements is summed in plain Python, which cannot lie with it.
    row, column = left[0].tolist(), right[:, 0].tolist()
    by_hand = abs(float((left.double() @ right.double())[0, 0]) - math.fsum(row[i] * column[i] for i in range(512)))
    witness.saw("one float64 element against a plain sum", by_hand)
    if not found.fine or by_hand > 1e-10:
        witness.fault(
            f"a product on the processor is wrong: {found}; one element differs by {by_hand:.2g} from a plain sum",
            "Reinstall torch; if it stays, test the memory of this machine.",
        )
    x = torch.linspace(-3, 3, 1001, dtype=torch.float64, requires_grad=True)
    torch.sin(x).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    slope = float((x.grad - torch.cos(x.detach())).abs().max())
    witness.saw("gradient of sin against cos", slope)
    witness.saw("threads", torch.get_num_threads())
    if not slope < 1e-12:
        witness.fault(f"the gradient of sin differs from cos by {slope:.2g}", "Reinstall torch.")
    return f"product and gradient match float64 ({found})"
