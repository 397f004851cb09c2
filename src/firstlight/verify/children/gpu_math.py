"""Every GPU that torch sees computes a product that matches float64."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch

from firstlight.verify.children.products import Distance, distance
from firstlight.verify.children.surroundings import libcuda
from firstlight.verify.children.witness import Witness


def prove(question: dict[str, Any], witness: Witness) -> str:
    count = _count(question, witness)
    witness.saw("libcuda", libcuda())
    torch.backends.cuda.matmul.allow_tf32 = False
    faults, worst, capabilities = [], Distance(0.0, 0.0), []
    for index in range(count):
        try:
            capabilities.append(list(torch.cuda.get_device_capability(index)))
            found = _product_on(index, witness)
            worst = max(worst, found, key=lambda each: each.share)
            if not found.fine:
                faults.append(f"GPU {index} computes a wrong product: {found}")
        except (RuntimeError, AssertionError) as error:  # one broken GPU must not hide what the others do
            text = " ".join(str(error).split())[:300]
            witness.saw(f"gpu {index}", text)
            faults.append(f"GPU {index}: {text}")
    witness.more.update(capabilities=capabilities, arch_list=torch.cuda.get_arch_list())
    if faults:
        witness.fault(
            f"{len(faults)} of {count} GPUs failed: {'; '.join(faults)}",
            "Run: firstlight doctor",
            "See: dmesg | grep Xid",
        )
    return f"{count} of {count} GPU{'' if count == 1 else 's'} computes what float64 computes ({worst})"


def _count(question: dict[str, Any], witness: Witness) -> int:
    """How many GPUs torch sees; a machine whose GPU torch does not see is a fault, said with torch's own words."""
    built_in, hidden = int(question.get("gpus", 0)), str(question.get("visible_devices", ""))
    if torch.version.cuda is None:
        witness.fault(
            f"torch {torch.__version__} is not built for CUDA, while this machine has {built_in} NVIDIA GPU(s)",
            "Install a CUDA build of torch: firstlight plan",
        )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    witness.saw("GPUs built in", built_in)
    witness.saw("GPUs torch sees", seen)
    if seen == 0:
        why = [" ".join(str(each.message).split()) for each in said][:1]
        if hidden:
            why.insert(0, f"CUDA_VISIBLE_DEVICES is {hidden!r}")
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except (RuntimeError, AssertionError) as error:
            why.append(" ".join(str(error).split())[:300])
        told = "; ".join(dict.fromkeys(why)) or "torch gives no reason"
        witness.fault(f"this machine has {built_in} NVIDIA GPU(s), torch sees none: {told}", "Run: firstlight doctor")
    if seen < built_in and not hidden and not question.get("sliced"):
        witness.fault(f"this machine has {built_in} NVIDIA GPUs, torch sees {seen}", "Run: firstlight doctor")
    return seen


def _product_on(index: int, witness: Witness) -> Distance:
    device = f"cuda:{index}"
    generator = torch.Generator().manual_seed(index)
    left, right = torch.randn(384, 512, generator=generator), torch.randn(512, 256, generator=generator)
    started = time.monotonic()
    got = (left.to(device) @ right.to(device)).cpu()
    took = time.monotonic() - started
    found = distance(got, left, right, kind="float32")
    major, minor = torch.cuda.get_device_capability(index)
    name = torch.cuda.get_device_name(index)
    witness.saw(f"gpu {index}", f"{name}, capability {major}.{minor}: {found}; first result after {took:.2f} s")
    return found
