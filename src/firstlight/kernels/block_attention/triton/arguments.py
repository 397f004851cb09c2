"""What the attention kernels are given: named tuples, so that a kernel has seven arguments and not forty.

The same classes hold the types when a kernel is compiled ('*fp16') and the tensors and numbers when it is launched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

POINTER = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}


class ListPointers(NamedTuple):
    """The lists of firstlight.kernels.block_attention.lists and the bits of partial blocks."""

    starts: Any
    columns: Any
    masks: Any
    order: Any
    bits: Any  # another pointer, not read, where no block is partial


class ForwardTensors(NamedTuple):
    """The operands of a forward pass."""

    q: Any
    k: Any
    v: Any
    out: Any
    lse: Any  # float32 [batch, heads, q_len]


class ForwardStrides(NamedTuple):
    """Elements from one batch, head and row to the next; the last dimension is contiguous."""

    q_batch: Any
    q_head: Any
    q_row: Any
    k_batch: Any
    k_head: Any
    k_row: Any
    v_batch: Any
    v_head: Any
    v_row: Any
    out_batch: Any
    out_head: Any
    out_row: Any


class BackwardTensors(NamedTuple):
    """The operands of a backward pass; log_sums and deltas are float32 [batch, heads, q_len] of rows_before."""

    q: Any
    k: Any
    v: Any
    grad: Any
    log_sums: Any
    deltas: Any
    dq: Any
    dk: Any
    dv: Any


class BackwardStrides(NamedTuple):
    """As ForwardStrides."""

    q_batch: Any
    q_head: Any
    q_row: Any
    k_batch: Any
    k_head: Any
    k_row: Any
    v_batch: Any
    v_head: Any
    v_row: Any
    grad_batch: Any
    grad_head: Any
    grad_row: Any
    dq_batch: Any
    dq_head: Any
    dq_row: Any
    dk_batch: Any
    dk_head: Any
    dk_row: Any
    dv_batch: Any
    dv_head: Any
    dv_row: Any


class RowTensors(NamedTuple):
    """What is computed once for each query row before a backward pass; grad_lse repeats lse where there is none."""

    out: Any
    grad: Any
    lse: Any
    grad_lse: Any
    log_sums: Any
    deltas: Any


class RowStrides(NamedTuple):
    """As ForwardStrides."""

    out_batch: Any
    out_head: Any
    out_row: Any
    grad_batch: Any
    grad_head: Any
    grad_row: Any


class Sizes(NamedTuple):
    """Shapes of a call; the list of (batch b, head h) is b * list_batch + h * list_head: 0 where lists are shared."""

    heads: Any
    kv_heads: Any
    q_len: Any
    k_len: Any
    q_blocks: Any
    k_blocks: Any
    list_batch: Any
    list_head: Any
    scale: Any


class FillTensors(NamedTuple):
    """Kinds and bit rows of a mask, and the lists made of them."""

    kinds: Any
    which: Any  # repeats starts, not read, where no block is partial
    counts: Any  # blocks of each list, then of each program's lists together; see OrderTensors
    starts: Any
    columns: Any
    masks: Any


class FillSizes(NamedTuple):
    """Query blocks and key blocks of a head, heads of all batches, room in the lists."""

    q_blocks: Any
    k_blocks: Any
    heads: Any
    most: Any


class OrderTensors(NamedTuple):
    """Counts of blocks: of each list, and of each program's lists, which become sums; the order made of the first."""

    counts: Any
    order: Any  # repeats counts, not written, where torch sorts


class OrderSizes(NamedTuple):
    """Lists of a head, lists of all heads, programs that counted, programs of a head that rank."""

    blocks: Any
    lists: Any
    totals: Any
    parts: Any


# all fields of the first are tensors, all of the second are numbers
POINTERS = frozenset({ListPointers, ForwardTensors, BackwardTensors, RowTensors, FillTensors, OrderTensors})
NUMBERS = frozenset({ForwardStrides, BackwardStrides, RowStrides, Sizes, FillSizes, OrderSizes, int, float, type(None)})
SIZE_TYPES = Sizes(*("i32",) * 8, "fp32")
LIST_TYPES = ListPointers(*("*i32",) * 5)


class AttentionTraits(NamedTuple):
    """What an attention kernel is compiled for."""

    block: int
    bm: int  # query rows of a tile
    bn: int  # keys of a tile
    head_dim: int
    width: int  # head_dim rounded up to a power of two
    group: int  # query heads that share a key head
    precision: str  # ieee or tf32, of float32 products
    has_bits: bool  # some block may be partial
    ragged_q: bool  # the last query block reaches past q_len
    ragged_k: bool
    scale_first: bool = False  # scale <= 0: the largest product is not the largest logit
    wide: bool = False  # offsets inside a tile need 64 bits
    has_grad_lse: bool = False
