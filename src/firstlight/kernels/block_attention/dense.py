"""Attention by torch's scaled_dot_product_attention: what wins where most keys are seen.

Full and causal attention are told to torch as such (lower-right causal of other lengths: on a GPU, where torch's flash
kernel knows it); any other mask as a tensor of 0 and -inf with a place for every query and key in q's dtype, made once
for a mask and kept with it (2 bytes * queries * keys for each list in fp16; the host waits once). Unlike the other
backends this one reads the keys that no query sees: a NaN there reaches the output. Queries without keys give 0 and
-inf here too: torch's kernels disagree about those, so such a row is given its first key and its result replaced.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels.block_attention.checks import ready
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.block_attention.seen import FULL, LISTED, LOWER_RIGHT, UPPER_LEFT, Attended, shape_of
from firstlight.kernels.lifetimes import Held, held_after, use
from firstlight.kernels.memo import being_captured, keepable
from firstlight.kernels.torch_private import efficient_attention, flash_attention, flash_attention_on_processor

FLASH_DTYPES = (torch.float16, torch.bfloat16)
FLASH_HEAD_DIM = 256  # the largest that torch's flash kernels take
OLDEST_CAPABILITY = (8, 0)
KEPT_BYTES = 1 << 26
PADDED = 16  # elements: torch's memory-efficient kernel copies a mask whose rows are not so aligned
LSE_ELEMENTS = 1 << 26  # logits at a time where the log of the sum is computed beside the output: 256 MiB in fp32


class Bias(NamedTuple):
    """A mask as torch takes it: values [.., queries, keys] of 0 and -inf, and the queries that see no key."""

    values: Tensor
    empty: Tensor | None  # [.., queries]; None: there are none
    held: Held | None


def forward(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, *, scale: float, out: Tensor, lse: Tensor) -> None:
    """out and lse of softmax(scale * q k') v under the mask, fully overwritten."""
    seen = Attended(shape_of(mask), mask.q_len, mask.k_len, q.device, mask)
    made, logs = attended_with_lse(q, k, v, seen, scale)
    out.copy_(made)
    lse.copy_(logs)


def attended(q: Tensor, k: Tensor, v: Tensor, seen: Attended, scale: float) -> Tensor:
    """The output alone, with torch's own gradients."""
    q, scale = _scaled_up(q, scale)
    if seen.shape == LOWER_RIGHT and q.is_cuda and flash_takes(q, seen):
        return _flash(ready(q, "q"), ready(k, "k"), ready(v, "v"), seen, scale)[0]
    bias = bias_of(seen, q.dtype)
    values = None if bias is None else bias.values
    grouped = q.shape[1] != k.shape[1]
    if grouped and q.is_cuda and (bias is not None or q.dtype not in FLASH_DTYPES):
        # of torch's kernels on a GPU only flash takes fewer key heads; without this the logits would be stored in whole
        k, v, grouped = _for_each_query_head(q, k), _for_each_query_head(q, v), False
    out = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=values, is_causal=seen.shape == UPPER_LEFT, scale=scale, enable_gqa=grouped
    )
    if bias is not None and bias.empty is not None:
        out = out.masked_fill(bias.empty[..., None], 0.0)
    return out


@torch.no_grad()
def attended_with_lse(q: Tensor, k: Tensor, v: Tensor, seen: Attended, scale: float) -> tuple[Tensor, Tensor]:
    """Output and log of the sum of exponentials; without gradients."""
    q, scale = _scaled_up(q, scale)
    q, k, v = ready(q, "q"), ready(k, "k"), ready(v, "v")  # the kernels below take strides without looking at them
    if q.is_cuda and flash_takes(q, seen):
        return _flash(q, k, v, seen, scale)
    bias = bias_of(seen, q.dtype)
    if not q.is_cuda:
        out, lse = _on_processor(q, k, v, seen, bias, scale)
    elif _efficient_takes(q):
        out, lse = _efficient(q, k, v, seen, bias, scale)
    else:
        return attended(q, k, v, seen, scale), _lse(q, k, seen, scale)
    if bias is not None and bias.empty is not None:
        out = out.masked_fill_(bias.empty[..., None], 0.0)
        lse = lse.masked_fill(bias.empty, -torch.inf)
    return out, lse


def _scaled_up(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """The same logits with a scale above 0: torch's kernels hide keys before they scale, and -inf * -1 is not -inf."""
    if scale > 0.0:
        return q, scale
    return (-q, -scale) if scale < 0.0 else (q * 0.0, 1.0)


def flash_takes(q: Tensor, seen: Attended) -> bool:
    """Whether torch's flash kernel on a GPU can be called as it is."""
    known = flash_knows(seen.shape, (seen.q_len, seen.k_len), q.dtype, q.shape[3])
    able = known and torch.cuda.get_device_capability(q.device) >= OLDEST_CAPABILITY
    return able and torch.backends.cuda.is_flash_attention_available()


def flash_knows(shape: str, lengths: tuple[int, int], dtype: torch.dtype, head_dim: int) -> bool:
    """Whether torch's flash kernel takes these: its causal is aligned to the lower right, and knows no empty rows."""
    aligned = shape == LOWER_RIGHT and lengths[0] <= lengths[1]
    plain = aligned or shape == FULL or (shape == UPPER_LEFT and lengths[0] == lengths[1])
    return plain and dtype in FLASH_DTYPES and head_dim <= FLASH_HEAD_DIM and head_dim % 8 == 0


def _flash(q: Tensor, k: Tensor, v: Tensor, seen: Attended, scale: float) -> tuple[Tensor, Tensor]:
    return flash_attention(q, k, v, is_causal=seen.shape != FULL, scale=scale)


def _on_processor(
    q: Tensor, k: Tensor, v: Tensor, seen: Attended, bias: Bias | None, scale: float
) -> tuple[Tensor, Tensor]:
    keys, values = _for_each_query_head(q, k), _for_each_query_head(q, v)
    mask = None if bias is None else bias.values.expand(q.shape[0], q.shape[1], -1, -1)
    out, lse = flash_attention_on_processor(q, keys, values, mask, is_causal=seen.shape == UPPER_LEFT, scale=scale)
    return out, lse.contiguous()


def _efficient(
    q: Tensor, k: Tensor, v: Tensor, seen: Attended, bias: Bias | None, scale: float
) -> tuple[Tensor, Tensor]:
    keys, values = _for_each_query_head(q, k), _for_each_query_head(q, v)
    mask = None if bias is None else bias.values.expand(q.shape[0], q.shape[1], -1, -1)
    out, lse = efficient_attention(q, keys, values, mask, is_causal=seen.shape == UPPER_LEFT, scale=scale)
    return out, lse[..., : q.shape[2]].contiguous()  # the kernel rounds the number of rows up to 32


def _efficient_takes(q: Tensor) -> bool:
    return q.dtype in (*FLASH_DTYPES, torch.float32) and q.shape[3] % 8 == 0


def _for_each_query_head(q: Tensor, k: Tensor) -> Tensor:
    group = q.shape[1] // k.shape[1]
    return k if group == 1 else k.repeat_interleave(group, 1)


def _lse(q: Tensor, k: Tensor, seen: Attended, scale: float) -> Tensor:
    """log sum exp(scale * q k') over the keys seen, some queries at a time."""
    precision = torch.float64 if q.dtype == torch.float64 else torch.float32
    keys = _for_each_query_head(q, k).to(precision)
    allowed = None if seen.shape == FULL else seen.mask.to_bool()
    lse = q.new_empty(q.shape[:3], dtype=precision)
    step = max(1, LSE_ELEMENTS // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
    with torch.autocast(q.device.type, enabled=False):
        for begin in range(0, q.shape[2], step):
            here = slice(begin, begin + step)
            scores = scale * (q[:, :, here].to(precision) @ keys.mT)
            if allowed is not None:
                scores.masked_fill_(~allowed[:, :, here], -torch.inf)
            lse[:, :, here] = scores.logsumexp(-1)
    return lse


def bias_of(seen: Attended, dtype: torch.dtype) -> Bias | None:
    """The mask as torch takes it, None for what torch knows by name; made once and kept with the mask."""
    if seen.shape not in (LISTED, LOWER_RIGHT):
        return None
    mask, name = seen.mask, ("bias", dtype)
    found = mask.derived.get(name)
    if isinstance(found, Bias):
        use(found.held)
        return found
    use(mask.held)
    with torch.inference_mode(mode=False):
        values, empty = _additive(mask, dtype)
        some = being_captured(values) or bool(empty.any())  # the one wait; a capture cannot
    large = seen.shape == LOWER_RIGHT and values.nbytes > KEPT_BYTES  # one for every length of a growing cache
    if mask.counts_changes and keepable(mask.kinds, values) and not large:
        made = Bias(values, empty if some else None, held_after(values, empty))
        mask.derived[name] = made
        return made
    return Bias(values, empty if some else None, None)


def _additive(mask: BlockMask, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    allowed = mask.to_bool()
    empty = ~allowed.any(-1)
    allowed[..., 0] |= empty
    width = -(-mask.k_len // PADDED) * PADDED
    values = torch.full((*allowed.shape[:3], width), -torch.inf, dtype=dtype, device=allowed.device)
    values = values[..., : mask.k_len]
    return values.masked_fill_(allowed, 0.0), empty
