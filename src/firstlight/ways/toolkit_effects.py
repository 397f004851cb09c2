"""CUDA toolkits on paper: from wheels, from system packages, from conda."""

from __future__ import annotations

from dataclasses import replace

from firstlight.errors import BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.tables import Tables
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import Package
from firstlight.ways.loader_effects import with_parts
from firstlight.ways.paper import NOT_READ, planned
from firstlight.ways.variable_effects import with_new_toolkit
from firstlight.ways.way import Way

# The extras of PyPI's cuda-toolkit that a build needs, the projects behind them, and what of a toolkit each has.
_PROJECTS = {
    "nvcc": "nvidia-cuda-nvcc",
    "nvvm": "nvidia-nvvm",
    "crt": "nvidia-cuda-crt",
    "cudart": "nvidia-cuda-runtime",
    "nvrtc": "nvidia-cuda-nvrtc",
    "cccl": "nvidia-cuda-cccl",
}
_PARTS = {
    "nvidia-cuda-nvcc": (Part.NVCC, Part.PTXAS),
    "nvidia-nvvm": (Part.CICC, Part.LIBDEVICE),
    "nvidia-cuda-crt": (Part.CRT_HEADERS,),
    "nvidia-cuda-runtime": (Part.RUNTIME_HEADER, Part.CUDART, Part.CUDART_STATIC, Part.CUDADEVRT),
    "nvidia-cuda-nvrtc": (Part.NVRTC,),
}
_FIRST_WITH_NVCC = 13  # nvidia-cuda-nvcc-cu12 has ptxas alone


def toolkit_parts(tables: Tables, packages: tuple[Package, ...]) -> tuple[Package, ...]:
    """What PyPI's cuda-toolkit brings with the extras asked for, e.g. nvidia-cuda-nvcc 13.0.88 for [nvcc]."""
    found: list[Package] = []
    for package in packages:
        row = next((row for row in tables.toolkit_wheels if row.release == package.version), None)
        if package.project != "cuda-toolkit" or row is None:
            continue
        wanted = {_PROJECTS.get(each, each) for each in package.extras}
        wanted |= set(row.nvcc_extra) if "nvcc" in package.extras else set()
        exact = ((pin.project, pin.spec.removeprefix("==").removesuffix(".*")) for pin in row.parts)
        found += [Package(project, version) for project, version in exact if project in wanted]
    return tuple(found)


def with_toolkit_wheels(facts: Facts, packages: tuple[Package, ...], *, site: str, way: Way) -> Facts:
    """The toolkit that compiler wheels make up under site-packages/nvidia/cu13; its two links are made apart."""
    nvcc = next((each for each in packages if each.project == "nvidia-cuda-nvcc"), None)
    if nvcc is None:
        return facts
    version = _cuda(nvcc.version, way)
    major = version.value.major if isinstance(version, Known) else _FIRST_WITH_NVCC
    parts = tuple(part for each in packages for part in _PARTS.get(each.project, ()))
    root = f"{site}/nvidia/cu{major}"
    return with_toolkit(facts, _toolkit(root, version, found_by="site-packages"), parts=parts)


def with_toolkit(facts: Facts, toolkit: Toolkit, *, parts: tuple[Part, ...]) -> Facts:
    """The facts with one more toolkit, or with more parts of one that is here."""
    known = facts.toolkits.toolkits
    before = next((each for each in known if each.path == toolkit.path), None)
    if before is None:
        now = (*known, with_parts(toolkit, parts))
    else:
        version = before.version if isinstance(before.version, Known) else toolkit.version
        nvcc = before.nvcc_version if isinstance(before.nvcc_version, Known) else toolkit.nvcc_version
        whole = with_parts(replace(before, version=version, nvcc_version=nvcc), parts)
        now = tuple(whole if each is before else each for each in known)
    return replace(facts, toolkits=with_new_toolkit(replace(facts.toolkits, toolkits=now)))


def whole_toolkit(root: str, cuda: CudaVersion, way: Way) -> Toolkit:
    """A toolkit with everything in it, as system packages put it into /usr/local/cuda-12.8."""
    return _toolkit(root, planned(cuda, way), found_by=root)


def _toolkit(root: str, version: Fact[CudaVersion], *, found_by: str) -> Toolkit:
    return Toolkit(
        path=root,
        found_by=(found_by,),
        version=version,
        nvcc_version=version,
        has=(),
        missing=tuple(Part),
        include_folders=(f"{root}/include",),
        library_folders=(f"{root}/lib",),
        gcc_max=NOT_READ,
        clang_below=NOT_READ,
    )


def _cuda(text: str, way: Way) -> Fact[CudaVersion]:
    try:
        return planned(CudaVersion.parse(text), way)
    except BadVersion:
        return NOT_READ
