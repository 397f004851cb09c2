"""The mask functions of transformers as block masks, without asking for every element where that is not needed.

transformers hands over a function of (batch, head, query, key), put together from a few of its own. A part is
recognised where it runs the very code that transformers' public factory makes, and where that code, asked on a small
grid, sees what our form of it sees: so a release that changes what a function means is noticed, and asked element by
element, as functions of the caller's are. Slow then, and right.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from firstlight.kernels.block_attention.construct import Grid, banded, full, window
from firstlight.kernels.block_attention.flex import from_mask_mod
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.measured import document, from_keys
from firstlight.kernels.lifetimes import Held, held_after
from firstlight.kernels.torch_private import is_capturing

MaskFunction = Callable[[Any, Any, Any, Any], Any]
KEPT_MASKS = 8  # two kinds of layers at some lengths; each with what kernels derived of it


class Place(NamedTuple):
    """Where a mask lies: query i stands at i + q_offset, key j at j + k_offset; for `batch` sequences."""

    grid: Grid
    batch: int
    q_offset: int
    k_offset: int
    device: torch.device


class Band(NamedTuple):
    """Keys with lowest <= key - query <= highest by their places in the text; None: no limit."""

    lowest: int | None
    highest: int | None


Part = Band | BlockMask
Making = Callable[[Mapping[str, Any], Place], Part]


class _Kept(NamedTuple):
    mask: BlockMask
    held: Held | None


def block_mask(function: MaskFunction, place: Place) -> BlockMask:
    """What a mask function of transformers sees, as blocks."""
    return _blocks(_part(function, place), place)


def _part(function: MaskFunction, place: Place) -> Part:
    code = getattr(function, "__code__", None)
    if code is None:
        return _asked(function, place)
    joining = _joining()
    if code is joining.both or code is joining.either:
        parts = [_part(inner, place) for inner in _captured(function)["mask_functions"]]
        return _all_of(parts, place) if code is joining.both else _any_of(parts, place)
    make = _makers().get(code)
    return _asked(function, place) if make is None else make(_captured(function), place)


def _all_of(parts: list[Part], place: Place) -> Part:
    bands = [part for part in parts if isinstance(part, Band)]
    masks = [part for part in parts if isinstance(part, BlockMask)]
    lows = [band.lowest for band in bands if band.lowest is not None]
    highs = [band.highest for band in bands if band.highest is not None]
    band = Band(max(lows, default=None), min(highs, default=None))
    if band != Band(None, None):
        masks.append(_blocks(band, place))
    return functools.reduce(BlockMask.__and__, masks) if masks else band


def _any_of(parts: list[Part], place: Place) -> Part:
    return functools.reduce(BlockMask.__or__, [_blocks(part, place) for part in parts])


def _blocks(part: Part, place: Place) -> BlockMask:
    if isinstance(part, BlockMask):
        return part
    shift = place.q_offset - place.k_offset
    lowest = None if part.lowest is None else part.lowest + shift
    highest = None if part.highest is None else part.highest + shift
    # a limit that no pair reaches is none: a window longer than the text is causal, and torch knows that by name
    lowest = None if lowest is not None and lowest <= 1 - place.grid.q_len else lowest
    highest = None if highest is not None and highest >= place.grid.k_len - 1 else highest
    if place.device.type == "cuda" and is_capturing():
        return _band(lowest, highest, place.grid, place.device)  # belongs to the graph that is captured
    kept = _kept_band(lowest, highest, place.grid, place.device)
    if kept.held is not None:
        kept.held.use()
    return kept.mask


@functools.lru_cache(maxsize=KEPT_MASKS)
def _kept_band(lowest: int | None, highest: int | None, grid: Grid, device: torch.device) -> _Kept:
    with torch.inference_mode(mode=False):
        made = _band(lowest, highest, grid, device)
    return _Kept(made, held_after(*made.parts))


def _band(lowest: int | None, highest: int | None, grid: Grid, device: torch.device) -> BlockMask:
    q_len, k_len, block = grid.q_len, grid.k_len, grid.block
    if lowest is None and highest is None:
        return full(q_len, k_len, block=block, device=device)
    if lowest is None and highest in (0, k_len - q_len):  # made by the name that backends know it by
        alignment = "upper_left" if highest == 0 else "lower_right"
        return window(q_len, k_len, left=None, alignment=alignment, block=block, device=device)
    return banded(grid, lowest, highest, device=device)


def padded(seen: Tensor, place: Place) -> BlockMask | None:
    """The keys that are no padding, of [batch, places] booleans; None where all of them are seen."""
    first, keys = place.k_offset, place.grid.k_len
    here = seen[:, first : first + keys]
    here = torch.nn.functional.pad(here, (0, keys - here.shape[1]))  # places of a cache that nothing was written to
    return from_keys(here, q_len=place.grid.q_len, block=place.grid.block)


def _asked(function: MaskFunction, place: Place) -> BlockMask:
    def moved(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        seen: Tensor = function(batch, head, query + place.q_offset, key + place.k_offset)
        return seen

    return from_mask_mod(moved, batch=place.batch, grid=place.grid, device=place.device)


# ---- the functions that are recognised, and what each means


def _documents(ids: Tensor, place: Place) -> BlockMask:
    """Same number at the places of query and key; ids [batch, places]."""
    queries = ids[:, place.q_offset : place.q_offset + place.grid.q_len]
    keys = ids[:, place.k_offset : place.k_offset + place.grid.k_len]
    return document(queries, keys, block=place.grid.block)


def _chunks(captured: Mapping[str, Any], place: Place) -> BlockMask:
    size, before = captured["chunk_size"], captured["left_padding"]

    def numbers(first: int, count: int) -> Tensor:
        places = torch.arange(first, first + count, device=place.device)
        return torch.div(places - before[:, None].to(place.device), size, rounding_mode="floor")

    queries, keys = numbers(place.q_offset, place.grid.q_len), numbers(place.k_offset, place.grid.k_len)
    return document(queries, keys, block=place.grid.block)


def _packed(captured: Mapping[str, Any], place: Place) -> Part:
    ids = captured["packed_sequence_mask"]
    if ids.shape[1] < max(place.q_offset + place.grid.q_len, place.k_offset + place.grid.k_len):
        return _asked(lambda b, h, q, k: ids[b, q] == ids[b, k], place)  # complains as transformers' own would
    return _documents(ids.to(place.device), place)


class _Joining(NamedTuple):
    both: CodeType | None
    either: CodeType | None


@functools.lru_cache(maxsize=1)
def _joining() -> _Joining:
    """The code of transformers' `and` and `or` of mask functions; None of one that does not do that on a small grid."""
    masking = _masking()
    causal, window_of = masking.causal_mask_function, masking.sliding_window_overlay(3)
    both, either = masking.and_masks(causal, window_of), masking.or_masks(causal, window_of)
    place = _small_place()
    parts = [_asked(one, place).to_bool() for one in (causal, window_of)]
    found: list[CodeType | None] = []
    for function, wanted in ((both, parts[0] & parts[1]), (either, parts[0] | parts[1])):
        named = "mask_functions" in _captured(function)
        same = named and bool((_asked(function, place).to_bool() == wanted).all())
        found.append(function.__code__ if same else None)
    return _Joining(*found)


@functools.lru_cache(maxsize=1)
def _makers() -> Mapping[CodeType, Making]:
    """What is recognised in the transformers at hand, by code; without what means something else there."""
    masking, place = _masking(), _small_place()
    ids = torch.tensor([[0, 0, 1, 1, 1, 2, 2, 2, 2]], device=place.device)
    before = torch.tensor([2], device=place.device)
    offered: tuple[tuple[MaskFunction, Making], ...] = (
        (masking.causal_mask_function, lambda captured, place: Band(None, 0)),
        (masking.bidirectional_mask_function, lambda captured, place: Band(None, None)),
        (masking.sliding_window_overlay(3), lambda captured, place: Band(1 - captured["sliding_window"], None)),
        (
            masking.sliding_window_bidirectional_overlay(3),
            lambda captured, place: Band(-captured["sliding_window"], captured["sliding_window"]),
        ),
        (masking.chunked_overlay(3, before), _chunks),
        (masking.packed_sequence_mask_function(ids), _packed),
    )
    return {function.__code__: make for function, make in offered if _means_the_same(function, make, place)}


def _means_the_same(function: MaskFunction, make: Making, place: Place) -> bool:
    try:
        ours = _blocks(make(_captured(function), place), place)
    except KeyError:  # it holds its numbers under other names
        return False
    return bool((ours.to_bool() == _asked(function, place).to_bool()).all())


def _small_place() -> Place:
    return Place(Grid(5, 7, 64), 1, 4, 2, torch.device("cpu"))


def _captured(function: Any) -> Mapping[str, Any]:
    """What a function holds of those around it, e.g. {'sliding_window': 4096}."""
    return inspect.getclosurevars(function).nonlocals


def _masking() -> ModuleType:
    from transformers import masking_utils

    found: ModuleType = masking_utils
    return found
