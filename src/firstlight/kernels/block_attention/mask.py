"""Which keys each query may see, by blocks."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.bits import FULL, NONE, PARTIAL, canonical_kinds, count, ordinary
from firstlight.kernels.block_attention.mask_checks import require_mask_parts
from firstlight.kernels.lifetimes import held_of_caller

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask as FlexBlockMask

__all__ = ["FULL", "NONE", "PARTIAL", "SHAPE", "BlockMask", "mask_of", "plain"]
Device = torch.device | str | None
_FIXED = frozenset({"kinds", "which", "bits", "q_len", "k_len", "block"})
SHAPE = "shape"  # in derived: full, upper_left or lower_right of a mask that is exactly that; see seen.py


class BlockMask:
    """Which keys a query may see, by blocks: none, some (bits say which) or all of a block's elements.

    kinds: uint8 [batch or 1, heads or 1, query blocks, key blocks]: 0 none, 1 some, 2 all.
    which: int32, same shape: the row of `bits` of a block seen in part, any valid row elsewhere; None: there are none.
    bits: int32 [rows, block, block // 32]; bits.py says how they lie.
    most: no more blocks than this are kept, known without looking at the GPU; exact where it was made exactly.

    Make one with full, causal, window, sink, strided, document, packed, top_k, from_bool or from_flex; combine two
    with & and |.
    Changing the tensors in place is noticed: what is derived from them (lists, counts) is made again.
    """

    def __init__(
        self,
        kinds: Tensor,
        which: Tensor | None = None,
        bits: Tensor | None = None,
        *,
        q_len: int,
        k_len: int,
        block: int = 128,
        most: int | None = None,
    ) -> None:
        require_mask_parts(kinds, which, bits, lengths=(q_len, k_len), block=block)
        self.kinds = kinds
        self.which = which
        self.bits = bits
        self.q_len = q_len
        self.k_len = k_len
        self.block = block
        self._most = kinds.numel() if most is None else min(most, kinds.numel())
        self._derived: dict[Hashable, Any] = {}
        self.held = held_of_caller(*self.parts)
        # dynamo traces neither this question nor version counters; what it makes is taken as changed when it comes out
        self._tracked = is_dynamo_compiling() or not any(part.is_inference() for part in self.parts)
        self._changes = -1
        if not is_dynamo_compiling():
            self._changes = self._count_changes() if self._tracked else 0
            _LIVING[_key(kinds, which, bits, (q_len, k_len, block))] = self

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FIXED and hasattr(self, name):  # lists and counts of what stood there would go on being used
            raise AttributeError(f"{name} of a BlockMask cannot be set; change it in place, or make another BlockMask.")
        super().__setattr__(name, value)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """kinds, and which and bits where there are any."""
        if self.which is None or self.bits is None:
            return (self.kinds,)
        return (self.kinds, self.which, self.bits)

    def _count_changes(self) -> int:
        # versions only grow, so their sum changes when one of them does; written out, as every call comes here
        if self.which is None or self.bits is None:
            return self.kinds._version
        return self.kinds._version + self.which._version + self.bits._version

    def _look_for_changes(self) -> None:
        # dynamo cannot branch on a version counter: a compiled region uses the mask as it was when traced
        if is_dynamo_compiling() or not self._tracked:
            return
        changes = self._count_changes()
        if changes != self._changes:
            self._most = self.kinds.numel()  # blocks may have been added
            self._derived = {}
            self._changes = changes  # last: another thread that sees it finds nothing old

    @property
    def most(self) -> int:
        """An upper bound of the number of kept blocks, e.g. 528 for a causal mask of 32 x 32; the host knows it."""
        self._look_for_changes()
        return self._most

    @property
    def derived(self) -> dict[Hashable, Any]:
        """What was computed from the mask and is kept with it, by name; emptied when the mask is changed in place."""
        self._look_for_changes()
        return self._derived

    @property
    def counts_changes(self) -> bool:
        """Whether a change in place is noticed; not of tensors made in inference mode."""
        return self._tracked

    @property
    def device(self) -> torch.device:
        return self.kinds.device

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch or 1, heads or 1, q_len, k_len)."""
        return self.kinds.shape[0], self.kinds.shape[1], self.q_len, self.k_len

    @property
    def blocks(self) -> int:
        """Number of kept blocks, e.g. 528; the host waits the first time."""
        return self._counts()[0]

    @property
    def density(self) -> float:
        """Share of the blocks that is kept, e.g. 0.516 for a causal mask of 32 x 32; the host waits the first time."""
        return self._counts()[0] / self.kinds.numel()

    @property
    def elements(self) -> int:
        """Number of (query, key) pairs that are kept, e.g. 8390656 for causal 4096; the host waits the first time."""
        return self._counts()[1]

    @property
    def ndim(self) -> int:
        """4, as of the tensor of booleans that it stands for: who asks whether a mask is ready is told yes."""
        return 4

    def _counts(self) -> tuple[int, int]:
        kept: tuple[int, int] | None = self.derived.get("counts")
        if kept is None:
            kept = count(self.kinds, self.which, self.bits, lengths=(self.q_len, self.k_len), block=self.block)
            if self._tracked:
                self.derived["counts"] = kept
        return kept

    def flops(self, heads: int, head_dim: int, *, batch: int | None = None) -> int:
        """Useful operations of a forward pass: 4 * head_dim for each pair that is kept, e.g. 4.3e9 for causal 4096.

        batch: how many there are where one mask serves all; the mask's own number where None.
        """
        size = self.kinds.shape[0] if batch is None else batch
        for name, have, want in (("batch", self.kinds.shape[0], size), ("heads", self.kinds.shape[1], heads)):
            if have not in (1, want):
                raise UnsupportedInput(
                    f"{name} is {want} and the mask is for {name} {have}; {have} is accepted. Pass {name}={have}."
                )
        copies = size * heads // (self.kinds.shape[0] * self.kinds.shape[1])
        return 4 * head_dim * self.elements * copies

    def to(self, device: torch.device | str) -> BlockMask:
        """The same mask on another device; itself when it is there already."""
        with ordinary():
            kinds = self.kinds.to(device)
            which = None if self.which is None else self.which.to(device)
            bits = None if self.bits is None else self.bits.to(device)
        if kinds is self.kinds and which is self.which and bits is self.bits:
            return self
        return self._with(kinds, which, bits)

    def _with(self, kinds: Tensor, which: Tensor | None, bits: Tensor | None) -> BlockMask:
        lengths = {"q_len": self.q_len, "k_len": self.k_len, "block": self.block}
        return plain(BlockMask(kinds, which, bits, **lengths, most=self.most), self.derived.get(SHAPE))

    def canonical(self) -> BlockMask:
        """The same mask where no block is called partly seen that is seen wholly or not at all.

        Masks from the constructors, & and | are in that form; one put together from tensors may not be. No host wait.
        """
        if self.which is None or self.bits is None:
            return self
        with ordinary():
            kinds = canonical_kinds(self.kinds, self.which, self.bits, (self.q_len, self.k_len))
        return self._with(kinds, self.which, self.bits)

    def equals(self, other: BlockMask) -> bool:
        """Whether both keep the same pairs of queries and keys and are of one shape and block; the host waits."""
        from firstlight.kernels.block_attention.combine import equal

        return equal(self, other)

    def to_bool(self) -> Tensor:
        """bool [batch or 1, heads or 1, q_len, k_len]: True where the query may see the key."""
        from firstlight.kernels.block_attention.construct import to_bool

        return to_bool(self)

    def to_flex(self) -> FlexBlockMask:
        """The mask for torch.nn.attention.flex_attention: same lengths, BLOCK_SIZE (block, block)."""
        from firstlight.kernels.block_attention.flex import to_flex

        return to_flex(self)

    def __and__(self, other: BlockMask) -> BlockMask:
        """What both keep; batch and heads of 1 stand for all. No host wait while there are few rows of bits."""
        from firstlight.kernels.block_attention.combine import both

        return both(self, other)

    def __or__(self, other: BlockMask) -> BlockMask:
        """What one of them keeps; batch and heads of 1 stand for all. No host wait while there are few rows of bits."""
        from firstlight.kernels.block_attention.combine import either

        return either(self, other)

    @staticmethod
    def full(q_len: int, k_len: int | None = None, *, block: int = 128, device: Device = None) -> BlockMask:
        """Every query sees every key; k_len is q_len where None."""
        from firstlight.kernels.block_attention.construct import full

        return full(q_len, k_len, block=block, device=device)

    @staticmethod
    def causal(
        q_len: int, k_len: int | None = None, *, alignment: str = "upper_left", block: int = 128, device: Device = None
    ) -> BlockMask:  # fmt: skip
        """A query sees the keys up to its own place.

        upper_left: query 0 is beside key 0 (torch's is_causal). lower_right: the last query is beside the last key,
        as when the keys of earlier tokens are kept; with more queries than keys the first queries see nothing.
        """
        from firstlight.kernels.block_attention.construct import window

        return window(q_len, k_len, left=None, right=0, alignment=alignment, block=block, device=device)

    @staticmethod
    def window(
        q_len: int,
        k_len: int | None = None,
        *,
        left: int | None,
        right: int | None = 0,
        alignment: str = "upper_left",
        block: int = 128,
        device: Device = None,
    ) -> BlockMask:
        """A query sees `left` keys before its own place, that place, and `right` keys after it; None: no limit."""
        from firstlight.kernels.block_attention.construct import window

        return window(q_len, k_len, left=left, right=right, alignment=alignment, block=block, device=device)

    @staticmethod
    def sink(q_len: int, k_len: int | None = None, *, keys: int, block: int = 128, device: Device = None) -> BlockMask:
        """Every query sees the first `keys` keys and no others, e.g. keys=64; more than k_len are k_len."""
        from firstlight.kernels.block_attention.construct import sink

        return sink(q_len, k_len, keys=keys, block=block, device=device)

    @staticmethod
    def strided(
        q_len: int, k_len: int | None = None, *, stride: int, phase: int = 0, block: int = 128, device: Device = None
    ) -> BlockMask:  # fmt: skip
        """By whole blocks: query block i sees key block j where (i - j) % stride == phase.

        stride=4 keeps the block on the diagonal and each fourth before and after it; combine with causal for before.
        """
        from firstlight.kernels.block_attention.construct import strided

        return strided(q_len, k_len, stride=stride, phase=phase, block=block, device=device)

    @staticmethod
    def document(ids_q: Tensor, ids_k: Tensor | None = None, *, block: int = 128) -> BlockMask:
        """A query sees the keys of its own document: those with an equal id; in any order, ids_k is ids_q where None.

        ids: whole numbers [length] or [batch, length], on the device where the mask will be. The host waits once, for
        the number of blocks that hold parts of several documents.
        """
        from firstlight.kernels.block_attention.measured import document

        return document(ids_q, ids_k, block=block)

    @staticmethod
    def packed(
        offsets_q: Tensor, offsets_k: Tensor | None = None, *, causal: bool | str = False, left: int | None = None,
        masks: Sequence[BlockMask | None] | None = None, block: int = 128,
    ) -> BlockMask:  # fmt: skip
        """Sequences one behind the other, without padding: a query sees the keys of its own; see ragged_attention.

        offsets: where each begins and the last one ends (cu_seqlens), e.g. tensor([0, 300, 1000]). causal, left: as of
        window, within each sequence. masks: one for each sequence, None for all of it. The host waits twice.
        """
        from firstlight.kernels.block_attention.packed import packed

        return packed(offsets_q, offsets_k, causal=causal, left=left, masks=masks, block=block)

    @staticmethod
    def top_k(scores: Tensor, k: int, *, q_len: int, k_len: int, block: int = 128) -> BlockMask:
        """Each query block sees the k key blocks with the highest scores; no host wait.

        scores: [batch or 1, heads or 1, query blocks, key blocks]. A block whose score is NaN or -inf is never chosen,
        so a row may keep fewer than k; of equal scores the first key blocks are chosen.
        """
        from firstlight.kernels.block_attention.measured import top_k

        return top_k(scores, k, q_len=q_len, k_len=k_len, block=block)

    @staticmethod
    def from_bool(
        allowed: Tensor,
        *,
        block_level: bool = False,
        q_len: int | None = None,
        k_len: int | None = None,
        block: int = 128,
        count: bool = True,
    ) -> BlockMask:
        """The mask that keeps where `allowed` is True: [q_len, k_len] or [batch or 1, heads or 1, q_len, k_len].

        block_level: it has an entry for each block instead; then q_len and k_len are needed.
        count: the host waits once for the number of blocks, and the mask is as small as it can be. count=False never
        waits; lists and bits then have room for all blocks.
        """
        from firstlight.kernels.block_attention.measured import from_blocks, from_elements

        if block_level:
            return from_blocks(allowed, q_len=q_len, k_len=k_len, block=block, count=count)
        return from_elements(allowed, q_len=q_len, k_len=k_len, block=block, count=count)

    @staticmethod
    def from_flex(block_mask: FlexBlockMask) -> BlockMask:
        """The mask that a FlexAttention BlockMask of block size 64 or 128 stands for; the host waits once.

        Its full blocks are taken over; of the others every element is asked of its mask_mod, with the batch and head
        numbers that the block mask has: 0 alone where it was made with B=None or H=None.
        """
        from firstlight.kernels.block_attention.flex import from_flex

        return from_flex(block_mask)

    def __reduce__(self) -> tuple[Any, ...]:
        sizes = (self.q_len, self.k_len, self.block, self.most)
        return _rebuild, ((self.kinds, self.which, self.bits), sizes, self.derived.get(SHAPE))

    def __repr__(self) -> str:
        batch, heads = self.kinds.shape[:2]
        whom = " and ".join(
            (f"batch {batch}" if batch > 1 else "any batch", f"{heads} heads" if heads > 1 else "any head")
        )
        counted = self.derived.get("counts")
        kept = f"at most {self.most}" if counted is None else f"{counted[0]}"
        return (
            f"BlockMask({self.q_len} queries x {self.k_len} keys, for {whom}; {kept} of {self.kinds.numel()} blocks of "
            f"{self.block} x {self.block} kept; device={str(self.device)!r})"
        )


Key = tuple[int, int, int, tuple[int, int, int]]
_LIVING: weakref.WeakValueDictionary[Key, BlockMask] = weakref.WeakValueDictionary()


def _key(kinds: Tensor, which: Tensor | None, bits: Tensor | None, sizes: tuple[int, int, int]) -> Key:
    # a mask holds its tensors, so while it lives no other tensor has their ids
    return id(kinds), id(which), id(bits), sizes


def plain(mask: BlockMask, shape: str | None) -> BlockMask:
    """The mask, with a note that it is exactly full, upper_left or lower_right; gone when the mask is changed."""
    if shape is not None and mask.counts_changes:
        mask.derived[SHAPE] = shape
    return mask


def _rebuild(
    parts: tuple[Tensor, Tensor | None, Tensor | None], sizes: tuple[int, int, int, int], shape: str | None
) -> BlockMask:
    q_len, k_len, block, most = sizes
    return plain(BlockMask(*parts, q_len=q_len, k_len=k_len, block=block, most=most), shape)


def mask_of(
    kinds: Tensor, which: Tensor | None, bits: Tensor | None, q_len: int, k_len: int, block: int, most: int
) -> BlockMask:
    """The living BlockMask over these very tensors, with all that it has derived already; else a new one.

    For code that only has the tensors, such as a registered operator. The new one is not kept: compiled code makes
    masks in tensors that it uses again for the next one, and no version counts what it writes.
    """
    known = _LIVING.get(_key(kinds, which, bits, (q_len, k_len, block)))
    if known is not None:
        return known
    parts = [None if part is None else part.detach() for part in (kinds, which, bits)]
    return BlockMask(*parts, q_len=q_len, k_len=k_len, block=block, most=most)  # type: ignore[arg-type]
