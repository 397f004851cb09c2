"""NVIDIA's wheels of a CUDA major that torch no longer is of: no installer takes them away with the torch before."""

from __future__ import annotations

from firstlight.facts.collect import Facts
from firstlight.facts.companions import NvidiaWheel
from firstlight.facts.known import Known, Unknown

# These have one folder for both majors: nvidia-cudnn-cu12 and -cu13 both write nvidia/cudnn/lib/libcudnn.so.9.
_ONE_FOLDER = ("nvidia-cudnn-cu", "nvidia-nccl-cu", "nvidia-nvshmem-cu", "nvidia-cusparselt-cu")


# What the wheels of torch pin; others (nvcomp, nvimgcodec) are somebody's own.
_OF_TORCH = (
    "cublas", "cuda-cupti", "cuda-nvrtc", "cuda-runtime", "cudnn", "cufft", "cufile", "curand", "cusolver", "cusparse",
    "cusparselt", "nccl", "nvjitlink", "nvshmem", "nvtx",
)  # fmt: skip


def written_over(facts: Facts, major: int) -> tuple[str, ...]:
    """The wheels whose files those of a torch of another CUDA major would write over, e.g. nvidia-cudnn-cu12.

    They go first: taken out later, pip deletes what has been put in their place.
    """
    return tuple(each.name for each in left_over(facts, major) if each.name.startswith(_ONE_FOLDER))


def left_over(facts: Facts, major: int) -> tuple[NvidiaWheel, ...]:
    """The wheels of other CUDA majors than this that nothing but torch asks for."""
    asked = {one.name for each in facts.companions for one in (*each.requires, *each.gpu_requires)}
    return tuple(each for each in facts.nvidia_wheels if _major(each.name) not in (0, major) and each.name not in asked)


def is_of_torch(wheel: NvidiaWheel) -> bool:
    """Whether a wheel is one of those that torch brings: nvidia-cublas-cu12, and not nvidia-nvcomp-cu12."""
    return wheel.name.rpartition("-cu")[0].removeprefix("nvidia-") in _OF_TORCH


def asked_by_torch(facts: Facts) -> set[str]:
    """The names of the wheels that the torch here pins."""
    requires = facts.torch.value.requires if isinstance(facts.torch, Known) else Unknown("no torch")
    return {each.name for each in requires.value} if isinstance(requires, Known) else set()


def _major(name: str) -> int:
    """12 of nvidia-cublas-cu12; 0 for a name without a major."""
    digits = name.rpartition("-cu")[2]
    return int(digits) if digits.isdecimal() and len(digits) == 2 else 0
