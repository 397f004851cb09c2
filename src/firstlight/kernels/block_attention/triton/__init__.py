"""Block-sparse attention compiled by Triton for the GPU at hand. Importing it imports triton.

`forward` and `backward` are the two requests every backend takes. Neither waits for the GPU, and both give the same
bits at every call: no atomics, every sum runs in the order of the lists.
"""

from __future__ import annotations

from firstlight.kernels.block_attention.triton.backward import backward
from firstlight.kernels.block_attention.triton.forward import forward

__all__ = ["backward", "forward"]
