"""Signs of trouble that can be read without privileges: Xid events, memory errors, throttling, the NVLink fabric."""

from __future__ import annotations

import enum
import re

from firstlight.errors import BadVersion
from firstlight.facts.driver import DriverFacts
from firstlight.facts.gpus import GpuFacts
from firstlight.facts.kernel_log import XidEvent, messages_in, probe_kernel_log, xids_in
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.nvml import NvmlAnswer, Readings
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import DriverVersion

_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_PERSISTENCED = "/run/nvidia-persistenced/socket"
_FABRIC_MANAGER = "/usr/bin/nv-fabricmanager"
_FABRIC_PID = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
_FABRIC_VERSION = r"version is\s*:\s*(\d[\d.]*)"
# nvmlClocksEventReason* of nvidia-ml-py 13.615.71; several may hold at once.
_THROTTLE = (
    (0x1, "idle"),
    (0x2, "application-clocks"),
    (0x4, "software-power-cap"),
    (0x8, "hardware-slowdown"),
    (0x10, "sync-boost"),
    (0x20, "software-thermal"),
    (0x40, "hardware-thermal"),
    (0x80, "hardware-power-brake"),
    (0x100, "display-clocks"),
    (0x200, "board-limit"),
    (0x400, "reliability"),
)


class FabricState(enum.Enum):
    """How far a GPU is with joining the NVLink fabric; CUDA gives error 802 until it is COMPLETED."""

    NOT_SUPPORTED = "not supported"
    NOT_STARTED = "not started"
    IN_PROGRESS = "in progress"
    COMPLETED = "completed"


WAITING = (FabricState.NOT_STARTED, FabricState.IN_PROGRESS)  # the fabric manager has not set the GPU up


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """The counters of one GPU, e.g. gpu-0 with ecc_uncorrected_volatile 0."""

    id: str
    temperature_c: Fact[int]
    throttle: Fact[tuple[str, ...]]  # ("software-power-cap",); () when it runs freely
    ecc_uncorrected_volatile: Fact[int]
    ecc_uncorrected_aggregate: Fact[int]
    rows_remapped_correctable: Fact[int]
    rows_remapped_uncorrectable: Fact[int]
    row_remap_pending: Fact[bool]
    row_remap_failure: Fact[bool]
    retired_pages_pending: Fact[bool]
    fabric_state: Fact[FabricState]
    fabric_status: Fact[int]  # an NVML code, 0 when the GPU joined


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """Signs of trouble, e.g. no Xid in the kernel log and Secure Boot off."""

    xids: Fact[tuple[XidEvent, ...]]  # the newest 50, oldest first
    driver_messages: Fact[tuple[str, ...]]  # other complaints of the driver, e.g. "RmInitAdapter failed"; newest 20
    gpus: tuple[GpuHealth, ...]
    persistence_daemon: Fact[bool]
    fabric_manager: Fact[str]  # its program
    fabric_manager_version: Fact[DriverVersion]  # must equal the driver's
    fabric_manager_running: Fact[bool]
    secure_boot: Fact[bool]


def probe_health(machine: Machine, nvml: NvmlAnswer, *, gpus: GpuFacts, driver: DriverFacts) -> HealthFacts:
    """What the kernel log, NVML's counters and the daemons' traces say of the machine's health."""
    if gpus.devices or gpus.pci or isinstance(driver.kernel_version, Known):
        log = probe_kernel_log(machine)
    else:
        log = Unknown("no NVIDIA device")
    program = _fabric_manager(machine)
    return HealthFacts(
        xids=xids_in(log),
        driver_messages=messages_in(log),
        gpus=tuple(_gpu_health(said, gpu.id) for said, gpu in zip(_readings(nvml, gpus), gpus.devices, strict=True)),
        persistence_daemon=Known(machine.stat(_PERSISTENCED) is not None, _PERSISTENCED),
        fabric_manager=program,
        fabric_manager_version=_fabric_manager_version(machine, program),
        fabric_manager_running=_fabric_manager_running(machine),
        secure_boot=_secure_boot(machine),
    )


def _readings(nvml: NvmlAnswer, gpus: GpuFacts) -> tuple[Readings, ...]:
    """NVML's readings of each GPU; GPUs that were found in another way have none."""
    none = Readings({}, "NVML", absent=nvml.system.absent)
    count = len(gpus.devices)
    return (*nvml.devices, *(none,) * count)[:count]


def _gpu_health(said: Readings, name: str) -> GpuHealth:
    return GpuHealth(
        id=name,
        temperature_c=said.number("temperature_c"),
        throttle=_throttle(said),
        ecc_uncorrected_volatile=said.number("ecc_uncorrected_volatile"),
        ecc_uncorrected_aggregate=said.number("ecc_uncorrected_aggregate"),
        rows_remapped_correctable=said.number("rows_correctable"),
        rows_remapped_uncorrectable=said.number("rows_uncorrectable"),
        row_remap_pending=said.flag("rows_pending"),
        row_remap_failure=said.flag("rows_failure"),
        retired_pages_pending=said.flag("retired_pages_pending"),
        fabric_state=said.member("fabric_state", FabricState),
        fabric_status=said.number("fabric_status"),
    )


def _throttle(said: Readings) -> Fact[tuple[str, ...]]:
    bits = said.number("throttle_bits")
    if isinstance(bits, Unknown):
        return bits
    names = [name for bit, name in _THROTTLE if bits.value & bit]
    if rest := bits.value & ~0x7FF:
        names.append(f"bits-{rest:#x}")
    return Known(tuple(names), bits.seen_in)


def _fabric_manager(machine: Machine) -> Fact[str]:
    found = machine.stat(_FABRIC_MANAGER)
    return Unknown(f"no {_FABRIC_MANAGER}") if found is None else Known(_FABRIC_MANAGER, _FABRIC_MANAGER)


def _fabric_manager_version(machine: Machine, program: Fact[str]) -> Fact[DriverVersion]:
    if isinstance(program, Unknown):
        return program
    done = machine.run((program.value, "--version"))
    match = re.search(_FABRIC_VERSION, done.stdout + done.stderr)
    try:
        if match is not None:
            return Known(DriverVersion.parse(match.group(1)), f"{program.value} --version")
    except BadVersion:
        pass  # what it printed is no version: the same as printing none
    return Unknown(done.complaint if not done.ok else f"{program.value} --version names no version")


def _fabric_manager_running(machine: Machine) -> Fact[bool]:
    """By its pid file and the name of that process; without a pid file nothing is claimed (containers see none)."""
    text = machine.read(_FABRIC_PID, limit=64)
    if text is None:
        return Unknown(f"{_FABRIC_PID}: {machine.why_not(_FABRIC_PID)}")
    number = text.strip()
    if not number.isascii() or not number.isdigit():
        return Unknown(f"{_FABRIC_PID} holds no process number")
    name = machine.read(f"/proc/{number}/comm", limit=64) or ""  # the kernel keeps 15 characters of a name
    return Known(name.startswith("nv-fabricmanage"), _FABRIC_PID)


def _secure_boot(machine: Machine) -> Fact[bool]:
    data = machine.read_bytes(_SECURE_BOOT, size=16)
    if data is None:
        why = machine.why_not(_SECURE_BOOT)
        return Unknown("no EFI variables" if why == "no such file" else f"{_SECURE_BOOT}: {why}")
    if len(data) != 5 or data[4] > 1:  # four bytes of attributes, then the value
        return Unknown(f"{_SECURE_BOOT} holds {len(data)} bytes that are no SecureBoot variable")
    return Known(data[4] == 1, _SECURE_BOOT)
