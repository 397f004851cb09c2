"""Each backend of scaled_dot_product_attention, alone, held against float64."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from firstlight.verify.children.products import farthest_off
from firstlight.verify.children.witness import Witness

# The least capability each backend is written for (torch's sdp_utils.cpp of 2.11); below it: not on this GPU.
BACKENDS = (
    ("flash", SDPBackend.FLASH_ATTENTION, (8, 0)),
    ("mem-efficient", SDPBackend.EFFICIENT_ATTENTION, (5, 0)),
    ("cudnn", SDPBackend.CUDNN_ATTENTION, (8, 0)),
    ("math", SDPBackend.MATH, (0, 0)),
)
# torch prefers cuDNN's attention on these alone; elsewhere it may refuse it, which is no fault.
CUDNN_MUST = ((9, 0), (10, 0), (10, 3))
ALLOWED = {torch.float16: 4e-3, torch.bfloat16: 3e-2}


def prove(question: dict[str, Any], witness: Witness) -> str:
    capability = torch.cuda.get_device_capability(0)
    works: list[str] = []
    faults: list[str] = []
    absent: list[str] = []
    for name, backend, least in BACKENDS:
        if capability < least:
            absent.append(name)
            witness.saw(name, f"not on this GPU: capability {capability[0]}.{capability[1]} < {least[0]}.{least[1]}")
            continue
        try:
            off = attention_error(backend)
        except RuntimeError as error:
            text = " ".join(str(error).split())[:300]
            witness.saw(name, f"does not work: {text}")
            (faults if must_work(name, capability) else absent).append(f"{name}: {text}")
            continue
        witness.saw(f"{name}, max error", off)
        if off <= ALLOWED[torch.float16]:
            works.append(name)
        else:
            faults.append(f"{name} is off by {off:.2g}")
    witness.more.update(works=works, absent=absent)
    if faults:
        witness.fault(
            f"{'; '.join(faults)} (works: {', '.join(works) or 'none'})",
            "torch falls back to a backend that works, slower: see the feature table for what this build has.",
        )
    missing = f"; not on this GPU: {', '.join(absent)}" if absent else ""
    return f"{', '.join(works)} match float64{missing}"


def must_work(name: str, capability: tuple[int, ...]) -> bool:
    """Whether a backend that is refused on such a GPU is a fault."""
    return name != "cudnn" or capability in CUDNN_MUST


def attention_error(backend: SDPBackend, *, dtype: torch.dtype = torch.float16) -> float:
    """Of causal attention, forwards and the gradient of q, relative to the largest element."""
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(2, 4, 256, 64, generator=generator).to(dtype) for _ in range(3))
    there = [each.cuda().requires_grad_() for each in (q, k, v)]
    attend = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel([backend]):
        out = attend(there[0], there[1], there[2], is_causal=True)
        out.backward(torch.ones_like(out))  # type: ignore[no-untyped-call]
    exact = [each.double().requires_grad_() for each in (q, k, v)]
    scores = exact[0] @ exact[1].transpose(-1, -2) / 8.0
    mask = torch.ones(256, 256, dtype=torch.bool).tril()
    want = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ exact[2]
    want.backward(torch.ones_like(want))  # type: ignore[no-untyped-call]
    return max(farthest_off(out, want), farthest_off(there[2].grad, exact[2].grad))
