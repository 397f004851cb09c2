"""Why a case cannot run at a place, as the sentence a report prints; '' when it can."""

from __future__ import annotations

from firstlight.bench.case import Place
from firstlight.errors import BadVersion
from firstlight.versions import TorchVersion

OLDEST_TORCH = "2.8"  # that the block-sparse kernels run on: results/kernels-torch-releases.json
FAST_FP64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}  # every other capability has fp64 for correctness alone


def torch_needs(what: str) -> str:
    """E.g. 'block-sparse kernels need torch 2.8 or newer; torch 2.4.1 is installed'; a preview of 2.8 counts as 2.8."""
    from importlib import metadata  # cases are listed without importing torch

    try:
        installed = TorchVersion.parse(metadata.version("torch"))
    except (metadata.PackageNotFoundError, BadVersion):  # said elsewhere; a build with a name of its own is tried
        return ""
    if installed.release >= TorchVersion.parse(OLDEST_TORCH).release:
        return ""
    return f"{what} need torch {OLDEST_TORCH} or newer; torch {installed.text} is installed"


def capability_needs(what: str, place: Place, *, least: tuple[int, int]) -> str:
    """E.g. 'fp8 products need compute capability 8.9; this GPU has 8.0'."""
    if is_cpu(place) or place.capability >= least:
        return ""
    return f"{what} need compute capability {least[0]}.{least[1]}; this GPU has {_dotted(place)}"


def bf16_needs(place: Place) -> str:
    """bf16 runs on older GPUs, at the speed of emulation."""
    return capability_needs("bf16 tensor cores", place, least=(8, 0))


def tf32_needs(place: Place) -> str:
    """Older GPUs compute plain fp32 under the same switch."""
    return capability_needs("tf32 tensor cores", place, least=(8, 0))


def fp8_needs(place: Place) -> str:
    """torch._scaled_mm on e4m3."""
    return capability_needs("fp8 products", place, least=(8, 9))


def int8_needs(place: Place) -> str:
    """torch._int_mm."""
    return capability_needs("int8 tensor cores", place, least=(7, 5))


def fp4_needs(place: Place) -> str:
    """nvfp4 through torch._scaled_mm: Blackwell, and a torch that has the type."""
    try:
        import torch
    except (ImportError, OSError):  # cases are listed without torch, too; measuring says what is wrong with it
        return capability_needs("nvfp4 products", place, least=(10, 0))
    if not hasattr(torch, "float4_e2m1fn_x2"):
        return f"nvfp4 products need torch.float4_e2m1fn_x2; torch {torch.__version__} does not have it"
    return capability_needs("nvfp4 products", place, least=(10, 0))


def memory_needs(wanted: int, place: Place) -> str:
    """E.g. 'needs 9.7 GB of memory; 7.9 GB are free'."""
    if wanted <= place.free_bytes:
        return ""
    return f"needs {wanted / 1e9:.1f} GB of memory; {place.free_bytes / 1e9:.1f} GB are free"


def is_cpu(place: Place) -> bool:
    """Whether a place is a processor rather than a GPU."""
    return place.device.partition(":")[0] == "cpu"


def _dotted(place: Place) -> str:
    return f"{place.capability[0]}.{place.capability[1]}"
