"""cuBLAS and cuBLASLt multiply in every number format this GPU has, each held against float64."""

from __future__ import annotations

from typing import Any

import torch

from firstlight.verify.children.products import distance
from firstlight.verify.children.witness import Witness

_M, _K, _N = 128, 256, 96


def prove(question: dict[str, Any], witness: Witness) -> str:
    capability = torch.cuda.get_device_capability(0)
    matmul = torch.backends.cuda.matmul
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False
    faults: list[str] = []
    proved: list[str] = []
    kinds = ["float64", "float32", "float16"] + (["tf32", "bfloat16"] if capability >= (8, 0) else [])
    for kind in kinds:
        matmul.allow_tf32 = kind == "tf32"
        dtype = torch.float32 if kind == "tf32" else getattr(torch, kind)
        left, right = _inputs(dtype)
        _judge(kind, left, right, got=left.cuda() @ right.cuda(), told=(witness, faults, proved))
        if kind == "float16":  # with a bias torch calls cuBLASLt
            bias = torch.zeros(_N, dtype=dtype, device="cuda")
            got = torch.nn.functional.linear(left.cuda(), right.t().contiguous().cuda(), bias)
            _judge("float16 with bias (cuBLASLt)", left, right, got=got, told=(witness, faults, proved))
            got = torch.bmm(left.cuda().expand(3, -1, -1), right.cuda().expand(3, -1, -1))[2]
            _judge("float16 batch", left, right, got=got, told=(witness, faults, proved))
    _int8(witness, faults, proved)
    if capability >= (8, 9):
        _float8(witness, faults, proved)
    else:
        witness.saw("float8_e4m3fn", f"not on capability {capability[0]}.{capability[1]}; needs 8.9")
    if faults:
        witness.fault(
            "; ".join(faults), "Run: firstlight doctor; compare the check `libraries` for a swapped libcublas."
        )
    return f"{len(proved)} formats match float64: {', '.join(proved)}"


def _inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(_M, _K, generator=generator).to(dtype)
    return left, torch.randn(_K, _N, generator=generator).to(dtype)


def _judge(
    kind: str,
    left: torch.Tensor,
    right: torch.Tensor,
    *,
    got: torch.Tensor,
    told: tuple[Witness, list[str], list[str]],
) -> None:
    witness, faults, proved = told
    found = distance(got, left, right, kind=kind.split(maxsplit=1)[0])
    witness.saw(kind, str(found))
    if found.fine:
        proved.append(kind)
    else:
        faults.append(f"a {kind} product is wrong: {found}")


def _int8(witness: Witness, faults: list[str], proved: list[str]) -> None:
    if not hasattr(torch, "_int_mm"):
        return
    generator = torch.Generator().manual_seed(2)
    left = torch.randint(-128, 127, (_M, _K), generator=generator, dtype=torch.int8)
    right = torch.randint(-128, 127, (_K, _N), generator=generator, dtype=torch.int8)
    got = torch._int_mm(left.cuda(), right.cuda()).cpu()
    wrong = int((got.long() != left.long() @ right.long()).sum())
    witness.saw("int8", f"{wrong} of {got.numel()} elements differ from the exact product")
    if wrong:
        faults.append(f"an int8 product is wrong in {wrong} of {got.numel()} elements")
    else:
        proved.append("int8")


def _float8(witness: Witness, faults: list[str], proved: list[str]) -> None:
    if not hasattr(torch, "_scaled_mm"):
        return
    left, right = (each.to(torch.float8_e4m3fn) for each in _inputs(torch.float32))
    one = torch.ones((), dtype=torch.float32, device="cuda")
    there = right.t().contiguous().cuda().t()  # column-major, as cuBLASLt wants the second of 8-bit factors
    got = torch._scaled_mm(left.cuda(), there, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    _judge("float8_e4m3fn", left.float(), right.float(), got=got, told=(witness, faults, proved))
