"""Ours and torch's own kernels, as runners."""

from __future__ import annotations

import torch
from benchmarks.rivals.cases import Case, Setting
from benchmarks.rivals.runner import Refused, Runner, by_autograd
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from firstlight.kernels import attention


def ours(case: Case, setting: Setting) -> Runner:
    """Our attention on `sm90`."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = attention(q, k, v, setting.mask, backend="sm90")
        return out

    return by_autograd(case, setting, attend)


def cudnn_dense(case: Case, setting: Setting) -> Runner | Refused:
    """torch's attention by cuDNN, which has full and causal masks alone."""
    if case.mask not in ("full", "causal"):
        return Refused("it has no such mask by name")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=case.mask == "causal")

    return by_autograd(case, setting, attend)


def torch_version() -> str:
    """e.g. '2.11.0+cu130, cuDNN 91900'."""
    return f"{torch.__version__}, cuDNN {torch.backends.cudnn.version()}"  # type: ignore[no-untyped-call]
