"""The GPU system processor (GSP): whether the driver uses it, and whether its firmware is on this disk."""

from __future__ import annotations

import re

from firstlight.facts.driver import DriverFacts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.present import is_there
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_PARAMETERS = "/proc/driver/nvidia/params"
_FIRMWARE = "/lib/firmware/nvidia"


@dataclass(frozen=True, slots=True)
class GspFacts:
    """What there is of GSP firmware, e.g. ("gsp_ga10x.bin", "gsp_tu10x.bin") of the loaded driver."""

    setting: Fact[int]  # NVreg_EnableGpuFirmware: 0 is off, 18 leaves it to the driver
    firmware: Fact[tuple[str, ...]]  # files of the loaded version


def probe_gsp(machine: Machine, driver: DriverFacts) -> GspFacts:
    """Setting and files; the driver loads the firmware of its own version alone."""
    return GspFacts(_setting(machine), _firmware(machine, driver))


def _setting(machine: Machine) -> Fact[int]:
    text = machine.read(_PARAMETERS, limit=16 << 10)
    match = re.search(r"(?m)^EnableGpuFirmware:\s*(\d{1,6})$", text or "")
    if match is None:
        return Unknown(f"{_PARAMETERS}: {machine.why_not(_PARAMETERS) if text is None else 'no EnableGpuFirmware'}")
    return Known(int(match.group(1)), _PARAMETERS)


def _firmware(machine: Machine, driver: DriverFacts) -> Fact[tuple[str, ...]]:
    if isinstance(driver.kernel_version, Unknown):
        return Unknown("no driver is loaded")
    folder = f"{_FIRMWARE}/{driver.kernel_version.value}"
    names = machine.list(folder, "gsp*.bin*")
    if names:
        return Known(names, folder)
    there = is_there(machine, _FIRMWARE)
    if isinstance(there, Known) and there.value:
        return Known((), folder)
    return Unknown(f"no {_FIRMWARE}" if isinstance(there, Known) else there.reason)
