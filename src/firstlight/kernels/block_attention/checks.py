"""What attention takes: each check says what was given, what is accepted and what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.checks import (
    ALIGNMENT_BYTES,
    DTYPES,
    _warn_of_copy,
    require_dtype,
    require_same_device,
    require_same_dtype,
    require_shape,
    require_tensor,
)

# sizes of a scale that kernels can multiply with: normal in the precision of the logits, times log2(e) too
SCALES = (2.0**-126, 2.0**127)
DOUBLE_SCALES = (2.0**-1022, 2.0**1023)
ALIGNMENTS = ("upper_left", "lower_right")


def ready(tensor: Tensor, name: str) -> Tensor:
    """The tensor itself, views of [batch, seq, heads, head dim] too, where kernels can read it; else a copy, warned of.

    Kernels read the last dimension in whole and step through the others in multiples of 16 bytes.
    """
    if is_readable(tensor) and tensor.data_ptr() % ALIGNMENT_BYTES == 0:
        return tensor
    return _copied(tensor, name)


def is_readable(tensor: Tensor) -> bool:
    """Whether kernels can read the tensor as it lies, if it starts at a multiple of 16 bytes."""
    if tensor.is_contiguous():
        return True
    size, strides = tensor.element_size(), tensor.stride()
    if strides[-1] != 1:
        return False
    if tensor.shape[-1] * size % ALIGNMENT_BYTES:
        return True  # no layout of such a head dimension has aligned rows, a copy neither
    return all(stride * size % ALIGNMENT_BYTES == 0 for stride in strides[:-1])


def ready_gradient(tensor: Tensor) -> Tensor:
    """As ready, without a warning: autograd lays out what it hands back, and no caller could change that."""
    aligned = tensor.data_ptr() % ALIGNMENT_BYTES == 0
    if aligned and is_readable(tensor):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _copied(tensor: Tensor, name: str) -> Tensor:
    if tensor.is_contiguous():
        why = f"its first element is not at a multiple of {ALIGNMENT_BYTES} bytes"
        _warn_of_copy(name, why, ".clone() it once")
        return tensor.clone(memory_format=torch.contiguous_format)
    why = f"its head dimension is not contiguous or its rows do not lie at multiples of {ALIGNMENT_BYTES} bytes"
    _warn_of_copy(name, why, "call .contiguous() once")
    return tensor.contiguous()


def require_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raises unless q [B, H, Sq, D] and k, v [B, Hkv, Sk, D] fit each other."""
    if not _fit(q, k, v):
        _complain(q, k, v)


def _fit(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """One quick look at everything; what is wrong is found out by the slower checks."""
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)) or q.dim() != 4 or k.dim() != 4:
        return False
    batch, heads, _, dim = q.shape
    key_batch, key_heads, keys, key_dim = shape = k.shape
    return bool(
        v.shape == shape
        and q.dtype == k.dtype == v.dtype
        and q.device == k.device == v.device
        and q.dtype in DTYPES
        and (key_batch, key_dim) == (batch, dim)
        and min(heads, key_heads, keys, dim) >= 1
        and heads % key_heads == 0
    )


def _complain(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require_tensor(tensor, name)
        if tensor.dim() != 4:
            raise UnsupportedInput(
                f"{name} has shape {list(tensor.shape)}; [batch, heads, length, head dim] is accepted. "
                f"Add the missing dimensions with {name}.unsqueeze(0), or swap them with {name}.transpose(1, 2)."
            )
    require_dtype(q, "q", DTYPES)
    for name, tensor in (("k", k), ("v", v)):
        require_same_device(q, "q", tensor, name)
        require_same_dtype(q, "q", tensor, name)
    _require_shapes(q, k, v)


def _require_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    batch, heads, _, dim = q.shape
    if k.shape[0] != batch or k.shape[3] != dim:
        raise UnsupportedInput(
            f"q has shape {list(q.shape)} and k {list(k.shape)}; the same batch and head dim are accepted: k "
            f"[{batch}, key heads, keys, {dim}]. Where the dimensions are [batch, length, heads, head dim], call "
            f".transpose(1, 2)."
        )
    require_shape(v, "v", tuple(k.shape))
    if min(heads, k.shape[1], k.shape[2], dim) < 1:
        raise UnsupportedInput(
            f"q has shape {list(q.shape)} and k {list(k.shape)}; at least one head, one key and a head dim of 1 are "
            f"accepted. Leave out calls without keys."
        )
    if heads % k.shape[1]:
        raise UnsupportedInput(
            f"q has {heads} heads and k {k.shape[1]}; a multiple of the key heads is accepted. Query head h reads key "
            f"head h // (query heads / key heads)."
        )


def require_mask(mask: object, q: Tensor, k: Tensor) -> None:
    """Raises unless the mask is a BlockMask for these lengths, batch, heads and device."""
    if not isinstance(mask, BlockMask):
        remedy = "BlockMask.from_bool(mask) takes a boolean tensor" if isinstance(mask, Tensor) else (
            "BlockMask.from_flex(mask) takes FlexAttention's"
        )  # fmt: skip
        raise UnsupportedInput(f"mask is a {type(mask).__name__}; a BlockMask or None is accepted. {remedy}.")
    if (mask.q_len, mask.k_len) != (q.shape[2], k.shape[2]):
        raise UnsupportedInput(
            f"mask is for {mask.q_len} queries and {mask.k_len} keys; q has {q.shape[2]} and k {k.shape[2]}. "
            f"Make the mask with q_len={q.shape[2]} and k_len={k.shape[2]}."
        )
    batch, heads = mask.kinds.shape[:2]
    if batch not in (1, q.shape[0]) or heads not in (1, q.shape[1]):
        raise UnsupportedInput(
            f"mask has lists for batch {batch} and {heads} heads; 1 or {q.shape[0]} and 1 or {q.shape[1]} are accepted "
            f"(one for each query head, whatever the number of key heads). For one list per key head, repeat them: "
            f"kinds.repeat_interleave({q.shape[1] // k.shape[1]}, 1)."
        )
    if mask.kinds.device != q.device:
        raise UnsupportedInput(
            f"q is on {q.device} and mask on {mask.kinds.device}; one device is accepted. "
            f"Move it once: mask.to({str(q.device)!r})."
        )


def alignment_of(causal: object) -> str:
    """upper_left, lower_right or empty (not causal) for what the caller gave."""
    if causal is False:
        return ""
    if causal is True:
        return ALIGNMENTS[0]
    if isinstance(causal, str) and causal in ALIGNMENTS:
        return causal
    raise UnsupportedInput(
        f"causal is {causal!r}; accepted: False, True (the same as 'upper_left': query i sees keys 0 to i), and "
        f"'lower_right' (the last query sees the last key)."
    )


def refuse_dropout(dropout_p: float) -> None:
    """Raises unless dropout is 0."""
    if dropout_p:
        raise UnsupportedInput(
            f"dropout_p is {dropout_p!r}; only 0.0 is accepted. The backward pass computes the weights again "
            f"from q, k and lse and would not know which were dropped. Apply "
            f"torch.nn.functional.dropout to the output, or use torch.nn.functional.scaled_dot_product_attention."
        )


def scale_for(scale: object, q: Tensor) -> float:
    """The scale as given, 1 / sqrt(head dim) for None; 0 for one that is 0 in the precision of the logits."""
    if scale is None:
        return 1.0 / math.sqrt(q.shape[3])
    least, most = DOUBLE_SCALES if q.dtype == torch.float64 else SCALES
    if isinstance(scale, (int, float)) and not isinstance(scale, bool) and abs(scale) <= most:
        return float(scale) if abs(scale) >= least else 0.0  # kernels tell 0 apart: -inf * 0 is not -inf
    raise UnsupportedInput(
        f"scale is {scale!r}; a finite number of at most {most:.2g} or None (1 / sqrt(head dim)) is accepted."
    )


def require_parts(parts: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Raises unless every part of a merge is (out, lse) of the same shapes on one device."""
    if not isinstance(parts, (tuple, list)) or not parts:
        given = "empty" if isinstance(parts, (tuple, list)) else f"a {type(parts).__name__}"
        raise UnsupportedInput(f"parts is {given}; a list with at least one (out, lse) pair is accepted.")
    for number, part in enumerate(parts):
        if not isinstance(part, (tuple, list)) or len(part) != 2 or not all(isinstance(one, Tensor) for one in part):
            raise UnsupportedInput(
                f"part {number} is a {type(part).__name__}; pairs (out, lse) are accepted, as attention(..., "
                f"return_lse=True) returns them."
            )
    first = parts[0][0]
    for number, (out, lse) in enumerate(parts):
        name, log_name = f"out of part {number}", f"lse of part {number}"
        require_shape(out, name, tuple(first.shape))
        require_shape(lse, log_name, tuple(first.shape[:-1]))
        require_dtype(out, name, DTYPES)
        require_dtype(lse, log_name, (torch.float32, torch.float64))
        require_same_dtype(first, "out of part 0", out, name)
        for tensor, called in ((out, name), (lse, log_name)):
            require_same_device(first, "out of part 0", tensor, called)
