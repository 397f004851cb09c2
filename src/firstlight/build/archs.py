"""Which GPUs the code is compiled for: from --archs or the GPUs here, checked against what the toolkit knows."""

from __future__ import annotations

import enum
import re

from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.versions import ComputeCapability, CudaVersion

_ARCH = re.compile(r"(\d{1,2})\.(\d)([af]?)(\+PTX)?", re.I)
AUTO = "auto"


class Ptx(enum.Enum):
    """Whether PTX goes into the file beside machine code."""

    WITH = "+PTX"
    WITHOUT = ""


@dataclass(frozen=True, slots=True)
class Arch:
    """9.0a, or 12.0 with PTX beside it."""

    capability: ComputeCapability
    suffix: str
    ptx: Ptx

    def __str__(self) -> str:
        return f"{self.capability}{self.suffix}{self.ptx.value}"

    @property
    def sm(self) -> str:
        return f"{self.capability.sm}{self.suffix}"

    @property
    def cmake(self) -> str:
        """As CMAKE_CUDA_ARCHITECTURES has it: 90a-real, or 120 where PTX comes too."""
        number = self.sm.removeprefix("sm_")
        return number if self.ptx is Ptx.WITH else f"{number}-real"


def parse_archs(text: str) -> tuple[Arch, ...]:
    """9.0a,12.0+PTX as typed; () for auto."""
    if text.strip().lower() == AUTO:
        return ()
    found: list[Arch] = []
    for word in re.split(r"[,; ]+", text.strip()):
        match = _ARCH.fullmatch(word)
        if match is None:
            raise BadInput(
                f"--archs {text!a}: {word!a} is not an architecture; accepted: auto, or e.g. 9.0a,12.0+PTX "
                "(major.minor, a or f behind it, +PTX behind that)."
            )
        capability = ComputeCapability.parse(f"{match[1]}.{match[2]}")
        found.append(Arch(capability, match[3].lower(), Ptx.WITH if match[4] else Ptx.WITHOUT))
    return tuple(dict.fromkeys(found))


def archs_here(facts: Facts) -> Fact[tuple[Arch, ...]]:
    """One architecture for each kind of GPU of the machine."""
    known = [gpu.capability.value for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)]
    if not known:
        return Unknown("no GPU tells its compute capability here, as in a build container")
    return Known(tuple(Arch(each, "", Ptx.WITHOUT) for each in sorted(dict.fromkeys(known))), seen_in="the GPUs here")


def unknown_to(archs: tuple[Arch, ...], toolkit: CudaVersion, tables: Tables) -> tuple[Arch, ...]:
    """Those that the toolkit cannot compile for; () also where the tables do not have that toolkit."""
    row = next((each for each in tables.toolkit_targets if each.toolkit == toolkit.release), None)
    return () if row is None else tuple(arch for arch in archs if arch.sm not in row.targets)


def what_ptx_buys(archs: tuple[Arch, ...]) -> str:
    """One sentence on what runs elsewhere with this choice."""
    with_ptx = [each for each in archs if each.ptx is Ptx.WITH]
    special = [each for each in archs if each.suffix == "a"]
    if with_ptx:
        return (
            f"{with_ptx[-1]}: PTX comes too; later GPUs compile it at first start, which takes minutes once, "
            "and the file is larger."
        )
    if special:
        return f"{special[0]}: code with the suffix a runs on exactly that GPU and on no later one."
    return "no PTX: the wheel runs on these GPUs and on no later generation; +PTX behind the last one changes that."
