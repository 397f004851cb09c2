"""Machines inside LXD, Incus and Proxmox containers: what the host did not pass on, and what does not fit it."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines import wheels
from tools.machines.container_marks import bound
from tools.machines.driver_parts import log
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

GTX_1080 = GpuSpec("GeForce GTX 1080", "6.1", 5, 7.9, "0x1b80")
GTX_1660 = GpuSpec("NVIDIA GeForce GTX 1660 SUPER", "7.5", 5, 5.8, "0x21c4")
RTX_3060_TI = GpuSpec("NVIDIA GeForce RTX 3060 Ti", "8.6", 5, 7.99, "0x2489")
RTX_3090 = GpuSpec("NVIDIA GeForce RTX 3090", "8.6", 5, 23.6, "0x2204")
RTX_2080_TI = GpuSpec("NVIDIA GeForce RTX 2080 Ti", "7.5", 5, 10.75, "0x1e07")
_LIB = "/usr/lib/x86_64-linux-gnu"
_ZFS = "default/containers/job / zfs rw,relatime,xattr,posixacl"


def lxd_other_version() -> Reconstruction:
    """The container's own driver package is newer than the host's module."""
    machine = _xenial("lxd-other-version", "375.51")
    thread = "charmed-kubernetes/bundle#284 (host 375.39, LXD container 375.51: Driver/library version mismatch)"
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=thread,
                     library=f"{_LIB}/libnvidia-ml.so.375.51")  # fmt: skip
    inside.cuda_says(machine, "375.51", 100)
    log(machine, "NVRM: API mismatch: the client has the version 375.51, but",
        "NVRM: this kernel module has the version 375.39.  Please",
        "NVRM: make sure that this kernel module and all NVIDIA driver", "NVRM: components have the same version.",
        source=f"{thread}; the kernel's wording as in NVIDIA/nvidia-docker#182")  # fmt: skip
    return inside.cache(machine)


def lxd_other_version_near_miss() -> Reconstruction:
    """The container's package is the host's version: it works."""
    machine = _xenial("lxd-other-version-near-miss", "375.39")
    inside.nvml_lists(machine, "375.39", GTX_1080, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "375.39", GTX_1080)
    return inside.cache(machine)


def _xenial(name: str, version: str) -> Reconstruction:
    thread = "charmed-kubernetes/bundle#284 (LXD container on a host with 375.39)"
    machine = inside.start(name, f"Ubuntu 16.04 LXD container with libraries {version}, host module 375.39",
                           "ubuntu-16.04", source=SUPPOSED, kernel="4.4.0-77-generic")  # fmt: skip
    inside.module(machine, "375.39", source=thread, kind="proprietary")
    inside.bus(machine, GTX_1080)
    inside.nodes(machine, 1, source=thread)
    inside.libraries(machine, version, source=thread)
    paths = [f"{_LIB}/lib{each}.so.{version}" for each in ("cuda", "nvidia-ml")]
    marks.dpkg_owns(machine, "nvidia-375", f"{version}-0ubuntu1", *paths, source=f"{thread}; package supposed")
    marks.lxc(machine, *(line for line in bound(machine) if "/dev/" in line), source=thread, manager="lxd", root=_ZFS)
    archs = ("sm_35", "sm_50", "sm_60", "sm_61")
    return inside.torch(machine, "1.0.0+cu80", python="3.6", archs=archs)


def lxd_nvidia_runtime() -> Reconstruction:
    """nvidia.runtime=true: works, with a bare tmpfs over /proc/driver/nvidia."""
    machine = _focal("lxd-nvidia-runtime", "Ubuntu 20.04 LXD container with nvidia.runtime=true: works")
    thread = "canonical/lxd#7840 (nvidia.runtime=true: tmpfs on /proc/driver/nvidia, no gpus folder in it)"
    inside.given(machine, "450.80.02", RTX_2080_TI, source=f"{thread}; GPU and driver supposed", kind="proprietary",
                 ecc_mode=0)  # fmt: skip
    machine.without("/proc/driver/nvidia/version")
    machine.file("/proc/driver/nvidia/params", "ModifyDeviceFiles: 0\n", source=thread)
    marks.lxc(machine, *bound(machine), source=thread, manager="lxd", root=_ZFS)
    return inside.cache(machine)


def lxd_nvidia_runtime_near_miss() -> Reconstruction:
    """The same container with its GPU device and without nvidia.runtime: nodes and no libraries."""
    machine = _focal("lxd-nvidia-runtime-near-miss", "Ubuntu 20.04 LXD container with a GPU, nvidia.runtime=false")
    inside.module(machine, "450.80.02", source=SUPPOSED, kind="proprietary")
    inside.bus(machine, RTX_2080_TI)
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.no_nvml(machine)
    marks.lxc(machine, *(line for line in bound(machine) if "/dev/" in line), source=SUPPOSED, manager="lxd", root=_ZFS)
    return inside.cache(machine)


def _focal(name: str, about: str) -> Reconstruction:
    thread = "canonical/lxd#7840 (ubuntu:focal on Debian 10, 5.7.0-0.bpo.2-amd64, LXD 4.4)"
    machine = inside.start(name, about, "ubuntu-20.04", source=thread, kernel="5.7.0-0.bpo.2-amd64")
    archs = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80")
    return inside.torch(machine, "1.7.1+cu110", python="3.8", archs=archs)


def incus_dri_alone() -> Reconstruction:
    """The host lacks libnvidia-container, so Incus passed on the card's DRI nodes and none of NVIDIA's."""
    machine = _bookworm("incus-dri-alone", "Debian 12 Incus container with /dev/dri and without /dev/nvidia*")
    thread = "lxc/incus#1322 (only DRI passed; cured by nvidia-container-toolkit on the Arch host, 560.35.03)"
    inside.no_nvml(machine, source=thread)
    marks.lxc(machine, "devtmpfs /dev/dri/card0 devtmpfs rw,nosuid", source=thread, manager="incus", root=_ZFS)
    return inside.cache(machine)


def incus_dri_alone_near_miss() -> Reconstruction:
    """The same with the toolkit on the host and nvidia.runtime=true."""
    machine = _bookworm("incus-dri-alone-near-miss", "Debian 12 Incus container with nvidia.runtime=true: works")
    inside.given(machine, "560.35.03", RTX_3060_TI, source=SUPPOSED, ecc_mode=0)
    marks.lxc(machine, *bound(machine), source=SUPPOSED, manager="incus", root=_ZFS)
    return inside.cache(machine)


def _bookworm(name: str, about: str) -> Reconstruction:
    thread = "lxc/incus#1322 (GA104 [GeForce RTX 3060 Ti], 0000:01:00.0, Driver: nvidia (560.35.03))"
    machine = inside.start(name, about, "debian-12", source=SUPPOSED, kernel="6.11.4-arch1-1")
    inside.module(machine, "560.35.03", source=thread)
    inside.bus(machine, RTX_3060_TI)
    for node in ("card0", "renderD128"):
        machine.file(f"/dev/dri/{node}", "", source=thread)
    return inside.torch(machine, "2.6.0+cu124", python="3.11")


def incus_alpine() -> Reconstruction:
    """An Alpine container: its C library is musl, and neither the driver's libraries nor torch's wheels run on it."""
    machine = Reconstruction("incus-alpine", "Alpine 3.14 Incus container with torch 1.10.1 forced in: musl")
    thread = ("pytorch/pytorch#71381 (torch 1.10.1 on Alpine, Python 3.9.5: import fails), "
              "NVIDIA/nvidia-container-runtime#53 (the driver does not support musl)")  # fmt: skip
    machine.file("/etc/os-release", 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.14.2\n'
                 'PRETTY_NAME="Alpine Linux v3.14"\n', source=thread)  # fmt: skip
    machine.file("/etc/alpine-release", "3.14.2\n", source=SUPPOSED)
    machine.elf("/lib/ld-musl-x86_64.so.1", ElfSpec(soname="libc.musl-x86_64.so.1"), source=SUPPOSED)
    machine.link("/lib/libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1", source=SUPPOSED)
    machine.file("/lib/apk/db/installed", "P:musl\nV:1.2.2-r3\n\nP:python3\nV:3.9.5-r2\n\n", source=thread)
    for program in ("/sbin/apk", "/bin/busybox"):
        machine.file(program, "#!", source=SUPPOSED)
    inside.system_python(machine, "3.9", source=thread)
    inside.own_python(machine)
    machine.env(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    inside.module(machine, "560.35.03", source=SUPPOSED)
    inside.bus(machine, RTX_3060_TI)
    inside.nodes(machine, 1, source=SUPPOSED)
    marks.lxc(machine, *bound(machine)[1:], source=SUPPOSED, manager="incus", root=_ZFS)
    wheel = inside.wheel("1.10.1+cu102", "3.9", ("sm_37", "sm_50", "sm_60", "sm_70"))
    return wheels.torch(machine, "/usr/lib/python3.9/site-packages", wheel, source=thread)


def incus_alpine_near_miss() -> Reconstruction:
    """A Debian container with the same GPU: works."""
    machine = _bookworm("incus-alpine-near-miss", "Debian 12 Incus container with an RTX 3060 Ti: works")
    inside.given(machine, "560.35.03", RTX_3060_TI, source=SUPPOSED, ecc_mode=0)
    marks.lxc(machine, *bound(machine), source=SUPPOSED, manager="incus", root=_ZFS)
    return inside.cache(machine)


def proxmox_uvm_empty_file() -> Reconstruction:
    """The container came up before the host had /dev/nvidia-uvm: the mount entry left an empty file."""
    machine = _ollama("proxmox-uvm-empty-file", "Debian 12 Proxmox container, /dev/nvidia-uvm is an empty file")
    thread = "community-scripts/ProxmoxVE#5740 (after a reboot of the host: CUDA error 999, nvidia-smi still works)"
    inside.cuda_says(machine, "570.133.07", 999)
    machine.sources["the libcuda child"] = thread
    for node in ("nvidia-uvm", "nvidia-uvm-tools"):
        machine.kinds[f"/dev/{node}"] = "file"
        machine.sources[f"/dev/{node}"] = "supposed, from Telmate/terraform-provider-proxmox#1138 (create=file)"
    return inside.cache(machine)


def proxmox_uvm_empty_file_near_miss() -> Reconstruction:
    """The same with the real node."""
    machine = _ollama("proxmox-uvm-empty-file-near-miss", "Debian 12 Proxmox container with all nodes: works")
    inside.cuda_starts(machine, "570.133.07", RTX_3090)
    return inside.cache(machine)


def _ollama(name: str, about: str) -> Reconstruction:
    thread = "community-scripts/ProxmoxVE#5740 (Debian 12 LXC, nvidia open driver, nvidia-smi works)"
    machine = inside.start(name, about, "debian-12", source=thread, kernel="6.8.12-11-pve")
    inside.module(machine, "570.133.07", source=f"{thread}; version supposed")
    inside.nodes(machine, 1, source=thread)
    inside.libraries(machine, "570.133.07", source=thread)
    inside.nvml_lists(machine, "570.133.07", RTX_3090, source=thread, ecc_mode=0)
    machine.file("/var/log/nvidia-installer.log", "option: no-kernel-modules : true\n", source=SUPPOSED)
    marks.lxc(machine, *(line for line in bound(machine) if "/dev/nv" in line and "uvm" not in line), source=thread,
              manager="proxmox", root="/dev/mapper/pve-vm--101--disk--0 / ext4 rw,relatime")  # fmt: skip
    return inside.torch(machine, "2.8.0+cu128", python="3.11")


def proxmox_no_libraries() -> Reconstruction:
    """Nodes are passed on, and nobody put the driver's libraries into the container."""
    machine = _webui("proxmox-no-libraries", "Ubuntu 22.04 Proxmox container with the nodes and without libraries")
    thread = "AbdBarho/stable-diffusion-webui-docker#48 (Proxmox LXC: load library failed: libnvidia-ml.so.1)"
    inside.no_nvml(machine, source=thread)
    return inside.cache(machine)


def proxmox_no_libraries_near_miss() -> Reconstruction:
    """The same after the host's own installer ran in the container with --no-kernel-module."""
    machine = _webui("proxmox-no-libraries-near-miss", "Ubuntu 22.04 Proxmox container with libraries 515.65.01: works")
    inside.libraries(machine, "515.65.01", source=SUPPOSED)
    inside.nvml_lists(machine, "515.65.01", GTX_1660, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "515.65.01", GTX_1660)
    machine.file("/var/log/nvidia-installer.log", "option: no-kernel-module : true\n", source=SUPPOSED)
    return inside.cache(machine)


def _webui(name: str, about: str) -> Reconstruction:
    thread = "AbdBarho/stable-diffusion-webui-docker#48 (Ubuntu 22.04 LXC on Proxmox, nvidia-docker2 inside)"
    machine = inside.start(name, about, "ubuntu-22.04", source=thread, kernel="5.15.53-1-pve")
    inside.module(machine, "515.65.01", source=SUPPOSED, kind="proprietary")
    inside.bus(machine, GTX_1660)
    inside.nodes(machine, 1, source="Telmate/terraform-provider-proxmox#1138 (lxc.mount.entry for each node)")
    machine.socket("/var/run/docker.sock", source=thread)
    machine.file("/usr/bin/nvidia-ctk", "#!", source=thread)
    machine.command("/usr/bin/nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.11.0\n")
    marks.lxc(machine, *bound(machine)[1:], source=thread, manager="proxmox",
              root="rpool/data/subvol-105-disk-0 / zfs rw,relatime,xattr,posixacl")  # fmt: skip
    return inside.torch(machine, "1.13.1+cu117", python="3.10")


MACHINES = (
    lxd_other_version,
    lxd_nvidia_runtime,
    incus_dri_alone,
    incus_alpine,
    proxmox_uvm_empty_file,
    proxmox_no_libraries,
)
NEAR_MISSES = (
    lxd_other_version_near_miss,
    lxd_nvidia_runtime_near_miss,
    incus_dri_alone_near_miss,
    incus_alpine_near_miss,
    proxmox_uvm_empty_file_near_miss,
    proxmox_no_libraries_near_miss,
)
