"""Rules about LD_LIBRARY_PATH: CUDA libraries that come from it instead of from torch's own wheels."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.library_providers import DRIVERS_OWN, PRELOADED, stem, wheel_with
from firstlight.elf.loader import FoundBy
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.facts.torch_install import TorchInstall
from firstlight.facts.torch_libraries import ShadowedLibrary
from firstlight.ways.kinds import Unwire, WiredBy
from firstlight.ways.way import chain

_NVIDIA = (  # not libcurl
    r"lib(?:cu(?:blas|dart|dnn|dss|fft|file|pti|rand|solver|sparse|tensor)|nccl|npp|nv(?:JitLink|rtc|ToolsExt|shmem))"
    r"\w*\.so\.\d+(?:\.\d+)*"
)
# What torch opens by path from the wheels before it is searched for; a name that is loaded is not searched again.
# 2.13's list is read from its torch/__init__.py; of 2.11 and 2.12 these are certain (pytorch/pytorch#174320, #145582).
_PRELOADS_ALL_SINCE = (2, 13)
_PRELOADS_SOME_SINCE = (2, 11)
_PRELOADED_FIRST = ("libcublasLt", "libnvJitLink", "libnvrtc")


def library_path_breaks(question: Question) -> Iterator[Seen]:
    """A library older than the one it replaces lacks what the libraries above it were built against."""
    found = ((each, _how_it_is_older(question.facts, each)) for each in _exchanged(question))
    return _seen([(each, f"; {older}") for each, older in found if older])


def library_path_shadows(question: Question) -> Iterator[Seen]:
    """LD_LIBRARY_PATH wins over the RUNPATH of NVIDIA's libraries, though not over the RPATH of torch's own."""
    return _seen([(each, "") for each in _exchanged(question) if not _how_it_is_older(question.facts, each)])


def _seen(exchanged: list[tuple[ShadowedLibrary, str]]) -> Iterator[Seen]:
    """What was exchanged, and one answer for all: the folders that lead there, and no others, leave the path."""
    folders = tuple(dict.fromkeys(each.entry for each, _ in exchanged))
    for each, order in exchanged:
        yield Seen(
            saw=f"{each.name}, needed by {posixpath.basename(each.requested_by)}, comes from {plain(each.path)} "
            f"(LD_LIBRARY_PATH) instead of {plain(each.instead_of)}{order}",
            answers=(chain(Unwire(folders, WiredBy.LIBRARY_PATH)),),
        )


def _exchanged(question: Question) -> Iterator[ShadowedLibrary]:
    """CUDA libraries that LD_LIBRARY_PATH puts in the place of torch's own."""
    facts = question.facts
    if isinstance(facts.torch_libraries, Unknown) or isinstance(facts.torch, Unknown):
        return
    for each in (*facts.torch_libraries.value.shadowed, *_found_there_only(question)):
        if re.fullmatch(_NVIDIA, each.name) is None or each.name.startswith(DRIVERS_OWN):
            continue
        if not _is_preloaded(facts.torch.value, each):
            yield each


def _how_it_is_older(facts: Facts, each: ShadowedLibrary) -> str:
    """'it is of CUDA 12.2, torch of 12.4' where the foreign file is known to be older; '' where not or not known.

    By the two files' own versions where both are known, else by the toolkit it lies in and the CUDA of torch.
    """
    versions = {plain(one.path): one.version.value for one in facts.cuda_libraries.libraries
                if isinstance(one.version, Known)}  # fmt: skip
    foreign, own = (
        versions.get(plain(each.path), ""),
        _wheel_version(facts, each) or versions.get(plain(each.instead_of), ""),
    )
    if foreign and own:
        return f"it is {foreign}, torch's own is {own}" if _numbers(foreign) < _numbers(own) else ""
    cuda = facts.torch.value.wheel_cuda if isinstance(facts.torch, Known) else Unknown("no torch")
    for toolkit in facts.toolkits.toolkits:
        homes = (toolkit.path, *toolkit.found_by)
        if isinstance(toolkit.version, Unknown) or isinstance(cuda, Unknown):
            continue
        if any(plain(each.path).startswith(f"{home}/") for home in homes if home.startswith("/")):
            release = toolkit.version.value.release
            return f"it is of CUDA {release}, torch of {cuda.value}" if release < cuda.value.release else ""
    return ""


def _wheel_version(facts: Facts, each: ShadowedLibrary) -> str:
    folder = posixpath.dirname(plain(each.instead_of))
    wheels = (one for one in facts.nvidia_wheels if isinstance(one.library_folder, Known))
    found = [one.version for one in wheels if one.library_folder.value == folder]  # type: ignore[union-attr]
    return found[0] if len(found) == 1 else ""  # nvidia/cu13/lib is the folder of many wheels


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())


def _found_there_only(question: Question) -> Iterator[ShadowedLibrary]:
    """Names that the loader finds through LD_LIBRARY_PATH alone, although a wheel with them is installed.

    Without LD_LIBRARY_PATH the loader fails, and torch then opens the wheel's file by path.
    """
    libraries = question.facts.torch_libraries
    if isinstance(libraries, Unknown):
        return
    shadowed = {each.name for each in libraries.value.shadowed}
    for each in libraries.value.loaded:
        if each.found_by is not FoundBy.LIBRARY_PATH or each.name in shadowed or stem(each.name) not in PRELOADED:
            continue
        wheel = wheel_with(question, each.name)
        if wheel is not None and isinstance(wheel.library_folder, Known):
            own = f"{wheel.library_folder.value}/{each.name}"
            if posixpath.normpath(own) != plain(each.path):
                yield ShadowedLibrary(each.name, each.path, each.entry, own, first_of(each.requested_by))


def _is_preloaded(torch: TorchInstall, each: ShadowedLibrary) -> bool:
    if "/nvidia/" not in plain(each.instead_of):  # not from a wheel
        return False
    if is_at_least(torch, _PRELOADS_ALL_SINCE):
        return stem(each.name) in PRELOADED
    return is_at_least(torch, _PRELOADS_SOME_SINCE) and stem(each.name) in _PRELOADED_FIRST


def is_at_least(torch: TorchInstall, release: tuple[int, int]) -> bool:
    return isinstance(torch.version, Known) and torch.version.value.release[:2] >= release


def first_of(names: tuple[str, ...]) -> str:
    """The first name; "" where a document of facts has none."""
    return names[0] if names else ""


def plain(path: str) -> str:
    """The path without the '..' of torch's search paths."""
    return posixpath.normpath(path)


LIBRARY_PATH_RULES = (
    Rule(
        check=library_path_breaks,
        severity=Severity.BLOCKS,
        depth=50,
        title="LD_LIBRARY_PATH puts an older CUDA library in the place of torch's own.",
        fires_when="A CUDA library of torch's closure comes from LD_LIBRARY_PATH, is older than the file that would be "
        "loaded without it, and torch does not open its own first.",
        looks_at=(
            "torch_libraries.shadowed",
            "torch_libraries.loaded",
            "nvidia_wheels",
            "torch.version",
            "torch.wheel_cuda",
            "toolkits.toolkits",
            "cuda_libraries.libraries",
        ),
        means="Libraries of a newer CUDA release are given an older library: importing torch, or the first call into "
        "it, fails with a symbol that is not there.",
        error="ImportError: ...: undefined symbol: __nvJitLinkComplete_..., version libnvJitLink.so...",
        source="github.com/pytorch/pytorch/issues/140797",
        ways=(Unwire,),
        explains=("library-path-shadows",),
    ),
    Rule(
        check=library_path_shadows,
        severity=Severity.DEGRADES,
        depth=50,
        title="LD_LIBRARY_PATH puts another CUDA library in the place of torch's own.",
        fires_when="A CUDA library of torch's closure comes from LD_LIBRARY_PATH while another file would be loaded "
        "without it, it is not known to be older, and torch does not open its own first.",
        looks_at=("torch_libraries.shadowed", "torch_libraries.loaded", "nvidia_wheels", "torch.version"),
        needs=("torch",),
        means=(
            "A library of another CUDA release runs under torch's; what that changes in results or speed was never "
            "tested. An older one breaks the import."
        ),
        error="ImportError: ...: undefined symbol: __nvJitLinkComplete_..., version libnvJitLink.so...",
        source="github.com/pytorch/pytorch/issues/140797",
        ways=(Unwire,),
    ),
)
