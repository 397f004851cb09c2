"""What cannot be where no row says so: a CUDA variant, code for a GPU, a C library old enough."""

from __future__ import annotations

import functools

from firstlight.tables import Tables
from firstlight.tables.torch_rows import TorchRelease
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion

# PyTorch's builds with CUDA 12.6 were the first with manylinux_2_28 (torch-2.6.0+cu126-cp312-cp312-manylinux_2_28 on
# its index, beside 2.6.0+cu124 without the tag); the ones before ran from glibc 2.17 on.
_FIRST_OF_MANYLINUX_2_28 = CudaVersion(12, 6)
_MANYLINUX_2_28 = "2.28"
# Of the CUDA releases that PyTorch ceased to name, 12.9 was the first that its index still had (2.9.0+cu129).
_FIRST_BUILT_BESIDE = CudaVersion(12, 6)


def variants_of(tables: Tables, torch: TorchVersion, *, machine: str) -> set[CudaVersion]:
    """The CUDA releases a torch is known to be built for, on PyPI and on PyTorch's own index."""
    known = {row.wheel_cuda for row in tables.torch_variants(torch)}
    release = tables.torch_release(torch.public, machine)
    if release is not None and release.wheel_cuda is not None:
        known.add(release.wheel_cuda)
    return known


def why_no_variant(tables: Tables, torch: TorchVersion, cuda: CudaVersion, *, machine: str) -> str:
    """Why a release cannot have a CUDA variant, as a sentence; '' where it may, whether or not a row names it.

    PyTorch names the variants that it supports; its index has had others beside them (2.9.0+cu129), never one older
    than the oldest, newer than the newest, of a CUDA that no release has, or of 12.1 and 12.4 after their time.
    """
    known = variants_of(tables, torch, machine=machine)
    if not known or cuda.release in known:
        return ""
    tags = ", ".join(each.tag for each in sorted(known))
    if _there_is_none(tables, cuda):
        return f"There is no CUDA {cuda.release}; known for torch {torch.public}: {tags}."
    if cuda.release < min(known):
        return f"torch {torch.public} has no {cuda.tag}: the oldest CUDA it is built for is {min(known)} ({tags})."
    if cuda.release > max(known):
        return f"torch {torch.public} has no {cuda.tag}: the newest CUDA it is built for is {max(known)} ({tags})."
    last = tables.last_torch_of(cuda)
    if not last:
        return f"No torch was ever built for CUDA {cuda.release}; known for torch {torch.public}: {tags}."
    if cuda.release < _FIRST_BUILT_BESIDE and last < torch.release[:2]:
        return f"torch {torch.public} has no {cuda.tag}: torch {last[0]}.{last[1]} was the last of it ({tags})."
    return ""


def _there_is_none(tables: Tables, cuda: CudaVersion) -> bool:
    """Whether a number was left out: 12.7 between 12.6 and 12.8."""
    released = {row.toolkit.release for row in tables.cuda_releases} | {row.toolkit for row in tables.toolkit_targets}
    return cuda.release not in released and min(released) < cuda.release < max(released)


def compiler_knows(tables: Tables, cuda: CudaVersion, capability: ComputeCapability) -> bool:
    """Whether the compiler of a CUDA release may know a GPU: that of 11.6 knows no sm_120, that of 13.0 no sm_70.

    Where the release has no row, those around it tell: a target comes once and goes once.
    """
    row = tables.targets(cuda)
    if row is not None:
        return capability.sm in row.targets
    knowing = tables.toolkits_for(capability)
    if not knowing:
        return True  # of a GPU that no row names nothing is known
    oldest = min(each.toolkit for each in tables.toolkit_targets)
    if cuda.release < knowing[0]:
        return knowing[0] == oldest  # from the oldest row on: it may have been there before
    return cuda.release < knowing[-1] or knowing[-1] == max(each.toolkit for each in tables.toolkit_targets)


def may_have_code(tables: Tables, cuda: CudaVersion, capability: ComputeCapability) -> bool:
    """Whether an official build of a CUDA release may run on a GPU: code for 8.6 runs on an 8.9 that 11.6 knows not.

    PyTorch's own builds have no PTX for later GPUs, so what its compiler does not know is not in them.
    """
    family = [each for each in _compiled_for_ever(tables) if each.major == capability.major and each <= capability]
    return not family or any(compiler_knows(tables, cuda, each) for each in family)


@functools.cache
def _compiled_for_ever(tables: Tables) -> frozenset[ComputeCapability]:
    """What any toolkit compiles for."""
    return frozenset(ComputeCapability.parse(each) for row in tables.toolkit_targets for each in row.targets)


def glibc_of_wheel(release: TorchRelease, cuda: CudaVersion | None) -> str:
    """The C library that a wheel asks for, 2.28; '' of the older tags, which run from 2.17 on."""
    tag = release.platform_tag.split("_")
    of_pypi = f"{tag[1]}.{tag[2]}" if len(tag) >= 3 and tag[0] == "manylinux" else ""
    if cuda is None or cuda == release.wheel_cuda:
        return of_pypi
    return _MANYLINUX_2_28 if cuda.release >= _FIRST_OF_MANYLINUX_2_28 else of_pypi
