"""Entering our attention into transformers' registries."""

from __future__ import annotations

import functools
import inspect

from firstlight.errors import UnsupportedInput
from firstlight.kernels.block_attention.mask_checks import require_mask_block
from firstlight.kernels.models.attention import attend
from firstlight.kernels.models.masks import mask_for


def register_attention(name: str = "firstlight", *, block: int = 128, backend: str = "auto") -> None:
    """Makes attn_implementation=`name` known to transformers, through its AttentionInterface; as often as you like.

    block: side of the masks' blocks, 64 or 128. backend: as for firstlight.kernels.attention.
    """
    require_mask_block(block)
    try:
        import transformers
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError as error:
        raise UnsupportedInput(
            f"transformers cannot be imported ({error}); 5.17 was tested. Install it: pip install transformers"
        ) from error
    if "q_offset" not in inspect.signature(sdpa_mask).parameters:
        raise UnsupportedInput(
            f"transformers {transformers.__version__} describes masks in another way; 5.17 was tested. "
            f"Install that: pip install transformers==5.17.0"
        )
    AttentionInterface.register(name, functools.partial(attend, backend=backend))
    AttentionMaskInterface.register(name, functools.partial(mask_for, block=block))
