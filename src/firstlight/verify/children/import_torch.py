"""`import torch` works, and this is the torch."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

from firstlight.verify.children.witness import Witness


def prove(question: dict[str, Any], witness: Witness) -> str:
    witness.saw("interpreter", sys.executable)
    witness.saw("python", sys.version.split()[0])
    started = time.monotonic()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            import torch
        except ImportError as error:
            witness.fault(f"{type(error).__name__}: {error}", *_advice(error))
        except AttributeError as error:  # a half-removed torch, or a folder of that name
            witness.fault(f"torch cannot be imported: AttributeError: {error}")
    took = time.monotonic() - started
    file = getattr(torch, "__file__", None)
    version = getattr(torch, "__version__", None)
    if not file or not version:
        witness.fault(
            f"what is called torch is not torch: it has no {'version' if file else 'file'} ({list(torch.__path__)})",
            "Remove or rename the folder called torch that stands in the way.",
        )
    witness.more.update(file=file, version=str(version), wheel_cuda=str(torch.version.cuda))
    witness.saw("torch", str(version))
    witness.saw("file", file)
    witness.saw("built for CUDA", str(torch.version.cuda))
    witness.saw("import seconds", round(took, 2))
    for warning in said[:3]:
        witness.saw("warning", str(warning.message)[:300])
    return f"torch {version}, imported in {took:.1f} s from {file}"


def _advice(error: ImportError) -> list[str]:
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return ["Install torch into this environment, or name another with --python.", "Run: firstlight doctor"]
    return ["Run: firstlight explain, with this line, for its cause; firstlight doctor for the whole."]
