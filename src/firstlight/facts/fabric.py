"""The NVLink fabric beyond Fabric Manager: the subnet manager of NVLink 5, IMEX, and what the links themselves say."""

from __future__ import annotations

import re

from firstlight.errors import BadVersion
from firstlight.facts.driver import DriverFacts
from firstlight.facts.gpus import Gpu, GpuFacts, PciKind
from firstlight.facts.health import WAITING, FabricState, HealthFacts
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.nvml import NvmlAnswer
from firstlight.facts.present import is_there, runs_as
from firstlight.facts.services import ServiceState, service_log, service_state
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import DriverVersion

_SUBNET_MANAGER = "/opt/nvidia/nvlsm/sbin/nvlsm"
_SUBNET_PIDS = ("/run/nvidia-fabricmanager/nvlsm.pid", "/var/run/nvlsm.pid")
_MANAGER, _IMEX_UNIT = "nvidia-fabricmanager", "nvidia-imex"
_UMAD = "/sys/module/ib_umad"
_TROUBLE = r"(?i)error|fail|match|fatal|cannot|unable|not found|nvlsm|abort"
_IMEX = "/usr/bin/nvidia-imex"
_IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
_IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"
_VERSION = r"version is\s*:\s*(\d[\d.]*)"
_ALL_JOINED = "not asked: no GPU waits for the fabric"
_BLACKWELL = 10  # 10.0 and 10.3 are the data-center Blackwells, which have NVLink 5
# Two bits a field, from the lowest: 1 says that it is so (nvmlGpuFabricInfo_v2, health mask).
_HEALTH = ((0, "degraded bandwidth"), (2, "routes being recovered"), (4, "unhealthy routes"), (6, "access timeouts"))
_MISCONFIGURED = {
    2: "a wrong system GUID",
    3: "a wrong chassis number",
    4: "no partition",
    5: "too few NVLinks",
    6: "GPU firmware that does not fit",
    7: "a wrong place in the rack",
    8: "an invalid GPU state",
}


@dataclass(frozen=True, slots=True)
class FabricLink:
    """What a GPU says of its place in the fabric, e.g. gpu-3 with ("degraded bandwidth",)."""

    gpu: str
    complaints: Fact[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class FabricFacts:
    """What the fabric of NVSwitches needs besides Fabric Manager; Unknown where there is no fabric."""

    generation_five: Fact[bool]  # Blackwell GPUs on a fabric: NVLSM manages the switches together with Fabric Manager
    across_nodes: Fact[bool]  # GPUs of a rack (GB200, GB300): the managers run in the switch trays, IMEX on the nodes
    links: tuple[FabricLink, ...]
    subnet_manager: Fact[bool]  # whether NVLSM is installed
    subnet_manager_running: Fact[bool]
    umad_loaded: Fact[bool]  # ib_umad, through which NVLSM speaks to the switches
    manager: Fact[ServiceState]  # Fabric Manager's unit, asked where a GPU waits
    manager_log: Fact[tuple[str, ...]]  # its complaints, newest last
    imex: Fact[bool]  # whether it is installed
    imex_version: Fact[DriverVersion]
    imex_service: Fact[ServiceState]
    imex_nodes: Fact[int]  # how many nodes its settings name
    imex_channels: Fact[int]


def probe_fabric(
    machine: Machine, nvml: NvmlAnswer, *, gpus: GpuFacts, health: HealthFacts, driver: DriverFacts
) -> FabricFacts:
    """The fabric of this machine, e.g. eight B200 with NVLSM running."""
    on_fabric = any(
        isinstance(gpu.fabric_state, Known) and gpu.fabric_state.value is not FabricState.NOT_SUPPORTED
        for gpu in health.gpus
    )
    switched = any(device.kind is PciKind.NVSWITCH for device in gpus.pci)
    if not on_fabric and not switched:
        return _none("no GPU here says that it is on a fabric")
    five = any(_is_blackwell(gpu) for gpu in gpus.devices)
    rack = five and machine.host.arch == "aarch64"
    imex = is_there(machine, _IMEX)
    waits = any(value_or(gpu.fabric_state, None) in WAITING for gpu in health.gpus)
    return FabricFacts(
        generation_five=Known(five, "NVML"),
        across_nodes=Known(rack, f"NVML and {machine.host.arch}"),
        links=tuple(_links(nvml, gpus)),
        subnet_manager=is_there(machine, _SUBNET_MANAGER) if five else Unknown("these GPUs need none"),
        subnet_manager_running=_subnet_manager_runs(machine) if five else Unknown("these GPUs need none"),
        umad_loaded=is_there(machine, _UMAD) if five else Unknown("these GPUs need none"),
        manager=service_state(machine, _MANAGER) if waits else Unknown(_ALL_JOINED),
        manager_log=service_log(machine, _MANAGER, keep=_TROUBLE) if waits else Unknown(_ALL_JOINED),
        imex=imex,
        imex_version=_imex_version(machine, imex, driver) if rack else Unknown("not a GPU of a rack"),
        imex_service=service_state(machine, _IMEX_UNIT) if rack else Unknown("not a GPU of a rack"),
        imex_nodes=_imex_nodes(machine),
        imex_channels=_channels(machine),
    )


def _none(reason: str) -> FabricFacts:
    none = Unknown(reason)
    return FabricFacts(none, none, (), none, none, none, none, none, none, none, none, none, none)


def _is_blackwell(gpu: Gpu) -> bool:
    return isinstance(gpu.capability, Known) and gpu.capability.value.major == _BLACKWELL


def _links(nvml: NvmlAnswer, gpus: GpuFacts) -> list[FabricLink]:
    found = []
    for gpu, said in zip(gpus.devices, nvml.devices, strict=False):
        mask = said.number("fabric_health")
        if isinstance(mask, Unknown):
            found.append(FabricLink(gpu.id, mask))
            continue
        words = [name for shift, name in _HEALTH if (mask.value >> shift) & 3 == 1]
        wrong = _MISCONFIGURED.get((mask.value >> 8) & 0xF)
        found.append(FabricLink(gpu.id, Known((*words, *((wrong,) if wrong else ())), mask.seen_in)))
    return found


def _subnet_manager_runs(machine: Machine) -> Fact[bool]:
    told = [runs_as(machine, path, "nvlsm") for path in _SUBNET_PIDS]
    return next((each for each in told if isinstance(each, Known)), told[0])


def _imex_version(machine: Machine, found: Fact[bool], driver: DriverFacts) -> Fact[DriverVersion]:
    if not value_or(found, default=False) or isinstance(driver.kernel_version, Unknown):
        return Unknown(f"no {_IMEX}, or no driver to compare it with")
    done = machine.run((_IMEX, "--version"))
    match = re.search(_VERSION, done.stdout + done.stderr)
    try:
        if match is not None:
            return Known(DriverVersion.parse(match.group(1)), f"{_IMEX} --version")
    except BadVersion:
        pass  # what it printed is no version: the same as printing none
    return Unknown(done.complaint if not done.ok else f"{_IMEX} --version names no version")


def _imex_nodes(machine: Machine) -> Fact[int]:
    found = machine.search(_IMEX_NODES, rb"(?m)^[ \t]*[0-9A-Za-z]", limit=4096)  # not the addresses themselves
    return (
        Unknown(f"{_IMEX_NODES}: {machine.why_not(_IMEX_NODES)}") if found is None else Known(len(found), _IMEX_NODES)
    )


def _channels(machine: Machine) -> Fact[int]:
    names = machine.list(_IMEX_CHANNELS, "channel*")
    if names:
        return Known(len(names), _IMEX_CHANNELS)
    there = is_there(machine, _IMEX_CHANNELS)
    return Known(0, _IMEX_CHANNELS) if isinstance(there, Known) else there
