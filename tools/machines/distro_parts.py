"""Parts for machines whose distribution is the point: a base system, its packages, Secure Boot, a driver's states.

A machine starts with `start`, gets what the report says of it, and ends with `done`, which moves the libraries to
where this distribution has them and writes the loader's cache.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tools.machines import parts, wheels
from tools.machines.distro_releases import MUSL, Release
from tools.machines.driver_parts import log, pci
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.wheels import TorchWheel

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SMI_FAILS = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n\n"
)
_UBUNTU_FOLDER = "/usr/lib/x86_64-linux-gnu"
_CUDA = {
    460: "11.2", 465: "11.3", 470: "11.4", 510: "11.6", 525: "12.0", 535: "12.2", 545: "12.3",
    550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7", 570: "12.8", 575: "12.9",
    580: "13.0", 590: "13.1", 595: "13.2", 610: "13.3",
}  # fmt: skip


def start(name: str, about: str, release: Release, *, kernel: str, source: str) -> Reconstruction:
    """A booted machine of this release, looked at by a plain user."""
    machine = Reconstruction(name, about)
    machine.host = replace(HOST, user="user-a", home="/home/user-a", cwd="/home/user-a", uid=1000,
                           kernel_release=kernel)  # fmt: skip
    machine.file("/etc/os-release", release.text, source=source)
    machine.file("/proc/sys/kernel/osrelease", f"{kernel}\n", source=source)
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    machine.file(
        "/proc/self/mountinfo", "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n", source=SUPPOSED
    )
    machine.file("/proc/self/mounts", "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\n", source=SUPPOSED)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    machine.file(f"/lib/modules/{kernel}/modules.dep", "", source=SUPPOSED)
    for program in release.programs:
        machine.file(program, "", source=SUPPOSED)
    machine.env(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return _libc(machine, release)


def _libc(machine: Reconstruction, release: Release) -> Reconstruction:
    if release.glibc == MUSL:
        machine.elf("/lib/ld-musl-x86_64.so.1", ElfSpec(soname="libc.musl-x86_64.so.1"), source=SUPPOSED)
        return machine.link("/lib/libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1", source=SUPPOSED)
    names = tuple(f"GLIBC_2.{number}" for number in range(17, release.glibc + 1))
    machine.elf(f"{_UBUNTU_FOLDER}/libc.so.6", ElfSpec(soname="libc.so.6", defines=names), source=SUPPOSED)
    newest = max(19, release.glibc - 5)
    stdcxx = tuple(f"GLIBCXX_3.4.{number}" for number in range(1, newest + 1))
    return machine.elf(f"{_UBUNTU_FOLDER}/libstdc++.so.6", ElfSpec(soname="libstdc++.so.6", defines=stdcxx),
                       source=SUPPOSED)  # fmt: skip


def in_container(machine: Reconstruction) -> Reconstruction:
    """Inside a container: root, an overlay for /, and no modules of the host's kernel."""
    machine.host = replace(machine.host, user="root", home="/root", cwd="/root", uid=0)
    machine.file("/proc/self/mounts", "overlay / overlay rw,relatime 0 0\n", source=SUPPOSED)
    machine.file("/proc/self/mountinfo", "600 500 0:50 / / rw,relatime - overlay overlay rw\n", source=SUPPOSED)
    return machine.without("/lib/modules")


def card(machine: Reconstruction, spec: GpuSpec, address: str, *, source: str, driver: str = "") -> Reconstruction:
    """A GPU on the bus: a display controller where it is a GeForce, a 3D controller otherwise."""
    code = "0x030000" if spec.brand == 5 else "0x030200"
    return pci(machine, address, spec.pci_device, driver=driver, code=code, source=source)


def smi_fails(machine: Reconstruction) -> Reconstruction:
    return machine.every_call_of("nvidia-smi", SMI_FAILS, status=9)


def unloaded(machine: Reconstruction, version: str, *, source: str) -> Reconstruction:
    """The driver's libraries and nvidia-smi are installed, and no nvidia module is loaded."""
    parts.user_driver(machine, version, source=source)
    machine.file("/usr/bin/nvidia-smi", "", source=SUPPOSED)
    machine.sources["the nvml child"] = source
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"},
                           "library": f"{_UBUNTU_FOLDER}/libnvidia-ml.so.{version}"})  # fmt: skip
    cuda_gives(machine, version, code=100)
    return smi_fails(machine)


def nothing_installed(machine: Reconstruction) -> Reconstruction:
    """No library, no nvidia-smi and no module."""
    return machine.child("nvml", {"init": {"code": 12, "error": "NVML Shared Library Not Found"}, "library": ""})


def cuda_gives(machine: Reconstruction, version: str, *, code: int) -> Reconstruction:
    name, text = {
        3: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
        100: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
        803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"),
        999: ("CUDA_ERROR_UNKNOWN", "unknown error"),
    }[code]
    path = f"{_UBUNTU_FOLDER}/libcuda.so.{version}"
    return parts.cuda_fails(machine, path, cuda=cuda_of(version), code=code, name=name, text=text)


def cuda_of(version: str) -> str:
    return _CUDA[int(version.split(".", maxsplit=1)[0])]


def module(machine: Reconstruction, version: str, *, source: str, kind: str = "open") -> Reconstruction:
    """The kernel half of a driver that is loaded: modules, device nodes, /proc/driver/nvidia."""
    line = {
        "open": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build",
        "proprietary": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Release Build",
    }[kind]
    machine.file("/sys/module/nvidia/version", f"{version}\n", source=source)
    machine.file("/proc/driver/nvidia/version", line + "\n", source=source)
    machine.file("/proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nEnableGpuFirmware: 18\n", source=SUPPOSED)
    machine.file("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "N\n", source=SUPPOSED)
    names = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
    machine.file("/proc/modules", "".join(f"{name} 1 0 - Live 0x0000000000000000 (OE)\n" for name in names),
                 source=SUPPOSED)  # fmt: skip
    for node in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"):
        machine.file(f"/dev/{node}", "", source=SUPPOSED)
    return machine


def mismatched(
    machine: Reconstruction, *, loaded: str, libraries: str, source: str, kind: str = "open"
) -> Reconstruction:
    """A module of one version and libraries of another: NVML gives 18, cuInit 803."""
    module(machine, loaded, kind=kind, source=source)
    machine.file("/dev/nvidia0", "", source=SUPPOSED)
    parts.user_driver(machine, libraries, source=source)
    machine.sources["the nvml child"] = source
    text = "Driver/library version mismatch"
    machine.child("nvml", {"init": {"code": 18, "error": text},
                           "library": f"{_UBUNTU_FOLDER}/libnvidia-ml.so.{libraries}"})  # fmt: skip
    short = ".".join(libraries.split(".")[:2])
    machine.every_call_of(
        "nvidia-smi", f"Failed to initialize NVML: {text}\nNVML library version: {short}\n", status=18
    )
    return cuda_gives(machine, libraries, code=803)


def works(
    machine: Reconstruction, version: str, *gpus: tuple[GpuSpec, str], source: str, kind: str = "open", **fields: Any
) -> Reconstruction:
    """A driver that works with these GPUs at these PCI addresses; `fields` are NVML readings of every GPU."""
    module(machine, version, kind=kind, source=source)
    parts.user_driver(machine, version, source=source)
    devices = []
    for index, (spec, address) in enumerate(gpus):
        card(machine, spec, address, driver="nvidia", source=source)
        machine.file(f"/dev/nvidia{index}", "", source=SUPPOSED)
        machine.file(f"/proc/driver/nvidia/gpus/{address}/information",
                     f"Model: \t\t {spec.name}\nIRQ:   \t\t 120\nBus Location: \t {address}\nDevice Minor: \t {index}\n"
                     "GPU Excluded:\t No\n", source=SUPPOSED)  # fmt: skip
        major, minor = (int(part) for part in spec.capability.split("."))
        devices.append({
            "index": index, "code": 0, "name": spec.name, "uuid": f"GPU-00000000-0000-0000-0000-{index:012d}",
            "brand": spec.brand, "capability_major": major, "capability_minor": minor,
            "memory_bytes": int(spec.memory_gib * 2**30), "pci_address": f"0000{address}", "mig_mode": 0,
            "mig_pending": 0, "ecc_mode": 0 if spec.brand == 5 else 1, "persistence_mode": 1, "compute_mode": 0,
            **fields,
        })  # fmt: skip
    machine.sources["the nvml child"] = source
    machine.child("nvml", {"init": {"code": 0}, "library": f"{_UBUNTU_FOLDER}/libnvidia-ml.so.{version}",
                           "driver_version": version, "count": len(gpus), "devices": devices})  # fmt: skip
    listed = "".join(f"GPU {index}: {spec.name} (UUID: GPU-00000000-0000-0000-0000-{index:012d})\n"
                     for index, (spec, _) in enumerate(gpus))  # fmt: skip
    machine.command("nvidia-smi -L", listed)
    path = f"{_UBUNTU_FOLDER}/libcuda.so.{version}"
    return parts.cuda_answers(machine, path, cuda=cuda_of(version), specs=tuple(spec for spec, _ in gpus))


def no_devices(machine: Reconstruction, version: str, *, source: str, kind: str = "open") -> Reconstruction:
    """A module that is loaded and starts no GPU: nvidia-smi says No devices were found."""
    module(machine, version, kind=kind, source=source)
    parts.user_driver(machine, version, source=source)
    machine.sources["the nvml child"] = source
    machine.child("nvml", {"init": {"code": 0}, "library": f"{_UBUNTU_FOLDER}/libnvidia-ml.so.{version}",
                           "driver_version": version, "count": 0, "devices": []})  # fmt: skip
    machine.every_call_of("nvidia-smi", "No devices were found\n", status=6)
    return cuda_gives(machine, version, code=100)


def module_file(
    machine: Reconstruction, path: str, version: str, *, source: str, signer: str = "", licence: str = "Dual MIT/GPL"
) -> Reconstruction:
    """nvidia.ko on disk and what modinfo says of it."""
    machine.file(path, "", source=source)
    text = f"filename:       {path}\nversion:        {version}\nlicense:        {licence}\nname:           nvidia\n"
    if signer:
        text += f"sig_id:         PKCS#7\nsigner:         {signer}\nsig_hashalgo:   sha256\n"
    machine.command("modinfo nvidia", text)
    machine.command("modinfo -F version nvidia", f"{version}\n")
    return machine.command("modinfo -F signer nvidia", f"{signer}\n")


def secure_boot(machine: Reconstruction, *enrolled: str, source: str) -> Reconstruction:
    """Secure Boot is on, and these keys are enrolled, e.g. 'Fedora Secure Boot CA'."""
    machine.file(SECURE_BOOT, b"\x06\0\0\0\x01", source=source)
    machine.file("/usr/bin/mokutil", "", source=SUPPOSED)
    machine.command("mokutil --sb-state", "SecureBoot enabled\n")
    listed = "".join(f"{number:010x} {name}\n" for number, name in enumerate(enrolled, start=0x2BB010E24D))
    return machine.command("mokutil --list-enrolled --short", listed)


def rejected(machine: Reconstruction, *more: str, source: str) -> Reconstruction:
    """What the kernel says of a module whose key it does not know."""
    return log(machine, "[    8.512345] Loading of module with unavailable key is rejected", *more, source=source)


def packages(machine: Reconstruction, release: Release, listed: dict[str, str], *, source: str) -> Reconstruction:
    """Installed packages as this release's database has them: {"nvidia-driver": "550.163.01-2"}."""
    for name, version in listed.items():
        if release.packages == "dpkg":
            machine.file(f"/var/lib/dpkg/info/{name}.list", "/.\n", source=source)
        elif release.packages == "pacman":
            desc = f"%NAME%\n{name}\n\n%VERSION%\n{version}\n\n"
            machine.file(f"/var/lib/pacman/local/{name}-{version}/desc", desc, source=source)
    if release.packages == "dpkg":
        status = "".join(f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n"
                         for name, version in listed.items())  # fmt: skip
        machine.file("/var/lib/dpkg/status", status, source=source)
    elif release.packages == "rpm":
        machine.file("/var/lib/rpm/rpmdb.sqlite", "", source=SUPPOSED)
        machine.command("rpm -qa", "".join(f"{name}-{version}\n" for name, version in listed.items()))
        machine.sources["rpm -qa"] = source
    elif release.packages == "apk":
        text = "".join(f"P:{name}\nV:{version}\nA:x86_64\n\n" for name, version in listed.items())
        machine.file("/lib/apk/db/installed", text, source=source)
    return machine


def owned(machine: Reconstruction, release: Release, package: str, *paths: str) -> Reconstruction:
    """Who installed a file, as dpkg -S or rpm -qf answers."""
    for path in paths:
        if release.packages == "dpkg":
            machine.command(f"dpkg -S {path}", f"{package}: {path}\n")
        elif release.packages == "rpm":
            machine.command(f"rpm -qf {path}", f"{package}\n")
    return machine


def torch(
    machine: Reconstruction, wheel: TorchWheel, *, source: str = SUPPOSED, python: str = "3.12"
) -> Reconstruction:
    """torch in an active venv of the user; where the distribution keeps its own Python does not matter then."""
    folder = wheels.python(machine, f"{machine.host.home}/venv", version=python, source=source)
    return wheels.torch(machine, folder, wheel, source=source)


def dmi(machine: Reconstruction, vendor: str, product: str, *, source: str) -> Reconstruction:
    machine.file("/sys/class/dmi/id/sys_vendor", f"{vendor}\n", source=source)
    return machine.file("/sys/class/dmi/id/product_name", f"{product}\n", source=source)


def done(machine: Reconstruction, release: Release, *, folder: str = "") -> Reconstruction:
    """Libraries go to where this release has them (the driver's to `folder` where that is another), then the cache."""
    home = release.folder
    driver = folder or home
    for kept in (machine.files, machine.links, machine.sources):
        table: dict[str, Any] = kept
        for path in [path for path in table if path.startswith(_UBUNTU_FOLDER + "/")]:
            is_driver = "/libcuda." in path or "/libnvidia-" in path
            table[path.replace(_UBUNTU_FOLDER, driver if is_driver else home)] = table.pop(path)
    for script, said in machine.children.items():
        answer = {key: value.replace(_UBUNTU_FOLDER, driver) if isinstance(value, str) else value
                  for key, value in said.answer.items()}  # fmt: skip
        machine.children[script] = replace(said, answer=answer)
    if release.glibc == MUSL or release.packages == "nix":
        return machine  # neither has a loader cache
    known = (*machine.files, *machine.links)
    libraries = sorted(path for path in known if path.startswith((f"{home}/lib", f"{driver}/lib")) and ".so" in path)
    return parts.loader_cache(machine, *libraries)


def done_debian(machine: Reconstruction, release: Release) -> Reconstruction:
    """Debian's own packages: the libraries in nvidia/current, reached through /etc/alternatives."""
    done(machine, release, folder=f"{_UBUNTU_FOLDER}/nvidia/current")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        if f"{_UBUNTU_FOLDER}/nvidia/current/{name}" in machine.links:
            way = f"/etc/alternatives/glx--{name}-x86_64-linux-gnu"
            machine.link(f"{_UBUNTU_FOLDER}/{name}", way, source=SUPPOSED)
            machine.link(way, f"{_UBUNTU_FOLDER}/nvidia/current/{name}", source=SUPPOSED)
    return parts.loader_cache(machine)


def ostree(machine: Reconstruction, status: str, *, source: str) -> Reconstruction:
    """The marks of a system that boots an image: ostree on the kernel's line and in the mounts, rpm-ostree status."""
    machine.file("/run/ostree-booted", "", source=SUPPOSED)
    machine.file(
        "/proc/cmdline",
        "BOOT_IMAGE=(hd0,gpt2)/ostree/fedora-0/vmlinuz ostree=/ostree/boot.1/fedora/0/0\n",
        source=SUPPOSED,
    )
    mounts = "/dev/nvme0n1p3 / btrfs rw,subvol=/root 0 0\n/dev/nvme0n1p3 /usr btrfs ro,subvol=/root 0 0\n"
    machine.file("/proc/self/mounts", mounts, source=SUPPOSED)
    machine.sources["rpm-ostree status"] = source
    return machine.command("rpm-ostree status", status)


def nixos(machine: Reconstruction, kernel: str, *, source: str) -> Reconstruction:
    """NixOS has no /lib/modules and no /usr/lib: modules lie below /run/current-system."""
    machine.without("/lib/modules")
    machine.file("/etc/NIXOS", "", source=SUPPOSED)
    machine.file("/etc/nixos/configuration.nix", '{ services.xserver.videoDrivers = [ "nvidia" ]; }\n', source=source)
    folder = f"/run/current-system/kernel-modules/lib/modules/{kernel}"
    return machine.file(f"{folder}/modules.dep", "", source=SUPPOSED)


def pod(machine: Reconstruction, *, source: str) -> Reconstruction:
    """The marks of a container in a Kubernetes pod."""
    in_container(machine)
    machine.file("/var/run/secrets/kubernetes.io/serviceaccount/namespace", "default\n", source=source)
    machine.file(
        "/proc/1/cgroup", "0::/../kubepods.slice/kubepods-burstable.slice/cri-containerd-a.scope\n", source=source
    )
    return machine.env(KUBERNETES_SERVICE_HOST="set", NVIDIA_VISIBLE_DEVICES="all")
