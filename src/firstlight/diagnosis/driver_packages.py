"""Which driver this machine should have, by its GPUs: the branch, and Ubuntu's package with the module that fits."""

from __future__ import annotations

import re

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import pci_gpus
from firstlight.diagnosis.wheel_choice import gpus_of
from firstlight.facts.known import Known, value_or
from firstlight.frozen import dataclass
from firstlight.tables.gpu_rows import OpenModule

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


@dataclass(frozen=True, slots=True)
class _Chip:
    """A GPU with its architecture, e.g. NVIDIA GeForce GTX 1080 Ti, Pascal."""

    name: str
    architecture: str


def architecture_of_id(device_id: str) -> str:
    """The architecture of a PCI device id: Volta for 0x1db6; '' for the ids that are not listed."""
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,4}", device_id):
        return ""
    number = int(device_id, 16)
    return next((name for ids, name in _ARCHITECTURE_OF_ID if number in ids), "")


def driver_package(question: Question, branch: int) -> str:
    """Ubuntu's package, nvidia-driver-580-server-open; without -open for GPUs that the open modules do not drive."""
    return f"nvidia-driver-{_flavour(question, branch)}"


def signed_module_package(question: Question, branch: int) -> str:
    """Ubuntu's package of signed modules for the running kernel: linux-modules-nvidia-580-server-open-6.8.0-60."""
    return f"linux-modules-nvidia-{_flavour(question, branch)}-{question.facts.place.kernel_release}"


def branch_to_have(question: Question, floor: int = 0) -> int:
    """The branch supported longest of those from `floor` on that drive these GPUs; `floor` where none is known."""
    tables = question.tables
    month = question.facts.collected_at[:7]
    lives = [life for each in tables.driver_branches if (life := tables.branch_life(each.branch)) is not None]
    alive = [life for life in lives if life.supported_until >= month and floor <= life.branch]
    fitting = [life for life in alive if not why_not_branch(question, life.branch)]
    longest = max(fitting, key=lambda life: (life.supported_until, life.branch), default=None)
    return floor if longest is None else longest.branch


def why_not_branch(question: Question, branch: int) -> str:
    """Why a branch does not drive a GPU here, R590 and later no Volta; '' where nothing is known against it."""
    for chip in _chips(question):
        limit = question.tables.architecture_limit(chip.architecture)
        if limit is not None and limit.last_driver_branch < branch:
            return f"driver branch {limit.last_driver_branch} is the last one for {chip.name}"
    return ""


def branch_in_words(question: Question, floor: int) -> str:
    """'525 or newer'; '580, the last branch for NVIDIA TITAN V' where later ones do not drive a GPU here."""
    for chip in _chips(question):
        limit = question.tables.architecture_limit(chip.architecture)
        if limit is not None and limit.last_driver_branch >= floor:
            return f"{limit.last_driver_branch}, the last branch for {chip.name}"
    return f"{floor} or newer"


def open_only_gpus(question: Question) -> list[str]:
    """GPUs here that only the open module drives, by capability where NVML tells it, else by PCI id."""
    found = []
    for gpu in question.facts.gpus.devices:
        row = question.tables.capability(gpu.capability.value) if isinstance(gpu.capability, Known) else None
        module = question.tables.kernel_module(row.architecture) if row is not None else None
        if row is not None and module is not None and module.open_module is OpenModule.REQUIRED:
            found.append(f"{gpu.id} is {row.architecture}")
    if found:
        return found
    for device in pci_gpus(question.facts):
        text = value_or(device.device_id, "")
        if architecture_of_id(text) == "Blackwell":
            found.append(f"{device.address} is a Blackwell GPU (device {text}, /sys/bus/pci/devices)")
    return found


def _flavour(question: Question, branch: int) -> str:
    modules = (question.tables.kernel_module(chip.architecture) for chip in _chips(question))
    closed = any(row is not None and row.open_module is OpenModule.NOT_SUPPORTED for row in modules)
    return f"{branch}-server" if closed else f"{branch}-server-open"


def _chips(question: Question) -> tuple[_Chip, ...]:
    """The GPUs of known architecture, oldest first: by capability, else, where no driver tells it, by PCI id."""
    found = []
    for gpu in sorted(gpus_of(question), key=lambda each: each.capability):
        row = question.tables.capability(gpu.capability)
        if row is not None:
            found.append(_Chip(gpu.name, row.architecture))
    if found:
        return tuple(found)
    for device in pci_gpus(question.facts):
        device_id = value_or(device.device_id, "")
        if architecture := architecture_of_id(device_id):
            found.append(_Chip(f"{device.address} ({architecture}, device {device_id})", architecture))
    return tuple(found)
