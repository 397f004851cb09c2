"""What each entry of CUDA_VISIBLE_DEVICES names: a GPU, a MIG slice, nothing that is here, or nothing CUDA reads."""

from __future__ import annotations

import enum
import re

from firstlight.facts.gpus import GpuFacts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass

MOST_ENTRIES = 64
_OLD_FORM = r"MIG-GPU-[0-9a-fA-F-]+/\d+/\d+"
_MASKED = ("gpu-other", "mig-other")  # what a recording has in place of an id that is of no GPU here


class Named(enum.Enum):
    """What an entry of the mask is."""

    NUMBER = "a number"
    GPU = "a GPU that is here"
    SLICE = "a MIG slice that is here"
    OTHER_GPU = "a GPU that is not here"
    OTHER_SLICE = "a MIG slice that is not here"
    OLD_SLICE = "a MIG slice in the form of drivers before 470"
    NOTHING = "no form that CUDA reads"


@dataclass(frozen=True, slots=True)
class MaskEntry:
    """One entry of CUDA_VISIBLE_DEVICES, e.g. MIG-... , a MIG slice that is not here."""

    text: str
    names: Named


def mask_entries(gpus: GpuFacts) -> tuple[MaskEntry, ...]:
    """The entries of CUDA_VISIBLE_DEVICES with what they name; () where it is not set."""
    mask = gpus.cuda_visible_devices
    if not isinstance(mask, Known):
        return ()
    whole = [gpu.uuid.value for gpu in gpus.devices if isinstance(gpu.uuid, Known)]
    slices = [part.uuid.value for gpu in gpus.devices for part in gpu.mig_devices if isinstance(part.uuid, Known)]
    entries = [each.strip() for each in mask.value.split(",")][:MOST_ENTRIES]
    return tuple(MaskEntry(each[:80], _named(each, whole, slices)) for each in entries if each)


def _named(entry: str, whole: list[str], slices: list[str]) -> Named:
    """The beginning of an id is enough for CUDA, where only one begins so."""
    if re.fullmatch(r"-?\d{1,6}", entry):
        return Named.NUMBER
    if re.fullmatch(_OLD_FORM, entry):
        return Named.OLD_SLICE
    lowered = entry.lower()
    if lowered.startswith("mig-"):
        here = lowered not in _MASKED and any(each.lower().startswith(lowered) for each in slices)
        return Named.SLICE if here else Named.OTHER_SLICE
    if lowered.startswith("gpu-"):
        here = lowered not in _MASKED and any(each.lower().startswith(lowered) for each in whole)
        return Named.GPU if here else Named.OTHER_GPU
    return Named.NOTHING
