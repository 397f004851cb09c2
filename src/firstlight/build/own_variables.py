"""Variables by which a setup.py of its own kind is told its GPUs, its jobs and a folder that stays."""

from __future__ import annotations

import re
from collections.abc import Callable

from firstlight.build.archs import Arch
from firstlight.build.case import BuildCase
from firstlight.build.reads import ReadKind
from firstlight.facts.known import Known
from firstlight.frozen import dataclass

_OF_ARCHS = re.compile(r"(?!CMAKE_|.*(?:ROCM|HIP|OSX|IOS))(?:.*_)?(?:(?:CUDA_?)?ARCH(?:S|_LIST|ITECTURES)?|SMS?)$")


def _digits(archs: tuple[Arch, ...]) -> str:
    """90;100: flash-attn's setup.py splits there and knows no suffix."""
    return ";".join(each.sm.removeprefix("sm_") for each in archs)


def _numbers(archs: tuple[Arch, ...]) -> str:
    """9.0;10.0: natten's setup.py takes each for a number, and adds the suffix itself."""
    return ";".join(str(each.capability) for each in archs)


def _as_torch_has_them(archs: tuple[Arch, ...]) -> str:
    return ";".join(map(str, archs))


@dataclass(frozen=True, slots=True)
class ArchVariable:
    """FLASH_ATTN_CUDA_ARCHS, and how the GPUs stand in it."""

    name: str
    written: Callable[[tuple[Arch, ...]], str]


ARCH_VARIABLES = (
    ArchVariable("TORCH_CUDA_ARCH_LIST", _as_torch_has_them),
    ArchVariable("FLASH_ATTN_CUDA_ARCHS", _digits),
    ArchVariable("NATTEN_CUDA_ARCH", _numbers),
)
# natten's compiles in a temporary folder where this names none, so that nothing outlives a stop; `cmake --build` takes
# any generator there, and only Ninja writes down what it has built.
_FOLDER_OF_ITS_OWN = "NATTEN_BUILD_DIR"


def variables_of_the_tree(case: BuildCase, folder: str) -> dict[str, str]:
    """What this tree reads from the environment and nobody else sets."""
    found = {}
    if isinstance(case.archs, Known):
        found = {each.name: each.written(case.archs.value) for each in ARCH_VARIABLES if case.source.of(each.name)}
    if case.source.of(_FOLDER_OF_ITS_OWN):
        found |= {_FOLDER_OF_ITS_OWN: f"{folder}/build", "CMAKE_GENERATOR": "Ninja"}
    return found


def unknown_arch_variables(case: BuildCase) -> tuple[str, ...]:
    """Variables by which setup.py chooses GPUs in a way that is not known here, and that no --flag gives."""
    known = {each.name for each in ARCH_VARIABLES} | {flag.name for flag in case.flags}
    return tuple(
        name for name in case.source.names if _OF_ARCHS.match(name) and name not in known
        and any(each.kind is ReadKind.ENVIRONMENT for each in case.source.of(name))
    )  # fmt: skip
