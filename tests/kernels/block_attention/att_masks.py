"""Masks that the attention tests draw, with what each means written out element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from firstlight.kernels.block_attention.mask import FULL, NONE, PARTIAL, BlockMask

LENGTHS = st.sampled_from((1, 2, 31, 63, 64, 65, 100, 127, 128, 129, 150, 192, 200))
ALIGNMENTS = st.sampled_from(("upper_left", "lower_right"))
BLOCKS = st.sampled_from((64, 64, 64, 128))


class Sizes(NamedTuple):
    q_len: int
    k_len: int
    block: int

    @property
    def rows(self) -> int:
        return -(-self.q_len // self.block)

    @property
    def columns(self) -> int:
        return -(-self.k_len // self.block)


class Drawn(NamedTuple):
    """A mask and the elements that it has to keep."""

    mask: BlockMask
    expected: Tensor


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    return Sizes(draw(LENGTHS), draw(LENGTHS), draw(BLOCKS))


def by_elements(at: Sizes, keeps: Callable[[int, int], bool]) -> Tensor:
    """[1, 1, q_len, k_len]: the definition asked for every pair, one by one."""
    return torch.tensor([[keeps(q, k) for k in range(at.k_len)] for q in range(at.q_len)])[None, None]


@st.composite
def masks(draw: st.DrawFn, at: Sizes) -> Drawn:
    """One mask of any kind for these sizes."""
    options: dict[str, Any] = {"block": at.block}
    kind = draw(st.sampled_from(("full", "causal", "window", "sink", "blocks", "elements", "heads", "document")))
    shift = at.k_len - at.q_len
    if kind == "full":
        return Drawn(BlockMask.full(at.q_len, at.k_len, **options), by_elements(at, lambda q, k: True))
    if kind == "causal":
        mask = BlockMask.causal(at.q_len, at.k_len, alignment="lower_right", **options)
        return Drawn(mask, by_elements(at, lambda q, k: k <= q + shift))
    if kind == "window":
        left, right = draw(st.integers(0, 140)), draw(st.integers(0, 70))
        mask = BlockMask.window(at.q_len, at.k_len, left=left, right=right, **options)
        return Drawn(mask, by_elements(at, lambda q, k: q - left <= k <= q + right))
    if kind == "sink":
        keys = draw(st.integers(0, 210))
        return Drawn(BlockMask.sink(at.q_len, at.k_len, keys=keys, **options), by_elements(at, lambda q, k: k < keys))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    if kind == "document":
        ids_q, ids_k = (torch.randint(0, 3, (length,), generator=generator).sort().values for length in at[:2])
        return Drawn(BlockMask.document(ids_q, ids_k, **options), (ids_q[:, None] == ids_k)[None, None])
    elements = draw_elements(at, generator, heads=3 if kind == "heads" else 1, batch=2 if kind == "heads" else 1)
    if kind == "blocks":
        elements = elements[:, :, :: at.block, :: at.block]
        spread = elements.repeat_interleave(at.block, 2).repeat_interleave(at.block, 3)[:, :, : at.q_len, : at.k_len]
        return Drawn(BlockMask.from_bool(elements, block_level=True, q_len=at.q_len, k_len=at.k_len, **options), spread)
    return Drawn(BlockMask.from_bool(elements, count=draw(st.booleans()), **options), elements)


def draw_elements(at: Sizes, generator: torch.Generator, *, batch: int = 1, heads: int = 1) -> Tensor:
    """Random elements in which some blocks are full and some are empty."""
    shape = (batch, heads, at.q_len, at.k_len)
    elements = torch.rand(shape, generator=generator) < 0.9
    kinds = torch.randint(0, 3, (batch, heads, at.rows, at.columns), generator=generator)
    spread = kinds.repeat_interleave(at.block, 2).repeat_interleave(at.block, 3)[:, :, : at.q_len, : at.k_len]
    return (spread != NONE) & ((spread == FULL) | elements)


def kinds_of(elements: Tensor, at: Sizes) -> Tensor:
    """What each block is, by looking at its elements."""
    found = torch.zeros(*elements.shape[:2], at.rows, at.columns, dtype=torch.uint8)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in found.shape)).view(-1, 4).tolist():
        batch, head, row, column = place
        lines = slice(row * at.block, (row + 1) * at.block)
        part = elements[batch, head, lines, column * at.block : (column + 1) * at.block]
        found[batch, head, row, column] = FULL if part.all() else PARTIAL if part.any() else NONE
    return found


# what has a size that depends on numbers, or gives a number to the host: each makes the host wait for a GPU
_READING = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "item", "is_nonzero", "equal.default")


class _NothingIsRead(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        assert not any(name.lstrip("_").startswith(word.lstrip("_")) for word in _READING), f"{func} reads numbers"
        if name.startswith("index."):
            kinds = {index.dtype for index in args[1] if index is not None}
            assert not kinds & {torch.bool, torch.uint8}, f"{func} by booleans reads their number"
        if name.startswith("repeat_interleave.Tensor"):
            assert (kwargs or {}).get("output_size") is not None, "repeat_interleave reads the sum"
        return func(*args, **(kwargs or {}))


@contextmanager
def nothing_is_read() -> Iterator[None]:
    """Fails on operators that would make the host wait for a GPU."""
    with _NothingIsRead():  # type: ignore[no-untyped-call]
        yield


@contextmanager
def no_numbers() -> Iterator[None]:
    """Tensors have no numbers here: whatever asks for one (.tolist(), .item(), a boolean index) raises."""
    with FakeTensorMode():
        yield
