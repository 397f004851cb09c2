"""What starts the kernel and builds its modules here: the tool of the early image, dkms, akmods, weak-modules."""

from __future__ import annotations

import enum
import re

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.presence import presence
from firstlight.frozen import dataclass
from firstlight.machine import Machine


class EarlyImage(enum.Enum):
    """What writes the initramfs."""

    INITRAMFS_TOOLS = "initramfs-tools"
    DRACUT = "dracut"
    MKINITCPIO = "mkinitcpio"


class ModuleBuilder(enum.Enum):
    """What makes modules fit a kernel that was not here when they were installed."""

    DKMS = "dkms"  # builds on this machine, from source
    AKMODS = "akmods"  # builds packages on this machine, of Fedora and its relatives
    WEAK_UPDATES = "weak-updates"  # links modules of one kernel to the next one that can take them


_VARIANT_FILE = "/etc/nvidia/kernel.conf"
_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
# The configuration comes first: a package may bring one tool's program beside the other's image.
_EARLY = (
    (EarlyImage.INITRAMFS_TOOLS, ("/etc/initramfs-tools/initramfs.conf",)),
    (EarlyImage.DRACUT, tuple(f"{folder}/dracut" for folder in _FOLDERS)),
    (EarlyImage.MKINITCPIO, tuple(f"{folder}/mkinitcpio" for folder in _FOLDERS)),
    (EarlyImage.INITRAMFS_TOOLS, ("/usr/sbin/update-initramfs",)),
)
_BUILDERS = (
    (ModuleBuilder.DKMS, tuple(f"{folder}/dkms" for folder in _FOLDERS)),
    (ModuleBuilder.AKMODS, tuple(f"{folder}/akmods" for folder in _FOLDERS)),
    (ModuleBuilder.WEAK_UPDATES, tuple(f"{folder}/weak-modules" for folder in _FOLDERS)),
)


@dataclass(frozen=True, slots=True)
class BootFacts:
    """How the kernel of this system gets its early image and its modules, e.g. dracut, akmods."""

    early_image: Fact[EarlyImage]
    module_builders: Fact[tuple[ModuleBuilder, ...]]
    module_variant: Fact[str]  # what akmods or dkms is told to build where packages leave it to a file: kernel-open


def probe_boot_system(machine: Machine) -> BootFacts:
    """The tools, by their files; nothing is run."""
    return BootFacts(
        early_image=_early_image(machine), module_builders=_builders(machine), module_variant=_variant(machine)
    )


def _early_image(machine: Machine) -> Fact[EarlyImage]:
    why = ""
    for tool, paths in _EARLY:
        found = presence(machine, *paths)
        if isinstance(found, Unknown):
            why = why or found.reason
        elif found.value:
            return Known(tool, seen_in=found.seen_in)
    return Unknown(why or "neither update-initramfs nor dracut nor mkinitcpio is here")


def _variant(machine: Machine) -> Fact[str]:
    """The source tree that negativo17's packages build the modules from: kernel, or kernel-open."""
    text = machine.read(_VARIANT_FILE, limit=4096)
    if text is None:
        return Unknown(f"{_VARIANT_FILE}: {machine.why_not(_VARIANT_FILE)}")
    match = re.search(r"(?m)^[^#\n]*\b(kernel(?:-open)?)$", text)
    return Unknown(f"{_VARIANT_FILE} names no variant") if match is None else Known(match.group(1), _VARIANT_FILE)


def _builders(machine: Machine) -> Fact[tuple[ModuleBuilder, ...]]:
    found = [(builder, presence(machine, *paths)) for builder, paths in _BUILDERS]
    there = tuple(builder for builder, seen in found if isinstance(seen, Known) and seen.value)
    unknown = [seen.reason for _, seen in found if isinstance(seen, Unknown)]
    if unknown and not there:
        return Unknown(unknown[0])
    return Known(there, seen_in=", ".join(seen.seen_in for _, seen in found if isinstance(seen, Known) and seen.value)
                 or "no dkms, akmods or weak-modules")  # fmt: skip
