"""The GPUs: as NVML, nvidia-smi or the driver names them, and as the PCI bus shows them with no driver at all."""

from __future__ import annotations

import enum
import re

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.nvml import MOST_DEVICES, NvmlAnswer, Readings
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import ComputeCapability

_PCI = "/sys/bus/pci/devices"
_PCI_TABLE = "/proc/bus/pci/devices"
_PROC_GPUS = "/proc/driver/nvidia/gpus"
_COMPATIBLE = "/proc/device-tree/compatible"
_NVIDIA = "0x10de"
_TEGRA = r"nvidia,(tegra\d+)"
_ADDRESS = r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_MIG_PROFILE = r"\bMIG (\S+)$"
_MPS_FOLDER = "/tmp/nvidia-mps"  # noqa: S108 where the MPS daemon puts its pipes unless told otherwise
# NVML_DEVICE_ARCH_* of nvidia-ml-py 13.615.71
_ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}


class ComputeMode(enum.Enum):
    """Who may use a GPU; PROHIBITED makes every CUDA context fail."""

    DEFAULT = "default"
    EXCLUSIVE_THREAD = "exclusive-thread"
    PROHIBITED = "prohibited"
    EXCLUSIVE_PROCESS = "exclusive-process"


class Virtualization(enum.Enum):
    """How a GPU came to this machine."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    VGPU = "vgpu"
    HOST_VGPU = "host-vgpu"
    HOST_VSGA = "host-vsga"


class PciKind(enum.Enum):
    """What an NVIDIA device on the bus is, by its PCI class."""

    GPU = "gpu"
    VIRTUAL = "virtual function"  # of a GPU that is cut for virtual machines by SR-IOV
    NVSWITCH = "nvswitch"
    OTHER = "other"  # the audio and USB functions of a graphics card


_DISPLAY, _BRIDGE = "0x03", "0x0680"  # PCI class 03 is every kind of display controller, 3D ones included


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A slice of a GPU, e.g. profile 1g.18gb."""

    name: Fact[str]
    profile: Fact[str]
    uuid: Fact[str]
    memory_bytes: Fact[int]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, e.g. gpu-0, NVIDIA H200, capability 9.0; every field may be unknown (a Jetson's NVML tells few)."""

    id: str
    name: Fact[str]
    capability: Fact[ComputeCapability]
    architecture: Fact[str]
    brand: Fact[int]  # nvmlBrandType_t: 5 GeForce, 14 NVIDIA
    memory_bytes: Fact[int]
    uuid: Fact[str]
    pci_address: Fact[str]  # as in /sys/bus/pci/devices: 0000:18:00.0
    pci_device_id: Fact[str]  # 0x2335
    nvml_code: Fact[int]  # of its NVML handle: 0, or 15 for a GPU that is lost
    mig_mode: Fact[bool]
    mig_pending: Fact[bool]
    mig_devices: tuple[MigDevice, ...]
    ecc_mode: Fact[bool]
    ecc_pending: Fact[bool]
    power_limit_w: Fact[float]
    power_default_w: Fact[float]
    power_max_w: Fact[float]
    clock_sm_mhz: Fact[int]
    clock_sm_max_mhz: Fact[int]
    clock_memory_mhz: Fact[int]
    clock_memory_max_mhz: Fact[int]
    persistence_mode: Fact[bool]
    compute_mode: Fact[ComputeMode]
    virtualization: Fact[Virtualization]
    pcie_generation: Fact[int]
    pcie_generation_max: Fact[int]
    pcie_width: Fact[int]
    pcie_width_max: Fact[int]


@dataclass(frozen=True, slots=True)
class PciDevice:
    """An NVIDIA device on the PCI bus: 0000:18:00.0, device 0x2335, gpu, bound to the driver nvidia."""

    address: str
    device_id: Fact[str]
    kind: PciKind
    driver: Fact[str]


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The GPUs of a machine and what the environment does to who sees them."""

    count: Fact[int]
    devices: tuple[Gpu, ...]
    pci: tuple[PciDevice, ...]
    tegra_chip: Fact[str]  # tegra234 on a Jetson Orin, whose GPU is part of the chip
    cuda_visible_devices: Fact[str]
    nvidia_visible_devices: Fact[str]
    cuda_device_order: Fact[str]
    mps_pipe_directory: Fact[str]
    mps_control: Fact[str]  # the MPS daemon's control pipe, where there is one


def probe_gpus(machine: Machine, nvml: NvmlAnswer) -> GpuFacts:
    """Every GPU that can be seen, e.g. one NVIDIA H200 by NVML and by PCI address."""
    tegra = _tegra_chip(machine)
    count, found = nvml.count, nvml.devices
    if isinstance(count, Unknown):
        count, found = _from_proc(machine, count)
    if isinstance(count, Unknown) and isinstance(tegra, Known):
        lacking = Readings({}, tegra.seen_in, absent=f"{tegra.value} has a GPU, but {count.reason}")
        count, found = Known(1, tegra.seen_in), (lacking,)
    pipes = _env(machine, "CUDA_MPS_PIPE_DIRECTORY")
    return GpuFacts(
        count=count,
        devices=tuple(_gpu(readings, place) for place, readings in enumerate(found)),
        pci=_pci_devices(machine),
        tegra_chip=tegra,
        cuda_visible_devices=_env(machine, "CUDA_VISIBLE_DEVICES"),
        nvidia_visible_devices=_env(machine, "NVIDIA_VISIBLE_DEVICES"),
        cuda_device_order=_env(machine, "CUDA_DEVICE_ORDER"),
        mps_pipe_directory=pipes,
        mps_control=_mps_control(machine, pipes.value if isinstance(pipes, Known) else _MPS_FOLDER),
    )


def _gpu(said: Readings, place: int) -> Gpu:
    index = said.number("index")
    return Gpu(
        id=f"gpu-{index.value if isinstance(index, Known) else place}",
        name=said.text("name"),
        capability=_capability(said),
        architecture=_architecture(said),
        brand=said.number("brand"),
        memory_bytes=said.number("memory_bytes"),
        uuid=_uuid(said),
        pci_address=_pci_address(said),
        pci_device_id=_pci_device_id(said),
        nvml_code=said.number("code"),
        mig_mode=said.flag("mig_mode"),
        mig_pending=said.flag("mig_pending"),
        mig_devices=tuple(_mig_device(each) for each in said.inside("mig_devices")),
        ecc_mode=said.flag("ecc_mode"),
        ecc_pending=said.flag("ecc_pending"),
        power_limit_w=_watts(said, "power_limit_mw"),
        power_default_w=_watts(said, "power_default_mw"),
        power_max_w=_watts(said, "power_max_mw"),
        clock_sm_mhz=said.number("clock_sm_mhz"),
        clock_sm_max_mhz=said.number("clock_sm_max_mhz"),
        clock_memory_mhz=said.number("clock_memory_mhz"),
        clock_memory_max_mhz=said.number("clock_memory_max_mhz"),
        persistence_mode=said.flag("persistence_mode"),
        compute_mode=said.member("compute_mode", ComputeMode),
        virtualization=said.member("virtualization", Virtualization),
        pcie_generation=said.number("pcie_generation"),
        pcie_generation_max=said.number("pcie_generation_max"),
        pcie_width=said.number("pcie_width"),
        pcie_width_max=said.number("pcie_width_max"),
    )


def _capability(said: Readings) -> Fact[ComputeCapability]:
    major, minor = said.number("capability_major"), said.number("capability_minor")
    if isinstance(major, Unknown):
        return major
    if isinstance(minor, Unknown):
        return minor
    if major.value == 0:
        return Unknown(f"{said.source}: compute capability 0.{minor.value}")
    return Known(ComputeCapability(major.value, minor.value), major.seen_in)


def _architecture(said: Readings) -> Fact[str]:
    number = said.number("architecture")
    if isinstance(number, Unknown):
        return number
    return Known(_ARCHITECTURES.get(number.value, f"number {number.value}"), number.seen_in)


def _uuid(said: Readings) -> Fact[str]:
    uuid = said.text("uuid")
    if isinstance(uuid, Known) and "?" in uuid.value:  # the driver writes GPU-???????? until a GPU is first used
        return Unknown(f"{uuid.seen_in}: not read yet")
    return uuid


def _pci_address(said: Readings) -> Fact[str]:
    """The address as sysfs writes it: 00000000:18:00.0 (NVML's form) is 0000:18:00.0."""
    address = said.text("pci_address")
    if isinstance(address, Unknown):
        return address
    match = re.fullmatch(_ADDRESS, address.value.lower())
    if match is None:
        return Unknown(f"{said.source}: {address.value!a} is not a PCI address")
    return Known(f"{int(match.group(1), 16):04x}:{match.group(2)}", address.seen_in)


def _pci_device_id(said: Readings) -> Fact[str]:
    """NVML gives device and vendor in one number: 0x233510de is 0x2335."""
    number = said.number("pci_device_id")
    return Known(f"0x{number.value >> 16:04x}", number.seen_in) if isinstance(number, Known) else number


def _watts(said: Readings, name: str) -> Fact[float]:
    number = said.number(name)
    return Known(number.value / 1000, number.seen_in) if isinstance(number, Known) else number


def _mig_device(said: Readings) -> MigDevice:
    name = said.text("name")
    match = re.search(_MIG_PROFILE, name.value) if isinstance(name, Known) else None
    profile = Unknown(f"{said.source}: the name holds no profile") if match is None else Known(match[1], said.source)
    return MigDevice(name, profile, said.text("uuid"), said.number("memory_bytes"))


def _from_proc(machine: Machine, why: Unknown) -> tuple[Fact[int], tuple[Readings, ...]]:
    """GPUs the loaded driver lists, for when neither NVML nor nvidia-smi speaks."""
    names = machine.list(_PROC_GPUS, "*:*")[:MOST_DEVICES]
    found = []
    for name in names:
        path = f"{_PROC_GPUS}/{name}/information"
        text = machine.read(path, limit=8192) or ""
        lines = (line.partition(":") for line in text.splitlines())
        told = {key.strip(): value.strip() for key, _, value in lines}
        values: dict[str, object] = {"pci_address": told.get("Bus Location", name)}
        if told.get("Model", "Unknown") != "Unknown":
            values["name"] = told["Model"]
        if "GPU UUID" in told:
            values["uuid"] = told["GPU UUID"]
        found.append(Readings(values, path, absent=why.reason))
    if not found:
        return Unknown(f"{why.reason}; no GPU in {_PROC_GPUS}"), ()
    return Known(len(found), _PROC_GPUS), tuple(found)


def _pci_devices(machine: Machine) -> tuple[PciDevice, ...]:
    return tuple(
        _pci_device(machine, address)
        for address in _pci_candidates(machine)
        if (machine.read(f"{_PCI}/{address}/vendor", limit=64) or "").strip() == _NVIDIA
    )


def _pci_candidates(machine: Machine) -> tuple[str, ...]:
    """Addresses that may be NVIDIA's. The kernel's one-file table spares reading `vendor` of hundreds of devices."""
    names = machine.list(_PCI, "*:*:*.*")
    table = machine.read(_PCI_TABLE)
    if table is None:
        return names
    places = set()  # "18:00.0": the table has bus and slot, but not the domain, so the vendor is read once more
    for line in table.splitlines():
        cells = line.split("\t", 2)
        if len(cells) == 3 and cells[1].startswith("10de") and re.fullmatch("[0-9a-f]{4}", cells[0]):
            slot = int(cells[0][2:], 16)
            places.add(f"{cells[0][:2]}:{slot >> 3:02x}.{slot & 7}")
    return tuple(name for name in names if name[-7:] in places)


def _pci_device(machine: Machine, address: str) -> PciDevice:
    folder = f"{_PCI}/{address}"
    code = (machine.read(f"{folder}/class", limit=64) or "").strip()[:6]
    device = (machine.read(f"{folder}/device", limit=64) or "").strip()
    link = f"{folder}/driver"
    unbound = machine.stat(link) is None
    return PciDevice(
        address=address,
        device_id=Known(device, f"{folder}/device") if device else Unknown(f"{folder}/device cannot be read"),
        kind=_pci_kind(machine, folder, code),
        driver=Unknown("no driver is bound to it")
        if unbound
        else Known(machine.real_path(link).rpartition("/")[2], link),
    )


def _pci_kind(machine: Machine, folder: str, code: str) -> PciKind:
    if code == _BRIDGE:
        return PciKind.NVSWITCH
    if not code.startswith(_DISPLAY):
        return PciKind.OTHER
    return PciKind.GPU if machine.stat(f"{folder}/physfn") is None else PciKind.VIRTUAL


def _tegra_chip(machine: Machine) -> Fact[str]:
    text = machine.read(_COMPATIBLE, limit=4096)
    if text is None:
        return Unknown(f"{_COMPATIBLE}: {machine.why_not(_COMPATIBLE)}")
    match = re.search(_TEGRA, text)
    return Unknown("not a Tegra chip") if match is None else Known(match.group(1), _COMPATIBLE)


def _env(machine: Machine, name: str) -> Fact[str]:
    value = machine.env(name)
    return Unknown(f"{name} is not set") if value is None else Known(value[:1000], name)


def _mps_control(machine: Machine, folder: str) -> Fact[str]:
    if not folder.startswith("/"):
        return Unknown(f"CUDA_MPS_PIPE_DIRECTORY is {folder[:200]!a}, not an absolute path")
    path = f"{folder.rstrip('/')}/control"
    return Unknown(f"no {path}") if machine.stat(path) is None else Known(path, path)
