"""Features of a build and the libraries that they need: which flag turns one on, and whether its library is here."""

from __future__ import annotations

import os
from dataclasses import replace

from firstlight.build.flags import Flag
from firstlight.build.reads import DECLARED
from firstlight.build.source_reads import SourceReads
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.cuda_libraries import FoundIn
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.near import nearest


@dataclass(frozen=True, slots=True)
class BuildFeature:
    """A feature by the name that --with takes: its flags in order of what trees call it, and the library it needs."""

    name: str
    flags: tuple[str, ...]
    library: str  # as facts name it; "" = none of its own
    wheel: str  # the PyPI project that has it, with MAJOR for CUDA's


FEATURES = (
    BuildFeature("cuda", ("USE_CUDA", "FORCE_CUDA", "WITH_CUDA"), "", ""),
    BuildFeature("cudnn", ("USE_CUDNN",), "cudnn", "nvidia-cudnn-cuMAJOR"),
    BuildFeature("nccl", ("USE_NCCL",), "nccl", "nvidia-nccl-cuMAJOR"),
    BuildFeature("cusparselt", ("USE_CUSPARSELT",), "cusparselt", "nvidia-cusparselt-cuMAJOR"),
    BuildFeature("cudss", ("USE_CUDSS",), "cudss", "nvidia-cudss-cuMAJOR"),
    BuildFeature("cufile", ("USE_CUFILE",), "", ""),
    BuildFeature("nvshmem", ("USE_NVSHMEM",), "nvshmem", "nvidia-nvshmem-cuMAJOR"),
    BuildFeature("fbgemm", ("USE_FBGEMM",), "", ""),
    BuildFeature("flash-attention", ("USE_FLASH_ATTENTION",), "", ""),
    BuildFeature("mem-eff-attention", ("USE_MEM_EFF_ATTENTION",), "", ""),
    BuildFeature("distributed", ("USE_DISTRIBUTED",), "", ""),
    BuildFeature("mpi", ("USE_MPI",), "", ""),
    BuildFeature("openmp", ("USE_OPENMP",), "", ""),
    BuildFeature("tests", ("BUILD_TEST", "BUILD_TESTING", "BUILD_CPP_TEST"), "", ""),
)


def feature_called(name: str, option: str) -> BuildFeature:
    """The feature of --with or --without."""
    found = next((each for each in FEATURES if each.name == name.lower()), None)
    if found is None:
        names = [each.name for each in FEATURES]
        near = nearest(name, names)
        hint = f" Did you mean {near[0]}?" if near else " Any other option of a tree is set with --flag NAME=VALUE."
        raise BadInput(f"{option} {name!a}: accepted: {', '.join(names)}.{hint}")
    return found


def flag_of(feature: BuildFeature, source: SourceReads, value: str, option: str) -> Flag:
    """The flag by which this tree turns a feature on or off."""
    for name in feature.flags:
        if source.of(name):
            return Flag(name, value)
    raise BadInput(
        f"{option} {feature.name}: this source reads none of {', '.join(feature.flags)}. Leave it out, or set the flag "
        "that the tree has with --flag NAME=VALUE."
    )


@dataclass(frozen=True, slots=True)
class NeededLibrary:
    """A library that a feature which is on needs, and where it is."""

    feature: BuildFeature
    flag: str
    found: Fact[str]  # the file
    link: Fact[str]  # libNAME.so beside it, which a linker asks for; the wheels have none
    required: bool = False  # by find_package(... REQUIRED): no flag turns it off


def needed_libraries(source: SourceReads, flags: tuple[Flag, ...], facts: Facts) -> tuple[NeededLibrary, ...]:
    """The libraries of the features that the flags turn on."""
    given = {flag.name: flag.value for flag in flags}
    found = []
    required = {package.lower() for package in source.packages}
    for feature in FEATURES:
        name = next((each for each in feature.flags if is_on(each, source, given)), "")
        if feature.library and name:
            found.append(_looked_for(feature, name, facts))
        elif feature.library in required and not any(source.of(each) for each in feature.flags):
            called = f"find_package({feature.library.upper()} REQUIRED)"
            found.append(replace(_looked_for(feature, called, facts), required=True))
    return tuple(found)


def is_on(name: str, source: SourceReads, given: dict[str, str]) -> bool:
    """Whether an option is on: as given, else by the default that the tree states."""
    if name in given:
        return given[name].upper() in ("1", "ON", "TRUE", "YES", "Y")
    declared = [each for each in source.of(name) if each.kind in DECLARED]
    return bool(declared) and declared[0].default.upper() in ("ON", "1", "TRUE", "YES")


def _looked_for(feature: BuildFeature, flag: str, facts: Facts) -> NeededLibrary:
    copies = facts.cuda_libraries.named(feature.library)
    if not copies:
        missing: Fact[str] = Unknown(f"no lib{feature.library} in the toolkit, the system or the environment's wheels")
        return NeededLibrary(feature, flag, missing, missing)
    first = copies[0]
    link = f"{os.path.dirname(first.path)}/lib{feature.library}.so"
    in_wheel = first.found_in is FoundIn.WHEEL
    return NeededLibrary(
        feature,
        flag,
        Known(first.path, seen_in=first.found_in.value),
        Unknown(f"wheels have no lib{feature.library}.so") if in_wheel else Known(link, seen_in=first.found_in.value),
    )
