"""Variables that steer a CUDA build (architectures, flags, number of jobs), and those that slow a program down."""

from __future__ import annotations

from firstlight.frozen import dataclass
from firstlight.machine import Machine

NAMES = (
    "TORCH_CUDA_ARCH_LIST", "TORCH_NVCC_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CUDAFLAGS", "CUDAARCHS",
    "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "NVCC_THREADS", "FLASH_ATTENTION_FORCE_BUILD", "FLASH_ATTN_CUDA_ARCHS",
    "TORCH_DONT_CHECK_COMPILER_ABI", "TRITON_PTXAS_PATH", "FORCE_CUDA", "USE_CUDA",
    "CUDA_LAUNCH_BLOCKING", "NCCL_P2P_DISABLE", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_NCCL_NAN_CHECK",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BuildVariable:
    """A variable that is set, e.g. TORCH_CUDA_ARCH_LIST to 9.0a."""

    name: str
    value: str


def probe_build_variables(machine: Machine) -> tuple[BuildVariable, ...]:
    """Those of the known variables that are set to more than blanks."""
    return tuple(BuildVariable(name, value) for name in NAMES if (value := (machine.env(name) or "").strip()))
