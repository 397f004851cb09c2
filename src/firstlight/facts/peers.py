"""What several GPUs need of the machine to speak to each other and to the network: modules, limits, NUMA, ACS."""

from __future__ import annotations

import re
import struct

from firstlight.facts.gpus import Gpu, GpuFacts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.present import is_there
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_PCI = "/sys/bus/pci/devices"
_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_RDMA = "/sys/class/infiniband"
_PEERMEM = ("/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem")
_GDRCOPY = "/dev/gdrdrv"
_GDRCOPY_LIBRARIES = tuple(
    f"/usr/{folder}/libgdrapi.so.2" for folder in ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64")
)
_LIMITS = "/proc/self/limits"
_STATUS = "/proc/self/status"
_NO_LIMIT = 1 << 62
_CONFIG = 4096
_ACS, _REDIRECTS = 0x0D, 0b1100  # extended capability; request and completion redirect
_ALONE = "not looked at: fewer than two GPUs"


@dataclass(frozen=True, slots=True)
class PeerPlace:
    """Where one GPU hangs: gpu-0, NUMA node 1, behind 0000:15:01.0, which redirects what peers send."""

    gpu: str
    numa_node: Fact[int]
    redirecting: Fact[tuple[str, ...]]  # bridges above it with ACS redirection on; read by root alone


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """Looked at where two GPUs or more are; Unknown elsewhere."""

    places: tuple[PeerPlace, ...]
    rdma_devices: Fact[int]  # InfiniBand and RoCE adapters
    peermem_loaded: Fact[bool]
    gdrcopy_library: Fact[bool]  # whether the library is installed that goes through gdrdrv
    gdrcopy_loaded: Fact[bool]  # whether gdrdrv has its node
    locked_memory_bytes: Fact[int]  # what a process may lock; 4611686018427387904 for no limit
    processor_nodes: Fact[tuple[int, ...]]  # NUMA nodes on whose processors this process may run


def probe_peers(machine: Machine, gpus: GpuFacts) -> PeerFacts:
    """What stands between the GPUs of this machine."""
    if len(gpus.devices) < 2:
        none = Unknown(_ALONE)
        return PeerFacts((), none, none, none, none, none, none)
    adapters = machine.list(_RDMA)
    known = Known(len(adapters), _RDMA) if adapters else _counted(is_there(machine, _RDMA))
    return PeerFacts(
        places=tuple(_place(machine, gpu) for gpu in gpus.devices),
        rdma_devices=known,
        peermem_loaded=_either(is_there(machine, _PEERMEM[0]), is_there(machine, _PEERMEM[1])),
        gdrcopy_library=_any_of(machine, _GDRCOPY_LIBRARIES),
        gdrcopy_loaded=is_there(machine, _GDRCOPY),
        locked_memory_bytes=_locked_memory(machine),
        processor_nodes=_processor_nodes(machine),
    )


def _counted(there: Fact[bool]) -> Fact[int]:
    return Known(0, there.seen_in) if isinstance(there, Known) else there


def _either(one: Fact[bool], other: Fact[bool]) -> Fact[bool]:
    return other if isinstance(other, Known) and other.value else one


def _any_of(machine: Machine, paths: tuple[str, ...]) -> Fact[bool]:
    told = [is_there(machine, path) for path in paths]
    return next((each for each in told if isinstance(each, Known) and each.value), told[0])


def _place(machine: Machine, gpu: Gpu) -> PeerPlace:
    if isinstance(gpu.pci_address, Unknown):
        return PeerPlace(gpu.id, gpu.pci_address, gpu.pci_address)
    folder = f"{_PCI}/{gpu.pci_address.value}"
    return PeerPlace(gpu.id, _numa_node(machine, folder), _redirecting(machine, folder))


def _numa_node(machine: Machine, folder: str) -> Fact[int]:
    text = machine.read(f"{folder}/numa_node", limit=16)
    if text is None:
        return Unknown(f"{folder}/numa_node: {machine.why_not(f'{folder}/numa_node')}")
    number = text.strip()
    if not number.isdigit():
        return Unknown(f"{folder}/numa_node is {number[:8]}: the firmware does not say")
    return Known(int(number), f"{folder}/numa_node")


def _redirecting(machine: Machine, folder: str) -> Fact[tuple[str, ...]]:
    """Bridges on the way to a GPU whose ACS sends what one GPU writes to another over the processor."""
    way = re.findall(_ADDRESS, machine.real_path(folder))[:-1]
    if not way:
        return Unknown(f"{folder}: no bridge is on its way")
    found = []
    for address in way:
        path = f"{_PCI}/{address}/config"
        data = machine.read_bytes(path, size=_CONFIG)
        if data is None:
            return Unknown(f"{path}: {machine.why_not(path)}")
        if len(data) < _CONFIG:
            return Unknown(f"{path}: root alone reads all of it")
        if _acs_control(data) & _REDIRECTS:
            found.append(address)
    return Known(tuple(found), f"{_PCI}/*/config")


def _acs_control(config: bytes) -> int:
    """The control word of Access Control Services; 0 where a bridge has none."""
    at = 0x100
    for _ in range(48):
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[at + 6 : at + 8], "little")
        at = header >> 20
        if not 0x100 <= at <= _CONFIG - 8:
            break
    return 0


def _locked_memory(machine: Machine) -> Fact[int]:
    text = machine.read(_LIMITS, limit=8192)
    match = re.search(r"(?m)^Max locked memory\s+(\d{1,20}|unlimited)\s", text or "")
    if match is None:
        return Unknown(f"{_LIMITS}: {machine.why_not(_LIMITS) if text is None else 'no Max locked memory'}")
    value = match.group(1)
    return Known(_NO_LIMIT if value == "unlimited" else int(value), _LIMITS)


def _processor_nodes(machine: Machine) -> Fact[tuple[int, ...]]:
    """NUMA nodes with a processor that the scheduler may put us on."""
    text = machine.read(_STATUS, limit=8192) or ""
    match = re.search(r"(?m)^Cpus_allowed_list:\s*([\d,-]{1,4096})$", text)
    nodes = machine.list("/sys/devices/system/node", "node[0-9]*")
    if match is None or not nodes:
        return Unknown(f"{_STATUS} or /sys/devices/system/node says nothing of it")
    allowed = _numbers(match.group(1))
    found = []
    for name in nodes:
        there = machine.read(f"/sys/devices/system/node/{name}/cpulist", limit=4096) or ""
        if name[4:].isdigit() and allowed & _numbers(there.strip()):
            found.append(int(name[4:]))
    return Known(tuple(sorted(found)), _STATUS) if found else Unknown("no NUMA node has a processor of ours")


def _numbers(spans: str) -> set[int]:
    """{0, 1, 2, 8} of '0-2,8'."""
    found: set[int] = set()
    for span in spans.split(","):
        ends = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", span)
        if ends is not None:
            found |= set(range(int(ends.group(1)), int(ends.group(2) or ends.group(1)) + 1))
    return found
