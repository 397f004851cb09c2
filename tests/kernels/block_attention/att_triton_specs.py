"""What the tests compile: the same specs that calls launch, for GPUs that are not there."""

from __future__ import annotations

import torch

from firstlight.kernels.block_attention.triton.plan import Problem

PLAIN = Problem(
    dtype=torch.float16,
    head_dim=128,
    block=128,
    group=1,
    has_bits=True,
    ragged_q=False,
    ragged_k=False,
    scale_first=False,
    wide=False,
    tf32=False,
    has_grad_lse=False,
    aligned=True,
    device=torch.device("cuda", 0),
)
RAGGED = PLAIN._replace(head_dim=96, ragged_q=True, ragged_k=True)
