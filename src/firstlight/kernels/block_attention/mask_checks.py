"""What block masks are made of: each check says what was given, what is accepted and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.bits import blocks_in
from firstlight.kernels.checks import require_dtype, require_same_device, require_shape, require_tensor

if TYPE_CHECKING:
    from firstlight.kernels.block_attention.mask import BlockMask

BLOCKS = (64, 128)
MOST_BLOCKS = 2**31 - 1  # list offsets are int32
ALIGNMENTS = ("upper_left", "lower_right")


def require_mask_block(block: object) -> None:
    """Raises unless block is 64 or 128."""
    if not isinstance(block, (int, torch.SymInt)) or block not in BLOCKS:
        raise UnsupportedInput(f"block is {block!r}; 64 and 128 are accepted. Choose one of them.")


def require_length(length: object, name: str) -> None:
    """Raises unless the length is a whole number of 1 or more."""
    if isinstance(length, bool) or not isinstance(length, (int, torch.SymInt)) or length < 1:
        raise UnsupportedInput(
            f"{name} is {length!r}; a whole number of 1 or more is accepted. Pass the number of "
            f"{'queries' if name == 'q_len' else 'keys'}."
        )


def require_sizes(q_len: int, k_len: int, block: int) -> None:
    """Raises unless lengths and block are ones that a mask can have."""
    require_mask_block(block)
    require_length(q_len, "q_len")
    require_length(k_len, "k_len")


def require_number(value: object, name: str, *, least: int) -> None:
    """Raises unless the value is a whole number of at least `least`, e.g. stride 1."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)) or value < least:
        raise UnsupportedInput(
            f"{name} is {value!r}; a whole number of {least} or more is accepted. Pass one, e.g. "
            f"{name}={max(least, 1)}."
        )


def require_alignment(alignment: object) -> None:
    """Raises unless alignment is upper_left or lower_right."""
    if alignment not in ALIGNMENTS:
        raise UnsupportedInput(
            f"alignment is {alignment!r}; 'upper_left' (query 0 beside key 0, torch's is_causal) and 'lower_right' "
            f"(the last query beside the last key, as with a cache of earlier keys) are accepted. Pass one of them."
        )


def require_mask_parts(
    kinds: Tensor, which: Tensor | None, bits: Tensor | None, *, lengths: tuple[int, int], block: int
) -> None:
    """Raises unless shapes, dtypes and devices of the parts fit each other; looks at no number on the device."""
    require_sizes(*lengths, block)
    require_tensor(kinds, "kinds")
    require_dtype(kinds, "kinds", (torch.uint8,))
    rows, columns = (blocks_in(length, block) for length in lengths)
    if kinds.dim() != 4 or kinds.shape[2:] != (rows, columns) or 0 in kinds.shape:
        raise UnsupportedInput(
            f"kinds has shape {list(kinds.shape)}; [batch or 1, heads or 1, {rows}, {columns}] is accepted for q_len "
            f"{lengths[0]}, k_len {lengths[1]} and block {block}. Pass kinds in that shape."
        )
    if kinds.numel() > MOST_BLOCKS:
        raise UnsupportedInput(
            f"the mask has {kinds.numel()} blocks; at most {MOST_BLOCKS} are accepted. Use block=128, or one mask for "
            f"all heads."
        )
    require_contiguous(kinds, "kinds")
    if which is None and bits is None:
        return
    if which is None or bits is None:
        missing = "which" if which is None else "bits"
        raise UnsupportedInput(f"{missing} is None and the other is not; both or neither is accepted. Pass {missing}.")
    for name, tensor in (("which", which), ("bits", bits)):
        require_tensor(tensor, name)
        require_dtype(tensor, name, (torch.int32,))
    require_shape(which, "which", tuple(kinds.shape))
    require_shape(bits, "bits", (None, block, block // 32))
    if bits.shape[0] == 0:
        raise UnsupportedInput("bits has no rows; 1 or more are accepted. Pass which=None and bits=None.")
    for name, tensor in (("which", which), ("bits", bits)):
        require_contiguous(tensor, name)
        require_same_device(kinds, "kinds", tensor, name)


def require_contiguous(tensor: Tensor, name: str) -> None:
    """Raises unless the tensor lies in memory without gaps, in order."""
    if not tensor.is_contiguous():
        raise UnsupportedInput(
            f"{name} has strides {list(tensor.stride())}; a contiguous tensor is accepted. Call {name}.contiguous()."
        )


def require_same_sizes(first: BlockMask, second: object, sign: str) -> None:
    """Raises unless the two masks can be combined: equal lengths, block and device; batch and heads equal or 1."""
    from firstlight.kernels.block_attention.mask import BlockMask

    if not isinstance(second, BlockMask):
        raise UnsupportedInput(
            f"the right side of {sign} is a {type(second).__name__}; a BlockMask is accepted. Make one, e.g. with "
            f"BlockMask.from_bool."
        )
    for name in ("q_len", "k_len", "block", "device"):
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            remedy = f"Move one with .to({str(one)!r})." if name == "device" else f"Make both with {name}={one}."
            raise UnsupportedInput(
                f"the masks on the sides of {sign} have {name} {one} and {other}; one {name} is accepted. {remedy}"
            )
    for name, one, other in zip(("batch", "heads"), first.kinds.shape[:2], second.kinds.shape[:2], strict=True):
        if one != other and 1 not in (one, other):
            raise UnsupportedInput(
                f"the masks on the sides of {sign} have {name} {one} and {other}; equal ones, or 1 on one side, are "
                f"accepted. Make both for {name} {max(one, other)}."
            )
