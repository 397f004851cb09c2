"""Whether float32 products may round their operands to tf32: torch's setting, read in either of its forms."""

from __future__ import annotations

import torch


def tf32_allowed() -> bool:
    """Whether torch's settings let float32 products round their operands to tf32."""
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # torch 2.9 and later refuse to read the old setting once the new one was written
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
