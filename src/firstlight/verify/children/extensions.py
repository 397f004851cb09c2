"""A C++ extension (and, asked for, a CUDA one) is built by torch's own builder in a folder of this run, and runs."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch

from firstlight.verify.children.witness import Skipped, Witness

# torch/library.h alone: torch/extension.h takes four times as long to compile (78 s against 17 s on two busy cores).
_CPP = """
#include <torch/library.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
static at::Tensor twice(const at::Tensor& x) { return at::mul(x, 2); }
TORCH_LIBRARY(firstlight_proof, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
"""
_CPP_FOR_CUDA = """
#include <torch/library.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
const char* launch_twice(const float* x, float* y, long n);
static at::Tensor twice(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const char* error = launch_twice(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  TORCH_CHECK(error == nullptr, "CUDA error: ", error);
  return y;
}
TORCH_LIBRARY(firstlight_proof, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
"""
_CUDA = """
#include <cuda_runtime.h>
__global__ void twice_kernel(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
const char* launch_twice(const float* x, float* y, long n) {
  twice_kernel<<<(unsigned)((n + 255) / 256), 256>>>(x, y, n);
  cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
"""


def prove(question: dict[str, Any], witness: Witness) -> str:
    with_cuda, folder = bool(question["cuda"]), str(question["work"])
    if with_cuda:
        major, minor = torch.cuda.get_device_capability(0)
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"  # this GPU's alone: the rest would cost minutes
        witness.saw("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    # An environment that is not activated has its ninja beside its python, not on PATH.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', '')}"
    from torch.utils import cpp_extension

    if not cpp_extension.is_ninja_available():
        raise Skipped("ninja is not found, which torch.utils.cpp_extension.load needs: pip install ninja")
    witness.saw("CUDA_HOME", str(cpp_extension.CUDA_HOME))
    sources = {"proof.cpp": _CPP_FOR_CUDA, "proof_kernel.cu": _CUDA} if with_cuda else {"proof.cpp": _CPP}
    for name, text in sources.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    os.environ.setdefault("MAX_JOBS", "2")
    started = time.monotonic()
    try:
        path = cpp_extension.load(
            "firstlight_proof",
            [os.path.join(folder, name) for name in sources],
            build_directory=folder,
            extra_cflags=["-O0"],
            with_cuda=with_cuda,
            is_python_module=False,
        )
    except (RuntimeError, OSError, ImportError) as error:
        text = _complaint(str(error))
        witness.fault(f"the build failed: {text}", "Run: firstlight explain, with the lines below.")
    took = time.monotonic() - started
    return _ran(str(path), took, with_cuda=with_cuda, witness=witness)


def _ran(path: str, took: float, *, with_cuda: bool, witness: Witness) -> str:
    x = torch.arange(1000, dtype=torch.float32, device="cuda" if with_cuda else "cpu")
    wrong = int((torch.ops.firstlight_proof.twice(x) != 2 * x).sum())
    witness.saw("seconds", round(took, 1))
    witness.saw("wrong elements", wrong)
    witness.more["built"] = path
    if wrong:
        witness.fault(f"the extension was built, but {wrong} of 1000 elements are wrong")
    kind = "CUDA" if with_cuda else "C++"
    return f"a {kind} extension was built in {took:.1f} s, loaded, and computes what it should"


def _complaint(text: str) -> str:
    """The compiler's first error line, else the first line of all."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower() and "error building extension" not in line.lower()]
    return (told or lines or ["no reason given"])[0][:400]
