"""What kind of machine this is: server, Jetson, GB10 or WSL2; its operating system, kernel and maker."""

from __future__ import annotations

import enum
import re

from firstlight.facts.boot_system import BootFacts, probe_boot_system
from firstlight.facts.image_systems import ImageSystem, probe_image_system
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.os_release import probe_os_names
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_L4T = r"#\s*R(\d{1,3})\s*\(release\),\s*REVISION:\s*(\d{1,3}(?:\.\d{1,3}){0,2})\b"
_SOC = r"nvidia,(tegra\d{2,4})"
_DMI = "/sys/class/dmi/id"
# Every maker names its GB10 box differently in DMI; the GPU's PCI id is the same in all. 10de:2e12 is reported from
# DGX Sparks; NVIDIA's kernel reserves 2e00-2e3f for this chip (github.com/NVIDIA/NV-Kernels/pull/396).
_GB10_DEVICES = range(0x2E00, 0x2E40)


class Platform(enum.Enum):
    """The kinds of machine that take different wheels, drivers and libraries."""

    X86_64 = "x86_64"
    SBSA = "sbsa"  # an Arm server with a discrete GPU or Grace
    JETSON = "jetson"
    GB10 = "gb10"  # DGX Spark and its relatives
    WSL2 = "wsl2"
    WSL1 = "wsl1"  # no GPU there, whatever the driver


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """Where we are, e.g. a Jetson AGX Thor with L4T 38.2.0 and Ubuntu 24.04."""

    platform: Fact[Platform]
    arch: str
    kernel_release: str
    os_id: Fact[str]
    os_version: Fact[str]
    os_name: Fact[str]
    board_model: Fact[str]  # NVIDIA Jetson AGX Thor Developer Kit
    soc: Fact[str]  # tegra264
    l4t: Fact[str]  # 38.2.0
    tegra_libraries: Fact[str]  # the folder of the Jetson's own driver libraries
    wsl_libraries: Fact[str]  # /usr/lib/wsl/lib, where Windows puts its libcuda
    system_vendor: Fact[str]
    system_product: Fact[str]
    hypervisor: Fact[str]
    os_like: Fact[tuple[str, ...]]  # the systems it is made from: (ubuntu, debian)
    os_variant: Fact[str]  # silverblue, coreos, server
    os_codename: Fact[str]
    os_base: Fact[str]  # the release it is made from, by its name: noble, bookworm, el9
    image_based: Fact[ImageSystem]
    boot: BootFacts


def probe_place(machine: Machine) -> PlaceFacts:
    """The platform and what names it; a release file that cannot be read gives Unknown, never the newest release."""
    names = probe_os_names(machine)
    soc, board = _device_tree(machine)
    l4t = _l4t(machine)
    return PlaceFacts(
        platform=_platform(machine, soc=soc, l4t=l4t),
        arch=machine.host.arch,
        kernel_release=machine.host.kernel_release,
        os_id=names.id,
        os_version=names.version,
        os_name=names.name,
        board_model=board,
        soc=soc,
        l4t=l4t,
        tegra_libraries=_folder(machine, "/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu/tegra"),
        wsl_libraries=_folder(machine, "/usr/lib/wsl/lib"),
        system_vendor=_one_line(machine, f"{_DMI}/sys_vendor"),
        system_product=_one_line(machine, f"{_DMI}/product_name"),
        hypervisor=_hypervisor(machine),
        os_like=names.like,
        os_variant=names.variant,
        os_codename=names.codename,
        os_base=names.base,
        image_based=probe_image_system(machine, names),
        boot=probe_boot_system(machine),
    )


def _platform(machine: Machine, *, soc: Fact[str], l4t: Fact[str]) -> Fact[Platform]:
    """WSL by its kernel, Jetson by kernel or board, GB10 by the GPU on the bus, the rest by processor."""
    kernel, arch = machine.host.kernel_release, machine.host.arch
    if "microsoft" in kernel.lower():
        # WSL1 is 4.4.0-19041-Microsoft, WSL2 is 5.15.153.1-microsoft-standard-WSL2
        is_first = kernel.endswith("-Microsoft") and machine.stat("/dev/dxg") is None
        return Known(Platform.WSL1 if is_first else Platform.WSL2, seen_in=f"kernel {kernel}")
    if machine.stat("/dev/dxg") is not None and machine.stat("/usr/lib/wsl/lib") is not None:
        return Known(Platform.WSL2, seen_in="/dev/dxg and /usr/lib/wsl/lib")  # a kernel built by the user
    if arch == "aarch64":
        if "-tegra" in kernel:
            return Known(Platform.JETSON, seen_in=f"kernel {kernel}")
        if isinstance(soc, Known):
            return Known(Platform.JETSON, seen_in=soc.seen_in)
        if isinstance(l4t, Known):
            return Known(Platform.JETSON, seen_in=l4t.seen_in)
        return _gb10(machine) or Known(Platform.SBSA, seen_in="aarch64, neither Tegra nor GB10")
    if arch == "x86_64":
        return Known(Platform.X86_64, seen_in="x86_64")
    return Unknown(f"{arch} is neither x86_64 nor aarch64")


def _gb10(machine: Machine) -> Known[Platform] | None:
    release = "/etc/dgx-release"  # searched for one line: the file also holds the serial number
    if machine.search(release, rb'(?m)^DGX_NAME="DGX Spark"'):
        return Known(Platform.GB10, seen_in=release)
    for address in machine.list("/sys/bus/pci/devices"):
        folder = f"/sys/bus/pci/devices/{address}"
        if (machine.read(f"{folder}/vendor", limit=16) or "").strip() == "0x10de":
            device = (machine.read(f"{folder}/device", limit=16) or "").strip()
            if re.fullmatch(r"0x[0-9a-f]{4}", device) and int(device, 16) in _GB10_DEVICES:
                return Known(Platform.GB10, seen_in=f"{folder}/device")
    return None


def _device_tree(machine: Machine) -> tuple[Fact[str], Fact[str]]:
    """(system on chip, board), e.g. ('tegra264', 'NVIDIA Jetson AGX Thor Developer Kit'); masked inside Docker."""
    folder = "/proc/device-tree"
    board = _one_line(machine, f"{folder}/model")
    text = machine.read(f"{folder}/compatible", limit=4096)
    if text is None:
        return Unknown(f"{folder}/compatible: {machine.why_not(f'{folder}/compatible')}"), board
    for name in text.split("\0"):
        if match := re.fullmatch(_SOC, name):
            return Known(match.group(1), seen_in=f"{folder}/compatible"), board
    return Unknown(f"{folder}/compatible names no nvidia,tegra"), board


def _l4t(machine: Machine) -> Fact[str]:
    """Jetson Linux release, 38.2.0 for 'R38 (release), REVISION: 2.0'."""
    path = "/etc/nv_tegra_release"
    text = machine.read(path, limit=4096)
    if text is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    match = re.match(_L4T, text)
    if match is None:
        return Unknown(f"{path} does not start with '# R<number> (release), REVISION: <number>'")
    revision = match.group(2) if "." in match.group(2) else f"{match.group(2)}.0"
    return Known(f"{int(match.group(1))}.{revision}", seen_in=path)


def _hypervisor(machine: Machine) -> Fact[str]:
    xen = _one_line(machine, "/sys/hypervisor/type")
    if isinstance(xen, Known):
        return xen
    # The flags of the first processor lie in the first 4 KiB; Arm has no such flag.
    text = machine.read("/proc/cpuinfo", limit=4096)
    flags = re.search(r"(?m)^flags\s*:(.*)$", text or "")
    if flags is None:
        return Unknown("/proc/cpuinfo has no flags line and /sys/hypervisor/type is not there")
    if "hypervisor" in flags.group(1).split():
        return Known("present", seen_in="/proc/cpuinfo")
    return Known("none", seen_in="/proc/cpuinfo")


def _folder(machine: Machine, *paths: str) -> Fact[str]:
    for path in paths:
        found = machine.stat(path)
        if found is not None and found.kind == "folder":
            return Known(path, seen_in=path)
    return Unknown(f"no folder {paths[0]}")


def _one_line(machine: Machine, path: str) -> Fact[str]:
    text = machine.read(path, limit=256)
    if text is None:
        return Unknown(f"{path}: {machine.why_not(path)}")
    line = text.replace("\0", "\n").strip().partition("\n")[0].strip()
    return Known(line, seen_in=path) if line.isprintable() and line else Unknown(f"{path} holds no line of text")
