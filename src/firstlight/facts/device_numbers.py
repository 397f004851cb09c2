"""The numbers that the kernel gave NVIDIA's devices: a container's device rules name them, and uvm's changes."""

from __future__ import annotations

import re

from firstlight.frozen import dataclass
from firstlight.machine import Machine

_PATH = "/proc/devices"  # the kernel's own list; a container sees the host's
_LINE = r"(?m)^ *(\d{1,4}) (nvidia[\w-]*)$"


@dataclass(frozen=True, slots=True)
class DeviceNumber:
    """A major number and whose it is, e.g. 511 of nvidia-uvm."""

    name: str
    major: int


def probe_device_numbers(machine: Machine) -> tuple[DeviceNumber, ...]:
    """Character devices of NVIDIA's modules; () where none is loaded, or nobody looked."""
    # Only these lines: the rest of the file tells of other hardware.
    found = machine.search(_PATH, rb"(?m)^ *\d{1,4} nvidia[\w-]*$", limit=20) or ()
    lines = "\n".join(item.decode("ascii", "replace") for item in found)
    return tuple(DeviceNumber(name, int(major)) for major, name in re.findall(_LINE, lines))
