"""torch.compile makes a kernel from nothing (cold caches in a folder of this run) and it computes what eager does."""

from __future__ import annotations

import glob
import os
import time
from typing import Any

import torch

from firstlight.verify.children.witness import Witness


def prove(question: dict[str, Any], witness: Witness) -> str:
    import torch._dynamo

    torch._dynamo.config.suppress_errors = False  # falling back to eager would read as a pass
    device = str(question["device"])
    work = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    x, w = torch.randn(64, 512), torch.randn(512)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * w + 1.0).softmax(dim=-1).sum(dim=0)

    started = time.monotonic()
    try:
        got = torch.compile(function, fullgraph=True)(x.to(device), w.to(device)).cpu()
    except Exception as error:  # noqa: BLE001 dynamo wraps every kind of error
        text = _cause(error)
        witness.fault(f"torch.compile fails on {device}: {text}", *_advice(text))
    took = time.monotonic() - started
    off = float((got.double() - function(x.double(), w.double())).abs().max())
    made = [
        os.path.basename(path) for path in glob.glob(f"{work}/**/*", recursive=True) if path.endswith((".py", ".so"))
    ]
    witness.saw("device", device)
    witness.saw("seconds, cold", round(took, 2))
    witness.saw("max error", off)
    witness.saw("files made", len(made))
    if not made:
        witness.fault("torch.compile answered, but made no code: it did not compile")
    if not off < 1e-4:
        witness.fault(f"the compiled function is off by {off:.2g}")
    return f"inductor made {len(made)} files for {device} in {took:.1f} s, cold; max error {off:.1g}"


def _cause(error: BaseException) -> str:
    """The innermost reason: dynamo's own frame tells 'backend inductor raised'."""
    while True:
        inner = getattr(error, "inner_exception", None) or error.__cause__
        if inner is None or inner is error:
            break
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "error" in line.lower() or "not find" in line.lower()), "")
    first = lines[0] if lines else ""
    return f"{type(error).__name__}: {first}"[:300] + (f" ({told})"[:200] if told and told != first else "")


def _advice(text: str) -> list[str]:
    lowered = text.lower()
    if "python.h" in lowered:  # Triton compiles a small C module against it
        return ["Install Python's headers (Debian, Ubuntu: apt-get install python3-dev)."]
    if "triton" in lowered and ("no module" in lowered or "not found" in lowered or "cannot find" in lowered):
        return ["Install the triton that this torch pins: firstlight doctor names it."]
    if any(word in lowered for word in ("compiler", "gcc", "g++", "cc1", "calledprocesserror")):
        return ["Install a C and C++ compiler (Debian, Ubuntu: apt-get install gcc g++), or set CC and CXX to one."]
    return ["Run: firstlight explain, with this line."]
