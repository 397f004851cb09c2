"""A product as a plan sees it: everything that is compiled in or cut to size, and no tensor."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from firstlight.errors import UnsupportedInput
from firstlight.kernels.index import Index
from firstlight.kernels.product import Activation, Epilogue, Layout
from firstlight.kernels.sm90.variants import NARROWEST_BY_TOKEN, SHORT_ROWS, TURN_SIDE

DTYPES = (torch.float16, torch.bfloat16)
ACTIVATIONS = {
    Activation.NONE: 0, Activation.RELU: 1, Activation.GELU: 2, Activation.GELU_TANH: 3, Activation.SILU: 4
}  # fmt: skip
EIGHTH = 8  # rows of a tensor that TMA reads are a multiple of 16 bytes apart: 8 elements
SECTOR = 16  # elements of the 32 bytes that L2 moves at once
PITCH = 64
WIDENED_FROM = 0.15  # density from which reading X slowly takes longer than copying it
SHORT_ROWS_BELOW = 0.08  # density below which turning X takes longer than reading it in rows of 64 bytes
SHORT_ROWS_TOKENS = 256
# of a turned operand: whole tiles of turn.cu, as one that starts inside the tensor does not see where a row ends
TURNED_PITCH = TURN_SIDE


class Problem(NamedTuple):
    """E.g. a [8192, 8192] float16 matrix of 1638 blocks of 64 times 4096 tokens; a named tuple: it is a dict key."""

    rows: int
    cols: int
    block: int
    entries: int
    n: int
    batch: int
    tokens: bool
    turned: bool
    bf16: bool
    device: int

    @property
    def x_by_token(self) -> bool:
        """The kernel reads X as [n, cols]."""
        return self.tokens and (self.block >= NARROWEST_BY_TOKEN or self.short_rows)

    @property
    def short_rows(self) -> bool:
        """X comes as [n, cols] and is read so with blocks of 32, in 64 bytes at once: turning it would take longer."""
        if not self.tokens or self.block != SHORT_ROWS or self.cols % EIGHTH:
            return False
        return self.n <= SHORT_ROWS_TOKENS or self.density < SHORT_ROWS_BELOW

    @property
    def density(self) -> float:
        """Share of the blocks that is stored, e.g. 0.1."""
        return self.entries * self.block**2 / max(1, self.rows * self.cols)

    @property
    def turns_x(self) -> bool:
        """X comes as [n, cols] and is turned into [cols, pitch] first."""
        return self.tokens and not self.x_by_token

    @property
    def widens_x(self) -> bool:
        """X comes as [cols, n] and is copied into longer rows first: TMA cannot read it, or reads it slowly and often.

        Rows that do not start at a multiple of 32 bytes are read from L2 at three quarters of the rate.
        """
        if self.tokens or self.n % SECTOR == 0:
            return False
        return self.n % EIGHTH != 0 or (self.density >= WIDENED_FROM and self.n > PITCH)

    @property
    def widens_out(self) -> bool:
        """The result goes as [rows, n] into longer rows first: TMA cannot write it."""
        return not self.tokens and self.n % EIGHTH != 0

    @property
    def pitch(self) -> int:
        """Elements between the rows of X where it lies by column."""
        if self.turns_x:
            return round_up(self.n, TURNED_PITCH)
        return round_up(self.n, PITCH) if self.widens_x else self.n

    @property
    def out_pitch(self) -> int:
        """Elements between the rows of the result where it lies by column."""
        return round_up(self.n, PITCH) if self.widens_out else self.n

    @property
    def dtype(self) -> str:
        return "bfloat16" if self.bf16 else "float16"


class Padding(NamedTuple):
    """How large a product has to be made so that TMA can read and write its tensors."""

    rows: int
    cols: int
    n: int


def problem_of(index: Index, dense: Tensor, layout: Layout) -> Problem:
    """The problem of one call; a few hundred nanoseconds."""
    shape = dense.shape
    tokens = layout is Layout.TOKENS
    return Problem(
        index.rows, index.cols, index.block, index.columns.shape[0], shape[0] if tokens else shape[-1],
        shape[0] if len(shape) == 3 else 1, tokens, index.blocks_transposed, dense.dtype is torch.bfloat16,
        dense.get_device(),
    )  # fmt: skip


def padding_of(problem: Problem, *, with_addend: bool) -> Padding | None:
    """The sizes that TMA takes, where it does not take the product as it is and no kernel copies on the way."""
    rows, cols, n = problem.rows, problem.cols, problem.n
    if problem.tokens:
        wanted = Padding(round_up(rows, EIGHTH), round_up(max(1, cols), EIGHTH) if problem.x_by_token else cols, n)
    else:
        wanted = Padding(rows, cols, round_up(n, PITCH) if with_addend and n % EIGHTH else n)
    return None if wanted == (rows, cols, n) else wanted


def is_padded(layout: Layout, block: int, shape: tuple[int, int], n: int) -> bool:
    """Whether a product of this shape, or its transpose, has to be copied to be multiplied."""
    tokens = layout is Layout.TOKENS
    # and its transpose: whoever asks may mean the gradient too
    return any(
        padding_of(problem, with_addend=False) is not None or problem.widens_out
        for problem in (
            Problem(rows, cols, block, 0, n, 1, tokens, turned=False, bf16=False, device=0)
            for rows, cols in (shape, shape[::-1])
        )
    )


def round_up(size: int, to: int) -> int:
    """E.g. 65 to 64s: 128."""
    return -(-size // to) * to


def require_one_dtype(values: torch.dtype, dense: torch.dtype, out: torch.dtype) -> None:
    """Raises when the operands are not of one 16-bit type: no kernel converts on the way."""
    if dense not in DTYPES:
        raise UnsupportedInput(
            f"backend 'sm90': the dense operand is {dense}; float16 and bfloat16 are accepted. "
            "Convert it, or use backend='auto'."
        )
    if values is not dense or out is not dense:
        raise UnsupportedInput(
            f"backend 'sm90': values are {values}, the dense operand is {dense}, the output {out}; "
            "one type for all three is accepted. Convert the values or the dense operand."
        )


def activation_number(epilogue: Epilogue) -> int:
    """The activation as multiply.cu counts them, e.g. 1 for relu."""
    return ACTIVATIONS[epilogue.activation]


@functools.lru_cache(maxsize=64)
def multiprocessors(device: int) -> int:
    """E.g. 132 on an H200."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
