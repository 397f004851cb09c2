"""The lists of a mask by mask_lists.cu, in one launch and one piece of memory: a new mask is to cost little.

Triton's way to the same lists (block_attention/triton/lists.py) takes three launches and five pieces.
"""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.kernels.backends import SM90, why_not_built
from firstlight.kernels.block_attention.lists import Lists, ListsInRoom, Places
from firstlight.kernels.prepared import empty_on
from firstlight.kernels.sm90.arguments import MaskListsFields, mask_lists_bytes
from firstlight.kernels.sm90.driver import start_once
from firstlight.kernels.sm90.loaded import loaded
from firstlight.kernels.sm90.variants import LISTS_CLUSTER, MASK_LISTS
from firstlight.kernels.torch_private import current_device, raw_stream

THREADS = 1024
MOST_BLOCKS = 1 << 20  # of a mask that a few multiprocessors go through; all of them do it sooner from there on
ALIGNED = 32  # integers: each list starts at a multiple of 128 bytes


def can_list(kinds: Tensor) -> bool:
    """Whether mask_lists.cu makes the lists of a mask with these kinds on a Hopper GPU: the current one."""
    return 0 < kinds.numel() <= MOST_BLOCKS and kinds.get_device() == current_device() and not why_not_built(SM90)


def filled(kinds: Tensor, which: Tensor | None, most: int, *, turned: bool) -> ListsInRoom:
    """The lists by query block, or turned by key block, on the current device and stream; in one piece of memory."""
    kinds = kinds.contiguous()
    which = None if which is None else which.contiguous()
    device, (heads, of_head) = kinds.get_device(), shape_of(kinds, turned=turned)
    sizes = room_sizes(heads * of_head, most)
    room = empty_on(kinds.device)((sum(sizes),), (1,), torch.int32)
    fields = fields_of(kinds, which, room.data_ptr(), most, turned=turned)
    kernel, given = loaded(MASK_LISTS, device=device), mask_lists_bytes(fields)
    start_once(kernel, given, raw_stream(device), grid=(LISTS_CLUSTER, 1, 1), threads=THREADS)

    def apart(room: Tensor) -> Lists:
        starts, _, columns, _, masks, _, order, _, _ = room.split_with_sizes(sizes)
        return Lists(starts, columns, masks, order.view(heads, of_head))

    return ListsInRoom(room, Places(fields.starts, fields.columns, fields.masks, fields.order), apart)


def shape_of(kinds: Tensor, *, turned: bool) -> tuple[int, int]:
    """Heads with lists of their own, and lists of each."""
    batch, heads, q_blocks, k_blocks = kinds.shape
    return batch * heads, k_blocks if turned else q_blocks


def room_sizes(lists: int, most: int) -> tuple[int, ...]:
    """Integers of starts, columns, masks, order and counts, each but the last with what is left free behind it."""
    entries = max(most, 1)
    return (
        lists + 1, -(lists + 1) % ALIGNED, entries, -entries % ALIGNED, entries, -entries % ALIGNED, lists,
        -lists % ALIGNED, lists,
    )  # fmt: skip


def fields_of(kinds: Tensor, which: Tensor | None, room: int, most: int, *, turned: bool) -> MaskListsFields:
    """The arguments for lists in a piece of memory of room_sizes."""
    heads, of_head = shape_of(kinds, turned=turned)
    lists = heads * of_head
    sizes = room_sizes(lists, most)
    starts, columns, masks, order, counts = (room + 4 * sum(sizes[:place]) for place in (0, 2, 4, 6, 8))
    blocks = kinds.shape[2 if turned else 3]
    return MaskListsFields(
        kinds.data_ptr(), 0 if which is None else which.data_ptr(), starts, columns, masks, order, counts, lists,
        of_head, blocks, int(turned), most, 0,
    )  # fmt: skip
