"""A stand-in for GPUs: torch on the processor answers for 'cuda:N', with one fault planted.

Tensors stay on the processor; what the child scripts ask for on a GPU is computed there, so that they run as they would
on one. Names of faults stand where they act.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode


def _on_the_processor(value: Any, last: list[str]) -> Any:
    if isinstance(value, (str, torch.device)) and str(value).startswith("cuda"):
        last[0] = str(value)
        return "cpu"
    return value


class PretendedGpus(TorchFunctionMode):
    """Rewrites every call of torch that names a GPU."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault, self.last = fault, ["cpu"]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = {key: _on_the_processor(value, self.last) for key, value in (kwargs or {}).items()}
        name = getattr(func, "__name__", "")
        if name == "cuda":
            self.last[0] = "cuda:0"
            return args[0].clone()
        given = tuple(_on_the_processor(value, self.last) for value in args)
        if name == "scaled_dot_product_attention":
            return self._attention(*given[:3])
        if name == "cudnn_convolution":
            out = torch.nn.functional.conv2d(given[0], given[1], padding=1)
            return out + 0.5 if self.fault == "cudnn" else out
        if name == "_scaled_mm":
            return (given[0].float() @ given[1].float()).to(torch.bfloat16)
        if name == "exp" and self.fault == "no-kernel" and given[0].dtype is torch.float32:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        if name in ("__matmul__", "matmul"):
            return self._product(func, given, named)
        out = func(*given, **named)
        return out + 1 if name == "_int_mm" and self.fault == "int8" else out

    def _product(self, func: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.fault == "lost" and self.last[0] == "cuda:1":
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        out, kind = func(*given, **named), given[0].dtype
        wrong = self.fault == "float16" and kind is torch.float16
        wrong = wrong or (self.fault == "second-gpu" and self.last[0] == "cuda:1" and kind is torch.float32)
        return out + 0.2 * (torch.arange(out.shape[-1]) == 7) if wrong else out

    def _attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        backends: Any = torch.backends.cuda
        if self.fault == "flash" and backends.flash_sdp_enabled():
            raise RuntimeError("No available kernel. Aborting execution.")
        scores = q.double() @ k.double().transpose(-1, -2) / q.shape[-1] ** 0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        out = (torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v.double()).to(q.dtype)
        return out * 1.5 if self.fault == "mem-efficient" and backends.mem_efficient_sdp_enabled() else out


@contextlib.contextmanager
def pretended(fault: str = "", *, gpus: int = 1) -> Iterator[None]:
    """GPUs of capability 9.0 (8.6 with the fault 'older') in torch, for as long as the block runs."""
    seen = 0 if fault in ("unseen", "cpu-build") else gpus
    answers: dict[Any, dict[str, Any]] = {
        torch.version: {"cuda": None if fault == "cpu-build" else "13.0"},
        torch.cuda: {
            "is_available": lambda: seen > 0,
            "device_count": lambda: seen,
            "get_device_capability": lambda index=0: (8, 6) if fault == "older" else (9, 0),
            "get_device_name": lambda index=0: "Pretended GPU",
            "get_arch_list": lambda: ["sm_80", "sm_90"],
            "synchronize": lambda *_: None,
        },
        torch.backends.cudnn: {"is_available": lambda: True, "version": lambda: 91900},
    }
    with contextlib.ExitStack() as stack:
        for module, names in answers.items():
            for name, value in names.items():
                stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(PretendedGpus(fault))
        yield
