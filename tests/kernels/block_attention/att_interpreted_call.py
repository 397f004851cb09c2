"""One call of attention with backend='triton' in Triton's interpreter, in a process of its own.

    TRITON_INTERPRET=1 python att_interpreted_call.py

Prints the largest errors of out, lse and the gradients against the reference as JSON.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import triton.runtime.interpreter as interpreter
from torch import Tensor

from firstlight.kernels import BlockMask, attention


def let_loop_bounds_be_arrays() -> None:
    """Triton's interpreter takes int() of one-element arrays, which numpy 2.4 refuses."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, *scope: Any) -> None:  # Triton before 3.6 has no scope and puts nothing back
        patch(tensor, *scope)
        put = scope[0].set_attr if scope else setattr
        put(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def computed(backend: str) -> list[Tensor]:
    """Out, lse, dq, dk and dv of views of a projection with two query heads on one key head."""
    torch.manual_seed(0)
    q = torch.randn(1, 70, 2, 16).transpose(1, 2).requires_grad_()
    k, v = (torch.randn(1, 1, 66, 16, requires_grad=True) for _ in range(2))
    mask = BlockMask.window(70, 66, left=40, right=9, block=64)
    out, lse = attention(q, k, v, mask, causal="lower_right", return_lse=True, backend=backend)
    total = (out * out.detach().cos()).sum() + torch.where(lse == -torch.inf, 0.0, lse).sin().sum()
    return [out, lse, *torch.autograd.grad(total, (q, k, v))]


if __name__ == "__main__":
    let_loop_bounds_be_arrays()
    pairs = zip(computed("triton"), computed("reference"), strict=True)
    print(json.dumps([float((one - other).nan_to_num().abs().max()) for one, other in pairs]))
