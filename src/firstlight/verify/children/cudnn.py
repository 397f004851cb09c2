"""cuDNN convolves forwards and backwards; asked for by its own name, so that nothing else can stand in for it."""

from __future__ import annotations

from typing import Any

import torch

from firstlight.verify.children.products import farthest_off
from firstlight.verify.children.witness import Witness

# Relative to the largest element: 3x3x32 = 288 products per element, rounded to the format at the end.
_ALLOWED = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def prove(question: dict[str, Any], witness: Witness) -> str:
    if not torch.backends.cudnn.is_available():  # type: ignore[no-untyped-call]
        witness.fault("torch says that cuDNN is not available", "Run: firstlight doctor")
    version = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    witness.saw("cuDNN", str(version))
    kinds = ["float32", "float16"] + (["bfloat16"] if torch.cuda.get_device_capability(0) >= (8, 0) else [])
    torch.backends.cudnn.allow_tf32 = False
    faults = []
    for kind in kinds:
        for what, off in _errors(getattr(torch, kind)):
            witness.saw(f"{kind} {what}, max error", off)
            if not off <= _ALLOWED[kind]:
                faults.append(f"the {kind} {what} is off by {off:.2g} (allowed {_ALLOWED[kind]:g})")
    if faults:
        witness.fault("; ".join(faults), "Compare the check `libraries` for a swapped libcudnn.")
    return f"cuDNN {version}: convolution, and its gradients, match float64 in {', '.join(kinds)}"


def convolved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """cuDNN's own convolution on the GPU, whatever torch would choose."""
    return torch.cudnn_convolution(
        x.cuda(),
        w.cuda(),
        padding=[1, 1],
        stride=[1, 1],
        dilation=[1, 1],
        groups=1,
        benchmark=False,
        deterministic=True,
        allow_tf32=False,
    )


def _errors(dtype: torch.dtype) -> list[tuple[str, float]]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 32, 28, 28, generator=generator).to(dtype)
    w = torch.randn(64, 32, 3, 3, generator=generator).to(dtype)
    direct = convolved(x, w)
    xg, wg = x.cuda().requires_grad_(), w.cuda().requires_grad_()
    out = torch.nn.functional.conv2d(xg, wg, padding=1)
    grad = torch.randn(out.shape, generator=generator).to(dtype)
    out.backward(grad.cuda())  # type: ignore[no-untyped-call]
    xd, wd = x.double().requires_grad_(), w.double().requires_grad_()
    exact = torch.nn.functional.conv2d(xd, wd, padding=1)
    exact.backward(grad.double())  # type: ignore[no-untyped-call]
    return [
        ("convolution", farthest_off(direct, exact)),
        ("gradient of the input", farthest_off(xg.grad, xd.grad)),
        ("gradient of the weight", farthest_off(wg.grad, wd.grad)),
    ]
