"""What transformers says about a model's mask, as what our attention takes: nothing, a BlockMask, or its own tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from firstlight.kernels.block_attention.construct import grid_of
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.seen import FULL, UPPER_LEFT, shape_of
from firstlight.kernels.models.recognised import MaskFunction, Place, block_mask, padded


def mask_for(
    batch_size: int, q_length: int, kv_length: int, q_offset: int | Tensor = 0, kv_offset: int = 0, *,
    mask_function: MaskFunction, attention_mask: Tensor | BlockMask | None = None, device: torch.device | str = "cpu",
    allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False, block: int = 128, **rest: Any,
) -> Tensor | BlockMask | None:  # fmt: skip
    """The mask of one forward pass, called by transformers with its own arguments.

    A BlockMask that the caller gave in place of the attention mask is taken as it is. Of one query, and in compiled
    code, the mask is transformers' tensor, as for its `sdpa`: there is nothing to leave out that a list would pay for,
    and blocks cannot be counted. None: causal or full, as the layer says.
    """
    if isinstance(attention_mask, BlockMask):
        return attention_mask
    if q_length == 1 or is_compiling():
        from transformers.masking_utils import sdpa_mask

        made: Tensor | None = sdpa_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
            mask_function=mask_function, attention_mask=attention_mask, device=device,
            allow_is_causal_skip=allow_is_causal_skip, allow_is_bidirectional_skip=allow_is_bidirectional_skip, **rest,
        )  # fmt: skip
        return made
    grid = grid_of(q_length, kv_length, block)
    place = Place(grid, batch_size, int(q_offset), kv_offset, torch.device(device))  # a static cache's: the host waits
    mask = block_mask(mask_function, place)
    padding = None if attention_mask is None else padded(attention_mask, place)
    if padding is not None:
        return mask & padding
    shape = shape_of(mask)
    if (allow_is_causal_skip and shape == UPPER_LEFT) or (allow_is_bidirectional_skip and shape == FULL):
        return None
    return mask
