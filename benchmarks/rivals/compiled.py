"""FlashAttention-4's kernels for the cases, compiled for Hopper without a GPU: are its functions called rightly?

Its own way to do so: tensors that have a shape and no memory. The deterministic backward pass reads a tensor's
address while it compiles, so that one takes a GPU. Nothing runs; whether the answers are right is seen on a GPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from benchmarks.rivals.cases import HEAD_DIM, Case, setting_of
from benchmarks.rivals.flash4 import masks_for
from torch._subclasses.fake_tensor import FakeTensorMode

TARGET = {"FLASH_ATTENTION_ARCH": "sm_90", "CUTE_DSL_ARCH": "sm_90a", "FLASH_ATTENTION_NUM_SMS": "132"}
SMALL = (1, 2, 1024)  # the code is the same for every length


class Compiled(NamedTuple):
    """One kernel, e.g. Compiled('backward/causal/b1-h2-s1024/bfloat16', 'forward', 4.2)."""

    case: str
    what: str
    seconds: float


def compiled(case: Case) -> Iterator[Compiled]:
    """The forward kernel and, where the case is a backward pass, the one that adds dQ in any order."""
    os.environ.update(TARGET)  # read when the package is imported
    from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd

    small = case._replace(shape=SMALL)
    setting = setting_of(small, "cpu")
    masks = masks_for(small, setting)
    turned = [each.transpose(1, 2) for each in setting[:4]]
    with FakeTensorMode():
        q, k, v, grad = (shape_alone(each) for each in turned)
        began = time.monotonic()
        made = _flash_attn_fwd(q, k, v, softmax_scale=HEAD_DIM**-0.5, return_lse=True, **_given(masks.forward))
        yield Compiled(small.id, "forward", time.monotonic() - began)
        if not case.backward:
            return
        began = time.monotonic()
        _flash_attn_bwd(q, k, v, made[0], grad, made[1], softmax_scale=HEAD_DIM**-0.5, **_given(masks.backward))
        yield Compiled(small.id, "backward", time.monotonic() - began)


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a mask with every tensor in them replaced."""
    lists = arguments.get("block_sparse_tensors")
    if lists is None:
        return arguments
    faked = lists._replace(**{name: shape_alone(getattr(lists, name)) for name in lists._fields})
    return {**arguments, "block_sparse_tensors": faked}


def shape_alone(given: Any) -> Any:
    """A tensor as it is without its memory; anything else as it is."""
    if not isinstance(given, torch.Tensor):
        return given
    return torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device="cuda")
