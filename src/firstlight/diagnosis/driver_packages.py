"""Which driver this machine should have, by its GPUs: the branch, and the module that fits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import pci_gpus
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, value_or
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.tables.gpu_rows import OpenModule
from firstlight.ways.kinds import Flavour

LTS_BRANCH = 580  # supported until 2028-06
# By chip: envytools.readthedocs.io/en/latest/hw/pciid.html, pci-ids.ucw.cz/read/PC/10de. GM10x and GM20x lie around
# GP100 at 15f0; GV100 ends at 1dff and Turing begins with TU102 at 1e00. The ids in the driver's list of names end
# with Ada's at 28f8; 2b85, 2c31 and 2c58 are quoted beside the message "requires use of the NVIDIA open kernel
# modules" (github.com/NVIDIA/open-gpu-kernel-modules/issues/862).
_ARCHITECTURE_OF_ID = (
    (range(0x1340, 0x15F0), "Maxwell"),
    (range(0x15F0, 0x1600), "Pascal"),
    (range(0x1600, 0x1800), "Maxwell"),
    (range(0x1B00, 0x1D80), "Pascal"),
    (range(0x1D80, 0x1E00), "Volta"),
    (range(0x2900, 0x3000), "Blackwell"),
)
_SET_ASIDE = ("vfio-pci",)  # for virtual machines, whose driver is not this system's


@dataclass(frozen=True, slots=True)
class _Chip:
    """A GPU with its architecture, e.g. NVIDIA GeForce GTX 1080 Ti, Pascal."""

    name: str
    architecture: str
    label: str  # what a sentence calls it: gpu-0, or its address on the bus
    words: str  # what it is there


def architecture_of_id(device_id: str) -> str:
    """The architecture of a PCI device id: Volta for 0x1db6; '' for the ids that are not listed."""
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,4}", device_id):
        return ""
    number = int(device_id, 16)
    return next((name for ids, name in _ARCHITECTURE_OF_ID if number in ids), "")


def branch_to_have(question: Question, floor: int = 0) -> int:
    """The branch supported longest of those from `floor` on that drive these GPUs; `floor` where none is known."""
    tables = question.tables
    month = question.facts.collected_at[:7]
    lives = [life for each in tables.driver_branches if (life := tables.branch_life(each.branch)) is not None]
    alive = [life for life in lives if life.supported_until >= month and floor <= life.branch]
    fitting = [life for life in alive if not why_not_branch(question, life.branch)]
    longest = max(fitting, key=lambda life: (life.supported_until, life.branch), default=None)
    return floor if longest is None else longest.branch


def branch_on_disk(facts: Facts) -> int:
    """The branch of the driver whose libraries lie here, loaded or not; 0: none is known."""
    library = facts.driver.nvml_library_version
    if isinstance(library, Known):
        return library.value.branch
    own = (each.version for each in facts.libcuda.candidates if not (each.is_compat or each.is_stub))
    return next((each.value.branch for each in own if isinstance(each, Known)), 0)


def why_not_branch(question: Question, branch: int) -> str:
    """Why a branch does not drive a GPU here: R590 and later no Volta, 550 no Blackwell; '' where nothing is known."""
    for chip in _chips(question):
        limit = question.tables.architecture_limit(chip.architecture)
        if limit is not None and limit.last_driver_branch < branch:
            return f"driver branch {limit.last_driver_branch} is the last one for {chip.name}"
        first = _first_branch(question.tables, chip.architecture)
        if branch < first:
            return f"driver branch {first} is the first one for {chip.name}"
    return ""


def _first_branch(tables: Tables, architecture: str) -> int:
    """The driver of the first toolkit that has code for an architecture, e.g. 570 for Blackwell; 0: not known.

    Only of those that came with CUDA 12 and later: of older ones the first toolkits are not in the tables.
    """
    names = {
        f"sm_{row.capability.major}{row.capability.minor}"
        for row in tables.capabilities
        if row.architecture == architecture
    }
    with_code = [row.toolkit for row in tables.toolkit_targets if names & set(row.targets)]
    without = [row.toolkit for row in tables.toolkit_targets if not names & set(row.targets)]
    if not with_code or not any(each < min(with_code) for each in without):
        return 0
    row = tables.cuda_release(min(with_code))
    return 0 if row is None else row.driver_in_release_notes.branch


def open_only_gpus(question: Question) -> list[str]:
    """GPUs here that only the open module drives, by capability where NVML tells it, else by PCI id."""
    return [
        f"{chip.label} is {chip.words}" for chip in _chips(question) if _takes(question, chip) is OpenModule.REQUIRED
    ]


def closed_only_gpus(question: Question) -> list[str]:
    """GPUs here that the open module does not drive."""
    found = (chip for chip in _chips(question) if _takes(question, chip) is OpenModule.NOT_SUPPORTED)
    return [f"{chip.label} is {chip.words}" for chip in found]


def flavour_of(question: Question) -> Flavour:
    """The modules that drive all of these GPUs: the open ones, except where one is too old for them."""
    return Flavour.PROPRIETARY if closed_only_gpus(question) else Flavour.OPEN


def why_no_flavour(question: Question) -> str:
    """Why neither kind of module drives all GPUs here: one is too new for the one, one too old for the other."""
    new, old = open_only_gpus(question), closed_only_gpus(question)
    if not new or not old:
        return ""
    return f"{new[0]} and takes the open module alone, {old[0]} and takes the proprietary one alone"


def _takes(question: Question, chip: _Chip) -> OpenModule | None:
    row = question.tables.kernel_module(chip.architecture)
    return None if row is None else row.open_module


def _chips(question: Question) -> tuple[_Chip, ...]:
    """The GPUs of known architecture, oldest first: by capability, and by PCI id those that no driver tells of."""
    found, listed = [], set()
    for gpu in question.facts.gpus.devices:
        listed.add(value_or(gpu.pci_address, ""))
        row = question.tables.capability(gpu.capability.value) if isinstance(gpu.capability, Known) else None
        if row is not None and isinstance(gpu.capability, Known):
            name = value_or(gpu.name, gpu.id)
            found.append((gpu.capability.value, _Chip(name, row.architecture, gpu.id, row.architecture)))
    if not found:
        for seen in gpus_of(question):
            row = question.tables.capability(seen.capability)
            if row is not None:
                found.append((seen.capability, _Chip(seen.name, row.architecture, seen.name, row.architecture)))
    known = tuple(chip for _, chip in sorted(found, key=lambda each: each[0]))
    return (*known, *(chip for address, chip in _by_id(question) if address not in listed))


def _by_id(question: Question) -> Iterator[tuple[str, _Chip]]:
    for device in pci_gpus(question.facts):
        device_id = value_or(device.device_id, "")
        if (architecture := architecture_of_id(device_id)) and value_or(device.driver, "") not in _SET_ASIDE:
            name = f"{device.address} ({architecture}, device {device_id})"
            words = f"a {architecture} GPU (device {device_id}, /sys/bus/pci/devices)"
            yield device.address, _Chip(name, architecture, device.address, words)
