"""A class of machines in words, `--for "H100, driver >= 550"`: the GPUs, and the oldest driver that counts."""

from __future__ import annotations

import re

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.tables.other_makers import other_maker
from firstlight.versions import ComputeCapability, DriverVersion

_DRIVER = re.compile(r"driver\s*(?:>=|==|=)?\s*(\d{3}(?:\.\d+)*)", re.IGNORECASE)
_COUNTED = re.compile(r"([1-9]\d?)\s*x\s+", re.IGNORECASE)
DEFAULT_ARCH = "x86_64"
_EXAMPLE = 'e.g. --for "H100, driver >= 550"'


@dataclass(frozen=True, slots=True)
class ClassGpu:
    """A GPU of the class, e.g. H100, capability 9.0."""

    name: str
    capability: ComputeCapability
    host_arch: str = ""  # aarch64 for a GH200, which has its processor on board; "" = any
    count: int = 1  # 8 of "8x H200"
    product: str = ""  # NVIDIA GeForce RTX 4070, where one of several products that the row stands for was named


@dataclass(frozen=True, slots=True)
class MachineClass:
    """Machines that take the same wheels: these GPUs, a driver no older than this one."""

    text: str  # as given
    gpus: tuple[ClassGpu, ...]
    driver: DriverVersion


def parse_machine_class(text: str, tables: Tables) -> MachineClass:
    """The class that was named; what is neither a GPU of the tables nor a driver is refused."""
    gpus: list[ClassGpu] = []
    drivers: list[str] = []
    for part in (each.strip() for each in text.split(",")):
        if match := _DRIVER.fullmatch(part):
            drivers.append(match[1])
        else:
            gpus.append(_gpu(part, text, tables=tables))
    if not gpus or len(drivers) != 1:
        what = "no GPU" if not gpus else ("no driver" if not drivers else f"{len(drivers)} drivers")
        raise BadInput(f"--for {_shown(text)}: {what} in it; accepted: GPUs and the oldest driver, {_EXAMPLE}.")
    return MachineClass(text.strip(), tuple(gpus), _oldest(drivers[0], tables))


def arch_of(named: MachineClass, asked: str = "") -> str:
    """The processor of the class: as asked, else aarch64 for GPUs that come with an Arm one alone, else x86_64."""
    bound = [gpu for gpu in named.gpus if gpu.host_arch]
    if not bound:
        return asked or DEFAULT_ARCH
    arch, name = bound[0].host_arch, bound[0].name
    if asked and asked != arch:
        raise BadInput(f"--platform {_shown(asked)}: every machine with {name} is {arch}; accepted: --platform {arch}.")
    others = [gpu.name for gpu in named.gpus if not gpu.host_arch]
    if others and not asked:
        raise BadInput(
            f"--for {_shown(named.text)}: every machine with {name} is {arch}, most with {others[0]} are "
            f"{DEFAULT_ARCH}, and wheels are for one of the two. Give --platform {arch} where all are, else make one "
            "for each."
        )
    return arch


def _gpu(part: str, text: str, *, tables: Tables) -> ClassGpu:
    counted = _COUNTED.match(part)
    number, name = ("1", part) if counted is None else (counted.group(1), part[counted.end() :])
    spellings = [f"{before}{each}" for each in (name, name.upper()) for before in ("", "NVIDIA ", "NVIDIA GeForce ")]
    for spelling in spellings:
        row = tables.gpu_named(spelling) if name else None
        if row is not None:
            product = "" if name.lower() == row.model.lower() else f"NVIDIA {spelling.removeprefix('NVIDIA ')}"
            return ClassGpu(row.model, row.capability, row.host_arch, int(number), product)
    if maker := other_maker(part):
        raise BadInput(
            f"--for {_shown(text)}: {_shown(part)} is {maker}'s; accepted: GPUs of NVIDIA that `firstlight tables gpu` "
            f"lists and the oldest driver, {_EXAMPLE}."
        )
    raise BadInput(
        f"--for {_shown(text)}: {_shown(part)} is neither a GPU that the tables know nor a driver; accepted: GPUs of "
        f"`firstlight tables gpu` and the oldest driver, {_EXAMPLE}."
    )


def _oldest(text: str, tables: Tables) -> DriverVersion:
    """The driver as given; of a branch alone its first release, where a CUDA major began with it."""
    driver = DriverVersion.parse(text)
    if len(driver.parts) > 1:
        return driver
    floors = [row.min_driver_same_major for row in tables.cuda_majors]
    # compared as 570.0, printed as it was given: nobody said 570.00
    return next((floor for floor in floors if floor.branch == driver.branch), DriverVersion((driver.branch, 0), text))


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")
