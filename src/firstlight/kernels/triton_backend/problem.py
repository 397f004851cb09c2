"""A product as a plan sees it: everything that is compiled in or cut to size, and no tensor."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.index import Index
from firstlight.kernels.product import Epilogue, Layout, Second
from firstlight.kernels.tf32 import tf32_allowed
from firstlight.kernels.triton_backend.arguments import INDEX_POINTER, POINTER
from firstlight.kernels.triton_backend.launch import Launching, launching
from firstlight.kernels.triton_backend.tiles import Family, family_of

INTERPRETED_MULTIPROCESSORS = 4


class Problem(NamedTuple):
    """E.g. a [8192, 8192] float16 matrix of 1638 blocks of 64 times 4096 tokens; a named tuple: it is a dict key."""

    rows: int
    cols: int
    block: int
    entries: int
    n: int
    batch: int
    tokens: bool
    has_blocks: bool
    blocks_transposed: bool
    has_addend: bool
    has_bias: bool
    activation: str
    dtype: torch.dtype
    index_dtype: torch.dtype
    tf32: bool
    device: torch.device
    multiplied: bool = False  # by the addend

    @property
    def block_rows(self) -> int:
        return -(-self.rows // self.block)

    @property
    def block_cols(self) -> int:
        return -(-self.cols // self.block)


def problem_of(index: Index, dense: Tensor, layout: Layout, epilogue: Epilogue) -> Problem:
    """The problem of one call; a few hundred nanoseconds."""
    shape = dense.shape
    tokens = layout is Layout.TOKENS
    return Problem(
        index.rows,
        index.cols,
        index.block,
        index.columns.shape[0],
        shape[0] if tokens else shape[-1],
        shape[0] if len(shape) == 3 else 1,
        tokens,
        index.blocks is not None,
        index.blocks_transposed,
        epilogue.addend is not None,
        epilogue.bias is not None,
        epilogue.activation._value_,
        dense.dtype,
        index.columns.dtype,
        dense.dtype is torch.float32 and tf32_allowed(),
        dense.device,
        epilogue.second is Second.MULTIPLIED,
    )


def require_one_dtype(values: torch.dtype, dense: torch.dtype, out: torch.dtype) -> None:
    """Raises when the operands differ in type: no kernel converts on the way."""
    if values is not dense or out is not dense:
        raise UnsupportedInput(
            f"backend 'triton': values are {values}, the dense operand is {dense}, the output {out}; "
            "one type for all three is accepted. Convert the values or the dense operand."
        )


def require_runnable(dtype: torch.dtype, index_dtype: torch.dtype, device: torch.device) -> None:
    """Raises where no kernel can be compiled or started: what was given, what is accepted, what to do."""
    if dtype not in POINTER:
        raise UnsupportedInput(
            f"backend 'triton': values are {dtype}; float16, bfloat16 and float32 are accepted. "
            "Convert them, or pass backend='reference'."
        )
    if index_dtype not in INDEX_POINTER:
        raise UnsupportedInput(f"backend 'triton': indices are {index_dtype}; int32 and int64 are accepted.")
    if device.type != "cuda" and launching() is not Launching.INTERPRETED:
        raise UnsupportedInput(
            f"backend 'triton': tensors are on {device}; a CUDA device is accepted. "
            "Move them there, or pass backend='reference' or 'dense'."
        )


class Gpu(NamedTuple):
    """What tiles are chosen for."""

    family: Family
    multiprocessors: int
    has_boxes: bool  # the copy engine that reads boxes (TMA)


def gpu_of(device: torch.device) -> Gpu:
    """E.g. SM90 with 132 multiprocessors; the interpreter passes for a small SM90 without the copy engine."""
    if device.type != "cuda":
        return Gpu(Family.SM90, INTERPRETED_MULTIPROCESSORS, has_boxes=False)
    properties = torch.cuda.get_device_properties(device)
    capability = (properties.major, properties.minor)
    return Gpu(family_of(capability), properties.multi_processor_count, has_boxes=capability >= (9, 0))
