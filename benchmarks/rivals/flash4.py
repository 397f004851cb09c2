"""FlashAttention-4 (flash-attn-4, `flash_attn.cute`), where it is installed: its inner functions, without autograd.

Its tensors are [batch, length, heads, head dim]; strided views of ours are taken. Lists are given as full blocks for
the forward pass, and turned for the backward one. With `deterministic` dQ is added in one order, as ours always is.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from benchmarks.rivals.cases import HEAD_DIM, SINK, WINDOW, Answer, Case, Setting, lists_of
from benchmarks.rivals.runner import Gradients, Refused, Runner, checked, of_gradients
from torch import Tensor

HOPPER_BACKWARD_BLOCK = 128


def flash4_version() -> str | None:
    """e.g. '4.0.0b36'; None where it is not installed."""
    try:
        return version("flash-attn-4")
    except PackageNotFoundError:
        return None


def flash4(case: Case, setting: Setting, *, deterministic: bool = False) -> Runner | Refused:
    """Its forward or backward pass on the case's mask."""
    if case.block != HOPPER_BACKWARD_BLOCK and case.backward:
        return Refused("its backward pass on Hopper takes blocks of 128")
    if deterministic and not case.backward:
        return Refused("one order or any is a matter of the backward pass")
    if deterministic and case.mask in ("lists", "sink"):
        return Refused("its deterministic mode on Hopper takes no lists of blocks")
    from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd

    turned = [each.transpose(1, 2) for each in setting[:4]]
    masks = masks_for(case, setting)
    forward = partial(_flash_attn_fwd, *turned[:3], softmax_scale=HEAD_DIM**-0.5, return_lse=True, **masks.forward)
    if not case.backward:
        return Runner(forward, lambda: Answer(checked(forward()[0].transpose(1, 2)), None))
    out, lse = forward()[:2]
    backward = partial(
        _flash_attn_bwd, *turned[:3], out, turned[3], lse, softmax_scale=HEAD_DIM**-0.5,
        deterministic=deterministic, **masks.backward,
    )  # fmt: skip

    def gradients() -> Gradients:
        dq, dk, dv = backward()[:3]
        return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)

    return of_gradients(gradients, out.transpose(1, 2))


class Masks:
    """The arguments that say which elements are seen."""

    def __init__(self, forward: dict[str, Any], backward: dict[str, Any] | None = None) -> None:
        self.forward = forward
        self.backward = forward if backward is None else backward


def masks_for(case: Case, setting: Setting) -> Masks:
    """The case's mask as its functions take it."""
    if case.mask == "full":
        return Masks({"causal": False})
    if case.mask == "causal":
        return Masks({"causal": True})
    if case.mask == "window":
        return Masks({"causal": False, "window_size_left": WINDOW, "window_size_right": 0})
    if case.mask == "sink":
        return _with_sink(case, setting)
    chosen = setting.chosen
    assert chosen is not None
    none = torch.zeros_like(chosen)
    ways = [_listed(none, chosen, case.block), _listed(none.mT, chosen.mT, case.block)]
    return Masks({"block_sparse_tensors": ways[0]}, {"block_sparse_tensors": _ordered(*ways)})


def _with_sink(case: Case, setting: Setting) -> Masks:
    """Window and sink: lists of whole and partly seen blocks, and a function that decides inside of the latter."""
    from benchmarks.rivals.flash4_mask import near_or_first

    blocks = case.shape[2] // case.block
    kinds = setting.mask.kinds[0, 0]
    listed = torch.zeros(blocks, blocks, dtype=torch.bool, device=kinds.device)
    places = torch.arange(case.shape[2], device=kinds.device)
    behind = places[:, None] - places[None, :]
    seen = (behind >= 0) & ((behind <= WINDOW) | (places[None, :] < SINK))
    cut = seen.view(blocks, case.block, blocks, case.block)
    full, some = cut.all(3).all(1), cut.any(3).any(1)
    listed |= some & ~full
    part, whole = listed[None, None], full[None, None]
    ways = [_listed(part, whole, case.block), _listed(part.mT, whole.mT, case.block)]
    common = {"mask_mod": near_or_first}
    return Masks({**common, "block_sparse_tensors": ways[0]}, {**common, "block_sparse_tensors": _ordered(*ways)})


def _listed(part: Tensor, whole: Tensor, block: int) -> Any:
    """Counts and ascending indices of partly and wholly seen blocks, row by row."""
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch

    return BlockSparseTensorsTorch(*lists_of(part), *lists_of(whole), block_size=(block, block))


def _ordered(forward: Any, backward: Any) -> Any:
    """The turned lists with the places in the order of adding, which its deterministic mode asks for."""
    from flash_attn.cute.block_sparsity import compute_dq_write_order

    part, whole = compute_dq_write_order(
        forward.mask_block_cnt, forward.mask_block_idx, forward.full_block_cnt, forward.full_block_idx,
        backward.mask_block_cnt, backward.mask_block_idx, backward.full_block_cnt, backward.full_block_idx,
    )  # fmt: skip
    return backward._replace(dq_write_order=part, dq_write_order_full=whole, spt=False)
