"""Machines inside systemd-nspawn and chroot: folders of /sys, /proc and /dev that were not brought along."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines.container_marks import bound
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

RTX_4080 = GpuSpec("NVIDIA GeForce RTX 4080", "8.9", 5, 15.99, "0x2704")
GTX_1060 = GpuSpec("NVIDIA GeForce GTX 1060 6GB", "6.1", 5, 5.93, "0x1c03")
RTX_3080_LAPTOP = GpuSpec("NVIDIA GeForce RTX 3080 Laptop GPU", "8.6", 5, 15.99, "0x249c")
_LIB = "/usr/lib/x86_64-linux-gnu"


def nspawn_no_sys_module() -> Reconstruction:
    """Nodes and libraries are there; what the library reads of the module under /sys is not."""
    machine = _trixie("nspawn-no-sys-module", "Debian 13 under systemd-nspawn without /sys/module/nvidia")
    thread = "systemd/systemd#38018 (Failed to initialize NVML: GPU access blocked by the operating system; nspawn 257)"
    machine.without("/sys/module")
    inside.nvml_says(machine, 17, "GPU access blocked by the operating system", source=thread,
                     library=f"{_LIB}/libnvidia-ml.so.570.153.02")  # fmt: skip
    inside.cuda_says(machine, "570.153.02", 100)
    return inside.cache(machine)


def nspawn_no_sys_module_near_miss() -> Reconstruction:
    """The same with the four module folders bound read-only."""
    machine = _trixie("nspawn-no-sys-module-near-miss", "Debian 13 under systemd-nspawn with /sys/module/nvidia bound")
    machine.sources["/sys/module/nvidia/version"] = "Moulberry/PandoraLauncher#523 (binds /sys/module/nvidia* for this)"
    inside.nvml_lists(machine, "570.153.02", RTX_4080, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "570.153.02", RTX_4080)
    return inside.cache(machine)


def _trixie(name: str, about: str) -> Reconstruction:
    thread = "systemd/systemd#38018 (Gentoo host, kernel 6.12.31, DeviceAllow for the five nodes, driver inside)"
    machine = inside.start(name, about, "debian-13", source="supposed: the thread does not name what runs inside",
                           kernel="6.12.31-gentoo")  # fmt: skip
    inside.module(machine, "570.153.02", source=f"{thread}; version supposed")
    inside.nodes(machine, 1, source=thread)
    machine.file("/dev/nvidia-modeset", "", source=thread)
    inside.libraries(machine, "570.153.02", source=thread)
    marks.nspawn(machine, *(line for line in bound(machine) if "/dev/nv" in line), source=thread)
    return inside.torch(machine, "2.8.0+cu128", python="3.13")


def nspawn_device_refused() -> Reconstruction:
    """The jail has the nodes, and the unit's device policy does not allow them."""
    machine = _jail("nspawn-device-refused", "Ubuntu 22.04 jail under systemd-nspawn, DeviceAllow missing for NVIDIA")
    thread = "Jip-Hop/jailmaker#95 (v1.1.0: the GPU is no longer accessible in the jail; DevicePolicy=auto)"
    inside.nvml_says(machine, 999, "Unknown Error", source=f"{thread}; the words are supposed",
                     library=f"{_LIB}/libnvidia-ml.so.545.23.08")  # fmt: skip
    inside.cuda_says(machine, "545.23.08", 100)
    return inside.cache(machine)


def nspawn_device_refused_near_miss() -> Reconstruction:
    """The same with DeviceAllow for each node."""
    machine = _jail("nspawn-device-refused-near-miss", "Ubuntu 22.04 jail under systemd-nspawn with DeviceAllow: works")
    inside.nvml_lists(machine, "545.23.08", GTX_1060, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "545.23.08", GTX_1060)
    return inside.cache(machine)


def _jail(name: str, about: str) -> Reconstruction:
    thread = "Jip-Hop/jailmaker#95 (ubuntu jammy jail, --bind-ro=/sys/module), #165 (545.23.08)"
    machine = inside.start(name, about, "ubuntu-22.04", source=thread, kernel="6.1.74-production+truenas")
    inside.module(machine, "545.23.08", source=thread)
    inside.bus(machine, GTX_1060)
    inside.nodes(machine, 1, source=thread)
    inside.libraries(machine, "545.23.08", source=thread)
    marks.nspawn(machine, "sysfs /sys/module sysfs ro,nosuid,nodev,noexec,relatime", *bound(machine)[1:], source=thread)
    return inside.torch(machine, "2.4.1+cu121", python="3.10")


def chroot_no_nodes() -> Reconstruction:
    """A chroot with the same driver packages as its host, and a /dev of its own."""
    machine = _cubic("chroot-no-nodes", "Ubuntu 22.04 chroot with driver 520.56.06 inside and no /dev/nvidia*")
    thread = "PJ-Singh-001/Cubic#113 (in the chroot NVIDIA-SMI cannot communicate with the driver; host 520.56.06)"
    inside.nvml_says(machine, 9, "Driver Not Loaded", source=thread, library=f"{_LIB}/libnvidia-ml.so.520.56.06")
    machine.every_call_of(
        "nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.\n", status=9,
    )  # fmt: skip
    inside.cuda_says(machine, "520.56.06", 100)
    return inside.cache(machine)


def chroot_no_nodes_near_miss() -> Reconstruction:
    """The same with the host's /dev bound in."""
    machine = _cubic("chroot-no-nodes-near-miss", "Ubuntu 22.04 chroot with the host's /dev bound in: works")
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.nvml_lists(machine, "520.56.06", RTX_3080_LAPTOP, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "520.56.06", RTX_3080_LAPTOP)
    return inside.cache(machine)


def _cubic(name: str, about: str) -> Reconstruction:
    thread = "PJ-Singh-001/Cubic#113 (Ubuntu Jammy, nvidia-driver-520 and nvidia-dkms-520, 16384MiB)"
    machine = inside.start(name, about, "ubuntu-22.04", source=thread, kernel="5.15.0-52-generic")
    inside.module(machine, "520.56.06", source=thread, kind="proprietary")
    inside.bus(machine, RTX_3080_LAPTOP)
    inside.libraries(machine, "520.56.06", source=thread)
    paths = [f"{_LIB}/lib{each}.so.520.56.06" for each in ("cuda", "nvidia-ml")]
    marks.dpkg_owns(machine, "libnvidia-compute-520", "520.56.06-0ubuntu0.22.04.1", *paths, source=thread)
    marks.dpkg_owns(machine, "nvidia-driver-520", "520.56.06-0ubuntu0.22.04.1", source=thread)
    return chroot(machine, "/home/user-a/cubic/custom-root", source=thread)


def chroot_arch_host() -> Reconstruction:
    """A root file system on an Arch host with everything of the GPU brought in by hand: works."""
    machine = _rootfs("chroot-arch-host", "Ubuntu 16.04 root on an Arch host, set up by nvidia-container-cli: works")
    thread = "NVIDIA/libnvidia-container#196 (README demo: proc and sys mounted, chroot; Arch, 520.56.06)"
    inside.given(machine, "520.56.06", GTX_1060, source=f"{thread}; that it works and the GPU are supposed",
                 kind="proprietary", ecc_mode=0)  # fmt: skip
    chroot(machine, "/srv/rootfs", *bound(machine), source=thread)
    return inside.cache(machine)


def chroot_arch_host_near_miss() -> Reconstruction:
    """The same after the host's driver was updated under it."""
    machine = _rootfs("chroot-arch-host-near-miss", "The same root after the Arch host went to driver 525.60.11")
    inside.module(machine, "525.60.11", source=SUPPOSED, kind="proprietary")
    inside.bus(machine, GTX_1060)
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.libraries(machine, "520.56.06", source=SUPPOSED)
    marks.dpkg_knows_not(machine, f"{_LIB}/libcuda.so.520.56.06", f"{_LIB}/libnvidia-ml.so.520.56.06")
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=SUPPOSED,
                     library=f"{_LIB}/libnvidia-ml.so.520.56.06")  # fmt: skip
    inside.cuda_says(machine, "520.56.06", 803)
    chroot(machine, "/srv/rootfs", *bound(machine), source=SUPPOSED)
    return inside.cache(machine)


def _rootfs(name: str, about: str) -> Reconstruction:
    thread = "NVIDIA/libnvidia-container#196 (ubuntu-base-16.04.6 rootfs)"
    machine = inside.start(name, about, "ubuntu-16.04", source=thread, kernel="6.0.6-arch1-1")
    archs = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86")
    return inside.torch(machine, "1.13.1+cu117", python="3.7", archs=archs)


def chroot(machine: Reconstruction, folder: str, *handed_in: str, source: str) -> Reconstruction:
    """Marks of a chroot: its mount table has no root of its own, and pid 1 has another one."""
    marks.mounts(machine, "proc /proc proc rw,relatime", "sysfs /sys sysfs rw,relatime", *handed_in, source=source)
    machine.file("/proc/1/mountinfo", "29 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw\n", source=SUPPOSED)
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    machine.file("/etc/debian_chroot", f"{folder.rpartition('/')[2]}\n", source=SUPPOSED)
    if "/opt/venv/pyvenv.cfg" not in machine.files:
        inside.torch(machine, "2.1.2+cu118", python="3.10")
    return machine


MACHINES = (nspawn_no_sys_module, nspawn_device_refused, chroot_no_nodes, chroot_arch_host)
NEAR_MISSES = (
    nspawn_no_sys_module_near_miss,
    nspawn_device_refused_near_miss,
    chroot_no_nodes_near_miss,
    chroot_arch_host_near_miss,
)
