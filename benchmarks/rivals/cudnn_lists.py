"""cuDNN's block-sparse attention (nvidia-cudnn-frontend), where it is installed: lists of blocks alone."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, version

from benchmarks.rivals.cases import HEAD_DIM, Answer, Case, Setting, lists_of
from benchmarks.rivals.runner import Gradients, Refused, Runner, checked, of_gradients


def cudnn_lists_version() -> str | None:
    """e.g. '1.32.0'; None where it is not installed."""
    try:
        return version("nvidia-cudnn-frontend")
    except PackageNotFoundError:
        return None


def cudnn_lists(case: Case, setting: Setting) -> Runner | Refused:
    """Its forward or backward pass over the case's lists; the backward pass turns the lists anew in every call."""
    if setting.chosen is None:
        return Refused("it takes lists of blocks alone")
    from cudnn.block_sparse_attention import (
        block_sparse_attention_backward,
        block_sparse_attention_forward,
    )

    counts, order = lists_of(setting.chosen)
    lists = {"q2k_block_nums": counts, "sparse_block_size": case.block, "softmax_scale": HEAD_DIM**-0.5}
    forward = partial(block_sparse_attention_forward, *setting[:3], order, **lists)
    if not case.backward:
        return Runner(forward, lambda: Answer(checked(forward()["o_tensor"]), None))
    made = forward()
    out, lse = made["o_tensor"], made["lse_tensor"]
    backward = partial(block_sparse_attention_backward, setting.grad, *setting[:3], out, lse, order, **lists)

    def gradients() -> Gradients:
        found = backward()
        return found["dq_tensor"], found["dk_tensor"], found["dv_tensor"]

    return of_gradients(gradients, out)
