"""Signs of trouble that can be read without privileges: Xid events, memory errors, throttling, the NVLink fabric."""

from __future__ import annotations

import enum
import re

from firstlight.errors import BadVersion
from firstlight.facts.driver import DriverFacts
from firstlight.facts.gpus import GpuFacts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.nvml import NvmlAnswer, Readings
from firstlight.frozen import dataclass
from firstlight.machine import Completed, Machine, Outcome
from firstlight.versions import DriverVersion

MOST_XIDS = 50
MOST_MESSAGES = 20
_LINE_LIMIT = 200
_LOG_FILES = ("/var/log/kern.log", "/var/log/syslog", "/var/log/messages")
_LOG_FILE_LIMIT = 64 << 20
# A log starts with its oldest lines, so more than the newest 50 are asked for.
_LOG_MATCHES = 2000
_LOG_PATTERN = rb"(?:NVRM: |nvidia-nvswitch\d+: S)Xid \([^\n]{1,300}"
_DMESG = (("dmesg", "--kernel", "--time-format", "iso"), ("dmesg",))
# The line that greets a freshly loaded module names the user and host that built it: not kept.
_DMESG_KEEP = r"NVRM: (?!loading )|SXid"
_NOT_PERMITTED = "not permitted"
# Expressions are compiled when first used: most machines have no line to try them on.
_XID = r"\b(S?)Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)]*\): (\d{1,6})(?:,\s*(.*))?"
_WHOSE = r"pid='?[^,']*'?,\s*(?:name=[^,]*,\s*)?"  # the process is nobody else's business
_ISO_TIME = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.,\d]*(?:[+-]\d\d:?\d\d|Z)?\s"
_NVRM = r"NVRM: (.*)"
_TROUBLE = (
    r"(?i)fail|mismatch|requires use|fallen off|error|denied|unable|cannot|not supported|probe routine|already bound"
    r"|no nvidia"
)
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


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One fault the driver logged: 79 at 0000:18:00, "GPU has fallen off the bus"; those of NVSwitches are SXid."""

    family: str  # "Xid" or "SXid"
    code: int
    pci: str
    text: str
    when: Fact[str]  # 2026-11-15T02:38:25, in the machine's own time


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
        log = _kernel_log(machine)
    else:
        log = Unknown("no NVIDIA device")
    program = _fabric_manager(machine)
    return HealthFacts(
        xids=_xids(log),
        driver_messages=_messages(log),
        gpus=tuple(_gpu_health(said, gpu.id) for said, gpu in zip(_readings(nvml, gpus), gpus.devices, strict=True)),
        persistence_daemon=Known(machine.stat(_PERSISTENCED) is not None, _PERSISTENCED),
        fabric_manager=program,
        fabric_manager_version=_fabric_manager_version(machine, program),
        fabric_manager_running=_fabric_manager_running(machine),
        secure_boot=_secure_boot(machine),
    )


def _kernel_log(machine: Machine) -> Fact[tuple[str, ...]]:
    """The driver's lines in the kernel log: from dmesg, or from a log file where dmesg is not for everybody."""
    done = _dmesg(machine)
    if done.ok:
        return Known(tuple(done.stdout.splitlines()), "dmesg")
    if done.outcome is Outcome.TOO_MUCH_OUTPUT:  # the buffer of a large server; its oldest part was read
        return Known(tuple(done.stdout.splitlines()), "dmesg (its first part)")
    reasons = [done.complaint]
    for path in _LOG_FILES:
        seen = machine.stat(path)
        if seen is None:
            continue
        if seen.size > _LOG_FILE_LIMIT:
            reasons.append(f"{path}: too large to search")
        elif seen.size == 0:
            return Known((), path)
        elif (found := machine.search(path, _LOG_PATTERN, limit=_LOG_MATCHES)) is not None:
            return Known(tuple(line.decode("utf-8", "replace") for line in found), path)
        else:
            reasons.append(f"{path}: {machine.why_not(path)}")
    return Unknown("; ".join(reasons))


def _dmesg(machine: Machine) -> Completed:
    """dmesg with times; a dmesg that does not know the options (BusyBox) is asked without."""
    done = machine.run(_DMESG[0], keep=_DMESG_KEEP)
    if done.outcome is Outcome.EXITED and not done.ok and _NOT_PERMITTED not in done.stderr.lower():
        return machine.run(_DMESG[1], keep=_DMESG_KEEP)
    return done


def _xids(log: Fact[tuple[str, ...]]) -> Fact[tuple[XidEvent, ...]]:
    if isinstance(log, Unknown):
        return log
    events = [_xid_event(line, match) for line in log.value if (match := re.search(_XID, line)) is not None]
    return Known(tuple(events[-MOST_XIDS:]), log.seen_in)


def _xid_event(line: str, match: re.Match[str]) -> XidEvent:
    stamp = re.match(_ISO_TIME, line)
    return XidEvent(
        family=f"{match.group(1)}Xid",
        code=int(match.group(3)),
        pci=match.group(2).lower(),
        text=re.sub(_WHOSE, "", match.group(4) or "").strip()[:_LINE_LIMIT],
        when=Unknown("the line carries no date") if stamp is None else Known(stamp.group(1), "dmesg"),
    )


def _messages(log: Fact[tuple[str, ...]]) -> Fact[tuple[str, ...]]:
    """Complaints that are no Xid, each once, without the time: ("GPU 0000:18:00.0: RmInitAdapter failed! (0x26)",)."""
    if isinstance(log, Unknown):
        return log
    found: dict[str, None] = {}
    for line in log.value:
        match = re.search(_NVRM, line)
        if match is not None and re.search(_TROUBLE, match.group(1)) and not re.search(_XID, line):
            text = re.sub(_WHOSE, "", match.group(1)).strip()[:_LINE_LIMIT]
            found.pop(text, None)  # a message that came again counts as new
            found[text] = None
    return Known(tuple(found)[-MOST_MESSAGES:], log.seen_in)


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
