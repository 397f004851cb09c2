"""Parts for guests and fleets: distributions, firmware, services, packages, GPUs at given addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tools.machines import parts, wheels
from tools.machines.driver_parts import ERRORS, red_hat
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.wheels import TorchWheel

_UBUNTU_NAMES = {"18.04": ("18.04.6 LTS (Bionic Beaver)", "bionic"), "20.04": ("20.04.6 LTS (Focal Fossa)", "focal"),
                 "22.04": ("22.04.5 LTS (Jammy Jellyfish)", "jammy"),
                 "24.04": ("24.04.3 LTS (Noble Numbat)", "noble")}  # fmt: skip
_GLIBC = {"18.04": ("2.27", 25), "20.04": ("2.31", 28)}
_CUDA_OF_BRANCH = {440: "10.2", 450: "11.0", 460: "11.2", 470: "11.4", 510: "11.6", 525: "12.0", 531: "12.1",
                   535: "12.2", 540: "12.6", 550: "12.4", 560: "12.6", 565: "12.7", 570: "12.8", 575: "12.9",
                   580: "13.0", 590: "13.1", 595: "13.2", 610: "13.3"}  # fmt: skip
_WORDS = {**ERRORS, 34: ("CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"),
          35: ("CUDA_ERROR_INSUFFICIENT_DRIVER", "CUDA driver version is insufficient for CUDA runtime version"),
          46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"),
          805: ("CUDA_ERROR_MPS_CONNECTION_FAILED",
                "MPS client failed to connect to the MPS control daemon or the MPS server")}  # fmt: skip

# Red Hat's relatives and others: id -> (os-release without NAME and PRETTY_NAME, programs of the package manager)
_RELEASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "fedora-42": ('VERSION="42 (Workstation Edition)"\nID=fedora\nVERSION_ID=42\nVARIANT_ID=workstation\n'
                  'PLATFORM_ID="platform:f42"\n', ("/usr/bin/dnf", "/usr/bin/rpm", "/usr/bin/dracut")),
    "fedora-38": ('VERSION="38 (Server Edition)"\nID=fedora\nVERSION_ID=38\nVARIANT_ID=server\n'
                  'PLATFORM_ID="platform:f38"\n', ("/usr/bin/dnf", "/usr/bin/rpm", "/usr/bin/dracut")),
    "amzn-2023": ('VERSION="2023"\nID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"\nPLATFORM_ID="platform:al2023"\n',
                  ("/usr/bin/dnf", "/usr/bin/rpm", "/usr/bin/dracut")),
    "amzn-2": ('VERSION="2"\nID="amzn"\nID_LIKE="centos rhel fedora"\nVERSION_ID="2"\n',
               ("/usr/bin/yum", "/usr/bin/rpm", "/usr/bin/dracut")),
    "sles-15.6": ('VERSION="15-SP6"\nVERSION_ID="15.6"\nID="sles"\nID_LIKE="suse"\nVERSION_CODENAME=""\n',
                  ("/usr/bin/zypper", "/usr/bin/rpm", "/usr/bin/dracut")),
    "ol-8": ('VERSION="8.10"\nID="ol"\nID_LIKE="fedora"\nVARIANT_ID="server"\nVERSION_ID="8.10"\n'
             'PLATFORM_ID="platform:el8"\n', ("/usr/bin/dnf", "/usr/bin/rpm", "/usr/bin/dracut")),
    "cos-121": ('ID=cos\nVERSION=121\nVERSION_ID=121\nBUILD_ID=18867.199.28\nGOOGLE_CRASH_ID=Lakitu\n'
                'HOME_URL="https://cloud.google.com/container-optimized-os/docs"\nGOOGLE_METRICS_PRODUCT_ID=26\n', ()),
    "talos-1.11": ('ID=talos\nVERSION_ID=v1.11.5\nHOME_URL="https://www.talos.dev/"\n', ()),
}  # fmt: skip
_NAMES = {"fedora": "Fedora Linux", "amzn": "Amazon Linux", "sles": "SLES", "ol": "Oracle Linux Server",
          "cos": "Container-Optimized OS", "talos": "Talos"}  # fmt: skip
_OTHER_LIBC = {"fedora": ("2.41", 33), "amzn-2023": ("2.34", 29), "amzn-2": ("2.26", 24), "sles": ("2.38", 32),
               "ol": ("2.28", 25), "cos": ("2.37", 32), "talos": ("2.41", 33)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Placed:
    """A GPU and its place on the bus; the code is 0x030000 for a card with display outputs."""

    spec: GpuSpec
    address: str  # 0000:0a:00.0
    code: str = "0x030200"


def cuda_of(version: str) -> str:
    return _CUDA_OF_BRANCH[int(version.split(".", maxsplit=1)[0])]


def ubuntu(machine: Reconstruction, version: str, *, kernel: str = "", source: str) -> Reconstruction:
    """Ubuntu with its whole release file, apt, dpkg and systemd; also 18.04 and 20.04."""
    base = version if version in ("22.04", "24.04") else "22.04"
    parts.ubuntu(machine, base, source=SUPPOSED)
    name, codename = _UBUNTU_NAMES[version]
    text = (f'PRETTY_NAME="Ubuntu {name.split(" (")[0]}"\nNAME="Ubuntu"\nVERSION_ID="{version}"\nVERSION="{name}"\n'
            f"VERSION_CODENAME={codename}\nID=ubuntu\nID_LIKE=debian\n")  # fmt: skip
    machine.file("/etc/os-release", text, source=source)
    if version in _GLIBC:
        _older_libc(machine, *_GLIBC[version])
    return _debian_like(machine, kernel=kernel, source=source)


def debian(machine: Reconstruction, version: str, *, kernel: str = "", source: str) -> Reconstruction:
    """Debian 11, 12 or 13 with apt and dpkg."""
    codename, glibc, glibcxx = {"11": ("bullseye", "2.31", 28), "12": ("bookworm", "2.36", 30),
                                "13": ("trixie", "2.41", 33)}[version]  # fmt: skip
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    text = (f'PRETTY_NAME="Debian GNU/Linux {version} ({codename})"\nNAME="Debian GNU/Linux"\nVERSION_ID="{version}"\n'
            f'VERSION="{version} ({codename})"\nVERSION_CODENAME={codename}\nID=debian\n')  # fmt: skip
    machine.file("/etc/os-release", text, source=source)
    _older_libc(machine, glibc, glibcxx)
    return _debian_like(machine, kernel=kernel, source=source)


def _older_libc(machine: Reconstruction, glibc: str, glibcxx: int, *, folder: str = "") -> None:
    folder = folder or f"/usr/lib/{parts.triplet(machine)}"
    names = tuple(f"GLIBC_2.{number}" for number in range(17, int(glibc.split(".")[1]) + 1))
    machine.elf(f"{folder}/libc.so.6", ElfSpec(soname="libc.so.6", defines=names), source=SUPPOSED)
    stdcxx = tuple(f"GLIBCXX_3.4.{number}" for number in range(1, glibcxx + 1))
    machine.elf(f"{folder}/libstdc++.so.6", ElfSpec(soname="libstdc++.so.6", defines=stdcxx), source=SUPPOSED)


def _debian_like(machine: Reconstruction, *, kernel: str, source: str) -> Reconstruction:
    for program in ("/usr/bin/apt-get", "/usr/bin/dpkg", "/usr/sbin/update-initramfs"):
        machine.file(program, "", source=SUPPOSED)
    return running(machine, kernel or machine.host.kernel_release, source=source if kernel else SUPPOSED)


def running(machine: Reconstruction, kernel: str, *, source: str) -> Reconstruction:
    """The kernel that runs, systemd as the first process."""
    machine.host = replace(machine.host, kernel_release=kernel)
    machine.file("/proc/sys/kernel/osrelease", f"{kernel}\n", source=source)
    machine.file(f"/lib/modules/{kernel}/modules.dep", "", source=SUPPOSED)
    machine.file("/proc/1/comm", "systemd\n", source=SUPPOSED)
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    machine.file("/usr/bin/systemctl", "", source=SUPPOSED)
    return machine


def other(machine: Reconstruction, system: str, *, source: str) -> Reconstruction:
    """What the other parts wrote, as a system of _RELEASES has it: its release file, libraries in /usr/lib64."""
    name, version = system.split("-", 1)
    red_hat(machine, _NAMES[name], os_id=name, version=version, source=source)
    text, programs = _RELEASES[system]
    pretty = f'NAME="{_NAMES[name]}"\nPRETTY_NAME="{_NAMES[name]} {version}"\n'
    machine.file("/etc/os-release", pretty + text, source=source)
    glibc, glibcxx = _OTHER_LIBC[name if name != "amzn" else system]
    _older_libc(machine, glibc, glibcxx, folder="/usr/lib64")
    machine.without("/usr/bin/apt-get", "/usr/bin/dpkg", "/usr/sbin/update-initramfs", "/var/lib/dpkg")
    for program in programs:
        machine.file(program, "", source=SUPPOSED)
    return machine


def moved(machine: Reconstruction, old: str, new: str, *names: str) -> Reconstruction:
    """The driver's libraries of these names in another folder, and what the children say of their paths."""
    starts = tuple(f"{old}{name}." for name in names)
    for kept in (machine.files, machine.links, machine.sources):
        table: dict[str, Any] = kept
        for path in [path for path in table if path.startswith(starts)]:
            table[path.replace(old, new)] = table.pop(path)
    for script, said in machine.children.items():
        answer = {key: value.replace(old, new) if isinstance(value, str) else value
                  for key, value in said.answer.items()}  # fmt: skip
        machine.children[script] = replace(said, answer=answer)
    left = sorted(path for path in (*machine.files, *machine.links) if path.startswith("/usr/lib64/lib"))
    return parts.loader_cache(machine, *left)


def firmware(machine: Reconstruction, vendor: str, product: str, *, guest: str, source: str) -> Reconstruction:
    """DMI's words and the processor's flags; `guest` is "" on bare metal, else what systemd-detect-virt says."""
    machine.file("/sys/class/dmi/id/sys_vendor", f"{vendor}\n", source=source)
    machine.file("/sys/class/dmi/id/product_name", f"{product}\n", source=source)
    machine.file("/sys/class/dmi/id/board_vendor", f"{vendor}\n", source=source)
    flags = "fpu vme de pse msr avx avx2 avx512f" + (" hypervisor" if guest else "")
    machine.file("/proc/cpuinfo", f"processor\t: 0\nmodel name\t: a processor\nflags\t\t: {flags}\n", source=SUPPOSED)
    if guest == "xen":
        machine.file("/sys/hypervisor/type", "xen\n", source=source)
    return machine.command("systemd-detect-virt", f"{guest or 'none'}\n", status=0 if guest else 1)


def secure_boot(machine: Reconstruction, *, on: int, source: str) -> Reconstruction:
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    machine.file(variable, b"\x06\0\0\0" + bytes([on]), source=source)
    return machine.command("mokutil --sb-state", f"SecureBoot {'enabled' if on else 'disabled'}\n")


def unit(
    machine: Reconstruction, name: str, *, state: str = "active", sub: str = "running", result: str = "success",
    status: int = 0, log: tuple[str, ...] = (), source: str,
) -> Reconstruction:  # fmt: skip
    """A systemd service: its unit file, what systemctl says of it and the end of its log."""
    if state != "absent":
        machine.file(f"/usr/lib/systemd/system/{name}.service", f"[Unit]\nDescription={name}\n", source=source)
    load = "not-found" if state == "absent" else "loaded"
    shown = "inactive" if state == "absent" else state
    said = f"Result={result}\nExecMainStatus={status}\nLoadState={load}\nActiveState={shown}\nSubState={sub}\n"
    for spelled in (name, f"{name}.service"):
        keys = "ActiveState,SubState,Result,ExecMainStatus"
        plain = "".join(f"{line}\n" for line in said.splitlines() if not line.startswith("LoadState"))
        machine.command(f"systemctl show {spelled} --property={keys}", plain)
        machine.command(f"systemctl show {spelled} --property=LoadState,{keys}", said)
        machine.command(f"systemctl is-active {spelled}", f"{shown}\n", status=0 if shown == "active" else 3)
        text = "".join(f"{line}\n" for line in log) or "-- No entries --\n"
        machine.command(f"journalctl --unit={spelled} --lines=40 --no-pager --output=cat", text)
    machine.sources[f"{name}.service"] = source
    return machine


def package(machine: Reconstruction, name: str, version: str, *files: str, source: str) -> Reconstruction:
    """A package that dpkg installed, with its files."""
    machine.file(f"/var/lib/dpkg/info/{name}.list", "".join(f"{file}\n" for file in ("/.", *files)), source=source)
    status = machine.files.get("/var/lib/dpkg/status", b"").decode()
    entry = f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n"
    machine.file("/var/lib/dpkg/status", status + entry, source=source)
    for file in files:
        machine.command(f"dpkg -S {file}", f"{name}: {file}\n")
    return machine


def modules(machine: Reconstruction, *names: str, source: str = SUPPOSED) -> Reconstruction:
    """/proc/modules and /sys/module for these; the driver part itself writes nvidia and nvidia_uvm."""
    text = "".join(f"{name} 65536 0 - Live 0x0000000000000000\n" for name in names)
    machine.file("/proc/modules", machine.files.get("/proc/modules", b"").decode() + text, source=source)
    for name in names:
        machine.file(f"/sys/module/{name}/refcnt", "0\n", source=source)
    return machine


def gpus_at(machine: Reconstruction, version: str, *placed: Placed, source: str, kind: str = "open",
            **fields: Any) -> Reconstruction:  # fmt: skip
    """A driver and its GPUs where they really sit: bus, nodes, /proc/driver/nvidia/gpus and NVML's answer."""
    parts.driver(machine, version, kind=kind, source=source)
    parts.gpus(machine, version, *(each.spec for each in placed), source=source, **fields)
    machine.without("/sys/bus/pci/devices")
    devices: Any = machine.children["nvml"].answer["devices"]
    for index, each in enumerate(placed):
        bus(machine, each, driver="nvidia", source=source)
        devices[index]["pci_address"] = f"0000{each.address}"
        machine.file(f"/dev/nvidia{index}", "", source=SUPPOSED)
        text = f"Model: \t\t {each.spec.name}\nIRQ:   \t\t 100\nGPU UUID: \t {devices[index]['uuid']}\n"
        text += f"Bus Type: \t PCIe\nBus Location: \t {each.address}\nDevice Minor: \t {index}\nGPU Excluded:\t No\n"
        machine.file(f"/proc/driver/nvidia/gpus/{each.address}/information", text, source=SUPPOSED)
    modules(machine, "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia")
    smi_list(machine)
    return machine


def bus(machine: Reconstruction, each: Placed, *, driver: str = "", source: str) -> Reconstruction:
    """A GPU on the PCI bus, bound to a driver or to none."""
    folder = f"/sys/bus/pci/devices/{each.address}"
    for name, value in (("vendor", "0x10de"), ("device", each.spec.pci_device), ("class", each.code),
                        ("enable", "1" if driver else "0"), ("numa_node", "0")):  # fmt: skip
        machine.file(f"{folder}/{name}", f"{value}\n", source=source)
    if driver:
        machine.file(f"/sys/bus/pci/drivers/{driver}/module", "", source=source)
        machine.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{driver}", source=source)
    return machine


def smi_list(machine: Reconstruction) -> Reconstruction:
    """nvidia-smi -L from NVML's answer, MIG devices included."""
    text = ""
    devices: Any = machine.children["nvml"].answer.get("devices", [])
    for device in devices:
        text += f"GPU {device['index']}: {device['name']} (UUID: {device['uuid']})\n"
        for number, mig in enumerate(device.get("mig_devices", [])):
            text += f"  MIG {mig['name'].split('MIG ')[1]:<12} Device  {number}: (UUID: {mig['uuid']})\n"
    return machine.command("nvidia-smi -L", text or "No devices found.\n")


def no_devices(machine: Reconstruction, version: str, *, source: str, kind: str = "open", code: int = 100) -> None:
    """A module that is loaded and found no GPU it could start: NVML counts none, nvidia-smi says so."""
    parts.driver(machine, version, kind=kind, source=source)
    machine.without("/dev/nvidia0")
    library = f"/usr/lib/{parts.triplet(machine)}/libnvidia-ml.so.{version}"
    machine.child("nvml", {"init": {"code": 0}, "library": library, "driver_version": version, "count": 0,
                           "devices": []})  # fmt: skip
    machine.sources["the nvml child"] = source
    machine.every_call_of("nvidia-smi", "No devices were found\n", status=6)
    modules(machine, "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia")
    cuda_fails(machine, version, code)


def cuda_fails(machine: Reconstruction, version: str, code: int, *, path: str = "") -> Reconstruction:
    name, text = _WORDS[code]
    path = path or f"/usr/lib/{parts.triplet(machine)}/libcuda.so.{version}"
    return parts.cuda_fails(machine, path, cuda=cuda_of(version), code=code, name=name, text=text)


def cuda_works(machine: Reconstruction, version: str, *specs: GpuSpec) -> Reconstruction:
    path = f"/usr/lib/{parts.triplet(machine)}/libcuda.so.{version}"
    return parts.cuda_answers(machine, path, cuda=cuda_of(version), specs=specs)


def torch_for(machine: Reconstruction, wheel: TorchWheel, *, python: str, source: str = SUPPOSED) -> Reconstruction:
    """torch in the system's Python of this version, e.g. 3.10, with the wheel's tag."""
    machine.host = replace(machine.host, python_version=f"{python}.12")
    short = "cp" + python.replace(".", "")
    tag = f"{short}-{short}-manylinux1_x86_64" if machine.host.arch == "x86_64" else f"{short}-{short}-linux_aarch64"
    folder = wheels.system_python(machine, version=python, source=SUPPOSED)
    return wheels.torch(machine, folder, replace(wheel, tag=tag), source=source)


def box(name: str, about: str, *, arch: str = "x86_64", root: int = 1, python: str = "3.12.3") -> Reconstruction:
    """An empty machine: root's, or a plain user's."""
    host = replace(HOST, arch=arch, python_version=python)
    if not root:
        host = replace(host, user="user-a", home="/home/user-a", cwd="/home/user-a", uid=1000)
    return Reconstruction(name, about, host)


def renamed(machine: Reconstruction, about: str) -> Reconstruction:
    """The near-miss of a machine, before the one thing is changed."""
    machine.name = f"{machine.name}-near-miss"
    machine.about = about
    return machine
