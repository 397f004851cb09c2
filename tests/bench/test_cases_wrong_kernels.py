"""A wrong kernel has no speed: faults planted in torch's operators are caught by the check of the case."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from firstlight.bench.case import Case
from firstlight.bench.cases.settings import switches_kept
from tests.bench.small_cases import CPU, small_cases

BY_ID = {case.id: case for case in small_cases()}


def error_of(case: Case) -> float:
    with switches_kept():
        return case.prepare(CPU, 1).check()


def tail_not_written(real: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that leaves the last row of its output as it found it."""

    def wrong(*args: Any, out: torch.Tensor, **options: Any) -> torch.Tensor:
        last = out[-1].clone()
        real(*args, out=out, **options)
        out[-1] = last
        return out

    return wrong


def last_row_from_the_first(real: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*args: Any, **options: Any) -> Any:
        out = real(*args, **options)
        out[-1] = out[0]
        return out

    return wrong


@pytest.mark.parametrize(
    ("case_id", "module", "name", "fault"),
    [
        ("gemm/fp16/96x80x128", torch, "mm", tail_not_written),
        ("gemm/fp64/96x80x128", torch, "mm", tail_not_written),
        ("bmm/tf32/3x64x64x64", torch, "bmm", tail_not_written),
        ("gemm/fp8/256x256x256/fp32-sums", torch, "_scaled_mm", tail_not_written),
        ("gemm/int8/256x256x256", torch, "_int_mm", tail_not_written),
        ("bandwidth/add/fp32/1MiB", torch, "add", tail_not_written),
        ("bandwidth/read/fp32/1MiB", torch, "sum", tail_not_written),
        ("conv2d/fp16/nhwc/b3-4to6-12x12-k3", functional, "conv2d", last_row_from_the_first),
        ("depthwise/fp32/nchw/b3-c8-12x12-k3", functional, "conv2d", last_row_from_the_first),
        ("sdpa/flash/fp16/b2-h3-s48-d16/causal", functional, "scaled_dot_product_attention", last_row_from_the_first),
        ("linear/fp16/m8-k64-n48", functional, "linear", last_row_from_the_first),
        ("layernorm/fp16/3x4x64", functional, "layer_norm", last_row_from_the_first),
        ("softmax/fp16/2x3x8x32", torch, "softmax", last_row_from_the_first),
    ],
)
def test_a_kernel_with_a_wrong_last_row_is_caught(
    monkeypatch: pytest.MonkeyPatch, case_id: str, module: Any, name: str, fault: Callable[..., Any]
) -> None:
    case = BY_ID[case_id]
    assert error_of(case) <= case.tolerance
    monkeypatch.setattr(module, name, fault(getattr(module, name)))
    assert error_of(case) > case.tolerance


def test_an_output_that_is_never_written_is_infinitely_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "mm", lambda left, right, *, out: out)
    assert error_of(BY_ID["gemm/fp16/96x80x128"]) == math.inf


def test_a_causal_row_that_looks_into_the_future_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda q, k, v, **_: real(q, k, v))
    case = BY_ID["sdpa/flash/fp16/b2-h3-s48-d16/causal"]
    assert error_of(case) > 100 * case.tolerance


def test_an_fp32_product_that_ran_with_tf32_operands_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.mm

    def as_tf32(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        cut = [(each.view(torch.int32) & ~0x1FFF).view(torch.float32) for each in (left, right)]
        return real(*cut, out=out)

    monkeypatch.setattr(torch, "mm", as_tf32)
    fp32, tf32 = BY_ID["gemm/fp32/96x80x128"], BY_ID["gemm/tf32/96x80x128"]
    assert error_of(fp32) > fp32.tolerance
    assert error_of(tf32) <= tf32.tolerance


def test_a_convolution_without_its_padding_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = functional.conv2d

    def circular(images: torch.Tensor, weights: torch.Tensor, *, padding: int, **options: Any) -> torch.Tensor:
        return real(functional.pad(images, (padding,) * 4, mode="circular"), weights, **options)

    monkeypatch.setattr(functional, "conv2d", circular)
    case = BY_ID["conv2d/fp32/nchw/b3-4to6-12x12-k3"]
    assert error_of(case) > case.tolerance


def test_a_model_with_a_fault_in_half_precision_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = functional.layer_norm

    def wrong_in_fp16(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        out = real(x, *args, **options)
        return out * 1.05 if x.dtype is torch.float16 else out

    monkeypatch.setattr(functional, "layer_norm", wrong_in_fp16)
    case = BY_ID["encoder/fp16/l2-d64-h4-ff96/b3-s24/eager"]
    assert error_of(case) > case.tolerance


def test_a_copy_that_loses_its_last_element_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.Tensor.copy_

    def short(target: torch.Tensor, start: torch.Tensor, **options: Any) -> torch.Tensor:
        return real(target[:-1], start[:-1], **options)

    case = BY_ID["transfer/h2d/pageable/1MiB"]
    assert error_of(case) == 0
    monkeypatch.setattr(torch.Tensor, "copy_", short)
    assert error_of(case) == math.inf


@pytest.mark.parametrize("stage", ["prefill-b2-s16/eager", "decode-b2-s16/eager", "decode-b2-s16/graph"])
def test_a_decoder_that_scores_the_wrong_position_is_caught(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    from firstlight.bench.models import decoder

    real = decoder.rotate
    # Positions are right in the wide reference and forgotten in bf16.
    monkeypatch.setattr(
        decoder, "rotate", lambda heads, turns: heads if heads.dtype is torch.bfloat16 else real(heads, turns)
    )
    case = BY_ID[f"decoder/bf16/tiny/{stage}"]
    assert error_of(case) > case.tolerance


def test_a_training_step_without_gradients_in_the_first_layer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from firstlight.bench.models.decoder import DecoderLayer

    real = DecoderLayer.finish
    monkeypatch.setattr(DecoderLayer, "finish", lambda self, x, attended: real(self, x.detach(), attended.detach()))
    case = BY_ID["decoder/fp32/tiny/train-b2-s16/eager"]
    assert error_of(case) == math.inf
