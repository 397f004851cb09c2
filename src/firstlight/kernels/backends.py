"""Which backends there are, and what keeps each from a device; products and attention ask here.

Kernels made for one compute capability are a folder of the backend's name and a row of ARCHS. The folder has what every
such backend has: `multiply`, `prepare` and `sample` in its __init__, `forward`, `backward` and `why_not` in
attention.py, `can_list` and `filled` in mask_lists.py, `find_compiler` in compile.py, `Problem` in problem.py and
`tile_of` in multiply_plan.py. No other file names it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch

from firstlight.errors import FirstlightError, UnsupportedInput


@dataclass(frozen=True, slots=True)
class Arch:
    """Kernels for the GPUs of one compute capability."""

    name: str  # of the backend and its folder, e.g. sm90
    capability: tuple[int, int]
    called: str  # e.g. Hopper
    cards: tuple[str, ...]  # two of them are named where somebody has none
    dtypes: tuple[torch.dtype, ...]
    head_dims: tuple[int, ...]  # of attention
    attention_blocks: tuple[int, ...]

    def part(self, name: str = "") -> ModuleType:
        """A module of its folder, e.g. attention; the folder itself where no name is given."""
        return importlib.import_module(f"firstlight.kernels.{self.name}{'.' if name else ''}{name}")


SM90 = Arch(
    "sm90", (9, 0), "Hopper", ("H100", "H200", "GH200"), (torch.float16, torch.bfloat16), head_dims=(128, 64),
    attention_blocks=(128, 64),
)  # fmt: skip
ARCHS = (SM90,)
BY_NAME = {arch.name: arch for arch in ARCHS}
BACKENDS = ("auto", *BY_NAME, "triton", "dense", "reference")
TRITON_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OLDEST_CAPABILITY = (8, 0)
INTERPRETER = "TRITON_INTERPRET"


@functools.lru_cache(maxsize=64)  # torch takes 10 us to say it, and a device keeps it
def capability_of(device: int) -> tuple[int, int]:
    """E.g. (9, 0) of an H200."""
    return torch.cuda.get_device_capability(device)


def arch_of(device: int) -> Arch | None:
    """The kernels that were made for a device; None: there are none."""
    capability = capability_of(device)
    return next((arch for arch in ARCHS if arch.capability == capability), None)


def why_not(name: str, device: int, dtype: torch.dtype) -> str:
    """What keeps a sparse backend from running on a CUDA device, e.g. 'triton is not installed'; empty: nothing."""
    return why_not_triton(device, dtype) if name == "triton" else why_not_arch(BY_NAME[name], device, dtype)


def why_not_triton(device: int, dtype: torch.dtype) -> str:
    """The same of the portable kernels."""
    if dtype not in TRITON_DTYPES:
        return f"the sparse kernel takes float16, bfloat16 and float32, not {_short(dtype)}"
    capability = capability_of(device)
    if capability < OLDEST_CAPABILITY:
        return f"compute capability {capability[0]}.{capability[1]} is below 8.0"
    if not triton_installed():
        return "triton is not installed"
    return ""


def why_not_arch(arch: Arch, device: int, dtype: torch.dtype) -> str:
    """The same of kernels made for one compute capability, e.g. 'compute capability is 8.0, ...'."""
    if dtype not in arch.dtypes:
        return f"the {arch.called} kernels take {' and '.join(map(_short, arch.dtypes))}, not {_short(dtype)}"
    capability = capability_of(device)
    if capability != arch.capability:
        (major, minor), wanted = capability, arch.capability
        return (
            f"compute capability is {major}.{minor}, and the {arch.called} kernels run on {wanted[0]}.{wanted[1]} "
            f"({', '.join(arch.cards)}) alone"
        )
    return why_not_built(arch)


@functools.lru_cache(maxsize=8)
def why_not_built(arch: Arch) -> str:
    """What keeps kernels from being compiled and loaded on this machine; empty: nothing. Asked once."""
    from firstlight.kernels.sm90 import libcuda

    try:
        arch.part("compile").find_compiler()
        libcuda.library()
    except FirstlightError as error:
        return str(error).rstrip(".")
    return ""


@functools.lru_cache(maxsize=1)
def triton_installed() -> bool:
    """Whether `import triton` would find something."""
    return importlib.util.find_spec("triton") is not None


def require(name: str, device: int, hurdle: Callable[[], str]) -> None:
    """Raises where a backend that was named does not exist or cannot run; hurdle says what keeps it from a GPU."""
    if name not in BACKENDS:
        raise UnsupportedInput(f"backend is {name!r}; accepted: {', '.join(BACKENDS)}. Leave it out for auto.")
    if name in BY_NAME and device < 0:
        cards = BY_NAME[name].cards
        raise UnsupportedInput(
            f"backend {name!r} was given tensors on the processor; it takes tensors on an {cards[0]} or {cards[1]}. "
            "Move them there, or use backend='reference'."
        )
    if name == "triton" and device < 0 and os.environ.get(INTERPRETER) != "1":
        raise UnsupportedInput(
            "backend 'triton' was given tensors on the processor; it takes tensors on a CUDA device. Move them there, "
            f"or use backend='reference' ({INTERPRETER}=1 runs the kernels in Triton's interpreter, for tests)."
        )
    if (name in BY_NAME or name == "triton") and (why := hurdle()):
        other = "" if name in BY_NAME else " or 'dense'"
        raise UnsupportedInput(f"backend {name!r} cannot run here: {why}. Use backend='auto'{other}.")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
