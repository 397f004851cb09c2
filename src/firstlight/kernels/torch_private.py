"""Every name of torch's that it does not promise, in one place: what each is for, and what is done without it.

All of them are in torch 2.8, 2.9, 2.10, 2.11 and 2.13: tests/kernels/test_torch_private.py asks for each, and
tools/torch_releases.py ran it on those (results/kernels-torch-releases.json). No other file of the kernels names one; a
test reads them all. The CUDA ones are missing from a build without CUDA, where nothing calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import (
    _DisableFuncTorch,
    _functorch,
    _is_any_autocast_enabled,
    _len_torch_dispatch_stack,
)
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

__all__ = ["FakeTensor"]  # tensors without numbers, of torch.compile and FakeTensorMode

Empty = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor]

# ---- what is going on around a call; public questions cost microseconds where these take 50 ns
functorch_level: Callable[[], Any] = _functorch.peek_interpreter_stack  # None outside of torch.func
is_functorch_wrapped: Callable[[Tensor], bool] = _functorch.is_functorch_wrapped_tensor
without_functorch = _DisableFuncTorch  # a context: computes on plain tensors inside of torch.func
autocast_anywhere: Callable[[], bool] = _is_any_autocast_enabled
dispatch_modes: Callable[[], int] = _len_torch_dispatch_stack

# ---- CUDA, without torch.cuda's frames and its look for a first use
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # (ordinal) -> address of the current stream
is_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)


def keep_busy(cycles: int) -> None:
    """Has the current stream do nothing for so many cycles, so that the host gets ahead while something is timed."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def in_dual_level() -> bool:
    """Whether forward-mode derivatives are being taken."""
    return forward_ad._current_level >= 0


def ragged_dimension(jagged: Any) -> int:
    """The dimension of a jagged nested tensor that has lengths, e.g. 1; compiled code cannot tell it by its size."""
    return int(jagged._ragged_idx)


def hides_lengths(wrapped: Tensor) -> bool:
    """Whether what torch.func wraps is a jagged nested tensor, which no longer says so."""
    return any(isinstance(size, torch.SymInt) and size.node.is_nested_int() for size in wrapped.shape)


def indexing_with_numbers() -> TorchFunctionMode:
    """A context where t[i] takes a tensor i of one number under torch.vmap, as torch's create_block_mask does it.

    Without it older releases (2.10 among them) call i.item() there, which torch.vmap refuses.
    """
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # here: dynamo takes a second

    return TransformGetItemToIndex()


def quick_empty(device_type: str) -> Empty | None:
    """torch.empty_strided for compiled code, a third of its time: (sizes, strides, dtype), on the current device."""
    if device_type not in ("cpu", "cuda"):
        return None
    return getattr(torch._C._dynamo.guards, f"_empty_strided_{device_type}", None)


def applied_directly(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """function.apply without its look for torch.func, which takes 4 us; for where that was ruled out."""
    applied: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc] # of C++
    return applied


# ---- torch's attention with the logarithms of the sums, which scaled_dot_product_attention does not return


def flash_attention(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """On a GPU; causal aligned to the lower right."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=is_causal, scale=scale)
    return out, lse


def flash_attention_on_processor(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The same on the processor; causal aligned to the upper left."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, is_causal=is_causal, attn_mask=mask, scale=scale
    )
    return out, lse


def efficient_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """On a GPU, with any mask; lse may have more rows than there are queries."""
    out, lse, _, _ = torch.ops.aten._scaled_dot_product_efficient_attention(
        q, k, v, mask, compute_log_sumexp=True, is_causal=is_causal, scale=scale
    )
    return out, lse
