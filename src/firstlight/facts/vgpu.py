"""A virtual GPU in a guest: its licence, the daemon that fetches it, and what that daemon logged."""

from __future__ import annotations

import enum
import re

from firstlight.facts.gpus import Gpu, GpuFacts, Virtualization
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.nvml import NvmlAnswer, Readings
from firstlight.facts.present import is_there
from firstlight.facts.services import ServiceState, service_log, service_state
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_UNIT = "nvidia-gridd"
_DAEMON = "/usr/bin/nvidia-gridd"
_SETTINGS = "/etc/nvidia/gridd.conf"
_TOKENS = "/etc/nvidia/ClientConfigToken"
_NOT_A_GUEST = "no GPU here is a virtual one"
# A slice of a board is named after it, its gigabytes and its series: L4-12Q, A100-40C, GRID T4-2B, H100XM-80C.
_SLICE = r"-\d{1,3}[ABCQ]$"
_LOG_KEEP = r"(?i)licen|fail|error|server|token|expire|clock|time"
_QUERY = ("nvidia-smi", "-q")
_QUERY_KEEP = r"vGPU Software Licensed Product|GRID Licensed Product|License Status|^GPU "
_STATUS = r"(?m)^\s*License Status\s*:\s*(.+?)\s*$"


class LicenceState(enum.Enum):
    """NVML's states of a licence in its order; without one a virtual GPU is slowed down after a while."""

    UNKNOWN = "not known"
    UNINITIALIZED = "not asked for yet"
    UNRESTRICTED = "none, full speed for now"
    RESTRICTED = "none, slowed down"
    UNLICENSED = "none"
    LICENSED = "there"


_IN_WORDS = {
    "unlicensed (unrestricted)": LicenceState.UNRESTRICTED,
    "unlicensed (restricted)": LicenceState.RESTRICTED,
    "unlicensed": LicenceState.UNLICENSED,
}


@dataclass(frozen=True, slots=True)
class Licence:
    """The licence of one virtual GPU, e.g. gpu-0, NVIDIA RTX Virtual Workstation, there."""

    gpu: str
    product: Fact[str]
    state: Fact[LicenceState]
    expires: Fact[str]  # 2026-11-17


@dataclass(frozen=True, slots=True)
class VgpuFacts:
    """What a guest with a virtual GPU knows of its licence; all of it Unknown where no GPU is virtual."""

    guest: Fact[bool]
    licences: tuple[Licence, ...]
    software: Fact[bool]  # whether the driver is one for guests: it comes with settings for licences
    daemon: Fact[bool]  # whether nvidia-gridd, which fetches the licence, is installed
    service: Fact[ServiceState]
    token: Fact[bool]  # whether a client configuration token lies where the daemon looks for it
    server_named: Fact[bool]  # whether gridd.conf names a licence server, the older way
    log: Fact[tuple[str, ...]]  # the newest lines of the daemon that speak of the licence


def probe_vgpu(machine: Machine, nvml: NvmlAnswer, gpus: GpuFacts) -> VgpuFacts:
    """Whether a GPU here is a virtual one, and how it stands with its licence."""
    found = [gpu for gpu in gpus.devices if is_virtual(gpu)]
    software = is_there(machine, _SETTINGS) if gpus.devices or gpus.pci else Unknown("no GPU here")
    if not found:
        none = Unknown(_NOT_A_GUEST)
        return VgpuFacts(_guest(gpus), (), software, none, none, none, none, none)
    licences = _licences(machine, nvml, gpus, found)
    if licences and all(value_or(each.state, None) is LicenceState.LICENSED for each in licences):
        none = Unknown("not looked at: there is a licence")
        return VgpuFacts(_seen(found[0]), licences, software, none, none, none, none, none)
    return VgpuFacts(
        guest=_seen(found[0]),
        licences=licences,
        software=software,
        daemon=is_there(machine, _DAEMON),
        service=service_state(machine, _UNIT),
        token=_token(machine),
        server_named=_server_named(machine),
        log=service_log(machine, _UNIT, keep=_LOG_KEEP),
    )


def is_virtual(gpu: Gpu) -> bool:
    """Whether a GPU is a slice that a hypervisor cut: NVML says so, or else its name does."""
    kind = gpu.virtualization
    if isinstance(kind, Known):
        return kind.value is Virtualization.VGPU
    return isinstance(gpu.name, Known) and re.search(_SLICE, gpu.name.value) is not None


def _seen(gpu: Gpu) -> Known[bool]:
    kind = gpu.virtualization
    return Known(value=True, seen_in=kind.seen_in if isinstance(kind, Known) else f"the name of {gpu.id}")


def _guest(gpus: GpuFacts) -> Fact[bool]:
    told = [gpu.virtualization for gpu in gpus.devices if isinstance(gpu.virtualization, Known)]
    return Known(value=False, seen_in=told[0].seen_in) if told else Unknown("no GPU says how it came here")


def _licences(machine: Machine, nvml: NvmlAnswer, gpus: GpuFacts, found: list[Gpu]) -> tuple[Licence, ...]:
    by_place = dict(zip((gpu.id for gpu in gpus.devices), nvml.devices, strict=False))
    licences = []
    for gpu in found:
        said = by_place[gpu.id].inside("licences") if gpu.id in by_place else ()
        licences += [_licence(gpu.id, each) for each in said if isinstance(each.number("state"), Known)]
    return tuple(licences) or _from_nvidia_smi(machine, found)


def _licence(gpu: str, said: Readings) -> Licence:
    return Licence(gpu, said.text("product"), said.member("state", LicenceState), said.text("expires"))


def _from_nvidia_smi(machine: Machine, found: list[Gpu]) -> tuple[Licence, ...]:
    """One licence for each virtual GPU in the order of `nvidia-smi -q`, where NVML has no word of it."""
    done = machine.run(_QUERY, keep=_QUERY_KEEP)
    if not done.ok:
        return ()
    told = re.findall(_STATUS, done.stdout)
    return tuple(
        Licence(gpu.id, Unknown("nvidia-smi -q was asked for the state"), *_state(status))
        for gpu, status in zip(found, told, strict=False)
    )


def _state(status: str) -> tuple[Fact[LicenceState], Fact[str]]:
    """('Licensed (Expiry: 2026-7-7 16:1:44 GMT)') is LICENSED with 2026-7-7."""
    where = "nvidia-smi -q"
    if status.startswith("Licensed"):
        until = re.search(r"Expiry: (\d{4}-\d{1,2}-\d{1,2})", status)
        expires = Unknown(f"{where} names no day") if until is None else Known(until.group(1), where)
        return Known(LicenceState.LICENSED, where), expires
    state = _IN_WORDS.get(status.lower())
    told = Unknown(f"{where}: License Status is {status[:40]!a}") if state is None else Known(state, where)
    return told, Unknown("there is no licence")


def _token(machine: Machine) -> Fact[bool]:
    if machine.list(_TOKENS, "*.tok"):
        return Known(value=True, seen_in=_TOKENS)
    folder = is_there(machine, _TOKENS)
    return Known(value=False, seen_in=_TOKENS) if isinstance(folder, Known) else folder


def _server_named(machine: Machine) -> Fact[bool]:
    text = machine.search(_SETTINGS, rb"(?m)^[ \t]*ServerAddress[ \t]*=[ \t]*\S", limit=1)
    if text is None:
        return Unknown(f"{_SETTINGS}: {machine.why_not(_SETTINGS)}")
    return Known(bool(text), _SETTINGS)
