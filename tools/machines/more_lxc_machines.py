"""More machines inside LXD, Incus, Proxmox, systemd-nspawn and chroot."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines.container_marks import bound
from tools.machines.driver_parts import log
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

RTX_3070 = GpuSpec("NVIDIA GeForce RTX 3070", "8.6", 5, 7.99, "0x2484")
L4 = GpuSpec("NVIDIA L4", "8.9", 14, 22.5, "0x27b8")
A2 = GpuSpec("NVIDIA A2", "8.6", 14, 14.9, "0x25b6")
P4000 = GpuSpec("Quadro P4000", "6.1", 1, 7.9, "0x1bb1")
GTX_1650 = GpuSpec("NVIDIA GeForce GTX 1650", "7.5", 5, 3.9, "0x1f82")
_LIB = "/usr/lib/x86_64-linux-gnu"
_ZFS = "default/containers/job / zfs rw,relatime,xattr,posixacl"
_NODES = ("nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-uvm-tools")


def lxd_no_runtime() -> Reconstruction:
    """A GPU device was added and the runtime was not switched on: nodes, and no library."""
    machine = _rocky("lxd-no-runtime", "Rocky 9 LXD container with a GPU device and without nvidia.runtime")
    thread = "canonical/lxd#9964 (in the container: NVIDIA-SMI couldn't find libnvidia-ml.so library in your system)"
    inside.no_nvml(machine, source=thread)
    return inside.cache(machine)


def lxd_no_runtime_near_miss() -> Reconstruction:
    """The same with nvidia.runtime=true."""
    machine = _rocky("lxd-no-runtime-near-miss", "Rocky 9 LXD container with nvidia.runtime=true: works")
    inside.libraries(machine, "550.120", source=SUPPOSED)
    inside.nvml_lists(machine, "550.120", RTX_3070, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "550.120", RTX_3070)
    return inside.cache(machine)


def _rocky(name: str, about: str) -> Reconstruction:
    thread = "canonical/lxd#9964 (LXD, GPU device in a container)"
    machine = inside.start(name, about, "rocky-9", source=SUPPOSED, kernel="6.8.0-49-generic")
    inside.module(machine, "550.120", source=SUPPOSED)
    inside.bus(machine, RTX_3070)
    inside.nodes(machine, 1, source=thread)
    marks.lxc(machine, *bound(machine)[1:], source=thread, manager="lxd", root=_ZFS)
    return inside.torch(machine, "2.6.0+cu124", python="3.11")


def incus_user_refused() -> Reconstruction:
    """Incus makes the nodes 0660 for root; a plain user inside finds no device."""
    machine = _user("incus-user-refused", "Fedora Incus container, a user and nodes of mode 660", mode=0o660)
    thread = ("canonical/lxd#4534 (as root all works, as user: No devices were found), "
              "https://linuxcontainers.org/incus/docs/main/reference/devices_gpu/ (mode 0660, uid 0)")  # fmt: skip
    machine.sources["the nvml child"] = thread
    machine.child("nvml", {"init": {"code": 0}, "library": "/usr/lib64/libnvidia-ml.so.580.95.05",
                           "driver_version": "580.95.05", "count": 0, "devices": []})  # fmt: skip
    machine.every_call_of("nvidia-smi", "No devices were found\n", status=6)
    inside.cuda_says(machine, "580.95.05", 100)
    return inside.cache(machine)


def incus_user_refused_near_miss() -> Reconstruction:
    """The same with mode=0666 on the GPU device."""
    machine = _user("incus-user-refused-near-miss", "Fedora Incus container with nodes of mode 666: works", mode=0o666)
    inside.nvml_lists(machine, "580.95.05", RTX_3070, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "580.95.05", RTX_3070)
    return inside.cache(machine)


def _user(name: str, about: str, *, mode: int) -> Reconstruction:
    source = "https://linuxcontainers.org/incus/docs/main/reference/devices_gpu/ (mode: 0660)"
    machine = inside.start(name, about, "fedora-43", source=SUPPOSED, kernel="6.12.48-1-lts", user="user-a")
    inside.module(machine, "580.95.05", source=SUPPOSED)
    inside.bus(machine, RTX_3070)
    inside.nodes(machine, 1, source=source)
    machine.owned("/dev/nvidia0", mode=0o20000 | mode, owner=0)
    for node in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        machine.owned(f"/dev/{node}", mode=0o20666, owner=0)
    inside.libraries(machine, "580.95.05", source=SUPPOSED)
    marks.lxc(machine, *bound(machine), source=source, manager="incus", root=_ZFS)
    return inside.torch(machine, "2.11.0+cu130", python="3.13", prefix="/home/user-a/venv")


def proxmox_guest_driver() -> Reconstruction:
    """The guest driver of a vGPU package in a container, over the host driver of the same package."""
    machine = _plex("proxmox-guest-driver", "Debian 12 Proxmox container with libraries 570.148.08, module 570.148.06")
    thread = "nvidiavgpuarchive/index#1 (container: API mismatch, client 570.148.08, kernel module 570.148.06)"
    inside.libraries(machine, "570.148.08", source=thread)
    marks.dpkg_knows_not(machine, *(f"{_LIB}/lib{name}.so.570.148.08" for name in ("cuda", "nvidia-ml")))
    machine.file("/var/log/nvidia-installer.log", "nvidia-installer log\noption: no-kernel-modules : true\n"
                 "driver version : 570.148.08\n", source=SUPPOSED)  # fmt: skip
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=thread,
                     library=f"{_LIB}/libnvidia-ml.so.570.148.08", more="NVML library version: 570.148\n")  # fmt: skip
    inside.cuda_says(machine, "570.148.08", 803)
    log(machine, "[ 8957.099615] NVRM: API mismatch: the client has the version 570.148.08, but",
        "[ 8957.099615] NVRM: this kernel module has the version 570.148.06.  Please",
        "[ 8957.099615] NVRM: make sure that this kernel module and all NVIDIA driver",
        "[ 8957.099615] NVRM: components have the same version.", source=thread)  # fmt: skip
    return inside.cache(machine)


def proxmox_guest_driver_near_miss() -> Reconstruction:
    """The same with libraries of the host's own version, which only a merged host driver has."""
    machine = _plex("proxmox-guest-driver-near-miss", "Debian 12 Proxmox container with libraries 570.148.06: works")
    inside.libraries(machine, "570.148.06", source="supposed: from a merged host driver; the plain one has no libcuda")
    marks.dpkg_knows_not(machine, *(f"{_LIB}/lib{name}.so.570.148.06" for name in ("cuda", "nvidia-ml")))
    inside.nvml_lists(machine, "570.148.06", A2, source=SUPPOSED)
    inside.cuda_starts(machine, "570.148.06", A2)
    return inside.cache(machine)


def _plex(name: str, about: str) -> Reconstruction:
    thread = "nvidiavgpuarchive/index#1 (root@plex, loading NVIDIA UNIX x86_64 Kernel Module 570.148.06, vGPU 18.2)"
    machine = inside.start(name, about, "debian-12", source=SUPPOSED, kernel="6.8.12-13-pve")
    inside.module(machine, "570.148.06", source=thread, kind="proprietary")
    inside.bus(machine, A2)
    inside.nodes(machine, 1, source=SUPPOSED)
    marks.lxc(machine, *bound(machine)[1:], source=thread, manager="proxmox",
              root="/dev/mapper/pve-vm--110--disk--0 / ext4 rw,relatime")  # fmt: skip
    return inside.torch(machine, "2.8.0+cu128", python="3.11")


def proxmox_cgroup_refused() -> Reconstruction:
    """A container configuration of Proxmox 6 on Proxmox 8: its device rules are those of the old control groups."""
    machine = _pve("proxmox-cgroup-refused", "Debian 11 Proxmox container whose device rules refuse the nodes")
    thread = ("idhirandar/tailscale-on-proxmox-lxc#1 (lxc.cgroup.devices.allow must be lxc.cgroup2.devices.allow on "
              "Proxmox 8), mattshma/bigdata#150 (open of /dev/nvidiactl: EPERM, NVML says Unknown Error)")  # fmt: skip
    inside.nvml_says(machine, 999, "Unknown Error", source=thread, library=f"{_LIB}/libnvidia-ml.so.535.161.07")
    inside.cuda_says(machine, "535.161.07", 100)
    return inside.cache(machine)


def proxmox_cgroup_refused_near_miss() -> Reconstruction:
    """The same with lxc.cgroup2.devices.allow."""
    machine = _pve("proxmox-cgroup-refused-near-miss", "Debian 11 Proxmox container whose rules let the nodes through")
    inside.nvml_lists(machine, "535.161.07", P4000, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "535.161.07", P4000)
    return inside.cache(machine)


def _pve(name: str, about: str) -> Reconstruction:
    thread = "NVIDIA/libnvidia-container#154 (LXC on 5.15.7-1-pve, lxc.cgroup2.devices.allow: c 195:* rwm, c 511:* rwm)"
    machine = inside.start(name, about, "debian-11", source=SUPPOSED, kernel="6.8.12-4-pve")
    inside.module(machine, "535.161.07", source=SUPPOSED, kind="proprietary")
    inside.bus(machine, P4000)
    inside.nodes(machine, 1, source=thread)
    for node in _NODES:
        machine.owned(f"/dev/{node}", mode=0o20666, owner=65534)
    inside.libraries(machine, "535.161.07", source=SUPPOSED)
    marks.dpkg_knows_not(machine, *(f"{_LIB}/lib{each}.so.535.161.07" for each in ("cuda", "nvidia-ml")))
    marks.lxc(machine, *(line for line in bound(machine) if "/dev/nv" in line), source=thread, manager="proxmox",
              root="rpool/data/subvol-120-disk-0 / zfs rw,relatime,xattr,posixacl")  # fmt: skip
    return inside.torch(machine, "2.4.1+cu121", python="3.9")


def nspawn_short_library() -> Reconstruction:
    """The jail's libnvidia-ml.so.1 and libcuda.so.1 are empty mount points: the links were not in the host's list."""
    machine = _dragonfish("nspawn-short-library", "Debian 12 jail on TrueNAS, libnvidia-ml.so.1 is an empty file")
    thread = ("Jip-Hop/jailmaker#127 (load library failed: "
              "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1: file too short)")  # fmt: skip
    folder = f"{_LIB}/nvidia/current"
    for name in ("cuda", "nvidia-ml"):
        machine.links.pop(f"{folder}/lib{name}.so.1")
        machine.file(f"{folder}/lib{name}.so.1", "", source=thread)
    inside.nvml_says(machine, 12, "NVML Shared Library Not Found", source=thread)
    machine.child("libcuda", {"load_error": f"{folder}/libcuda.so.1: file too short"})
    return inside.cache(machine, f"{folder}/libcuda.so.1", f"{folder}/libnvidia-ml.so.1")


def nspawn_short_library_near_miss() -> Reconstruction:
    """The same with the whole folder bound."""
    machine = _dragonfish("nspawn-short-library-near-miss", "Debian 12 jail on TrueNAS, whole folder bound: works")
    folder = f"{_LIB}/nvidia/current"
    inside.nvml_lists(machine, "545.23.08", GTX_1650, source="Jip-Hop/jailmaker#165 (mounts the entire folder)",
                      folder=folder, ecc_mode=0)  # fmt: skip
    inside.cuda_starts(machine, "545.23.08", GTX_1650, folder=folder)
    return inside.cache(machine, f"{folder}/libcuda.so.1", f"{folder}/libnvidia-ml.so.1")


def _dragonfish(name: str, about: str) -> Reconstruction:
    thread = "Jip-Hop/jailmaker#127 (TrueNAS 24.04.0, Debian 12 (bookworm) jail, 545.23.08, nvidia/current)"
    machine = inside.start(name, about, "debian-12", source=thread, kernel="6.6.20-production+truenas")
    inside.module(machine, "545.23.08", source=thread)
    inside.bus(machine, GTX_1650)
    inside.nodes(machine, 1, source=thread)
    inside.libraries(machine, "545.23.08", source=thread, folder=f"{_LIB}/nvidia/current")
    machine.file("/etc/ld.so.conf.d/jlmkr-nvidia.conf", f"{_LIB}/nvidia/current\n", source=SUPPOSED)
    machine.file("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n", source=SUPPOSED)
    marks.nspawn(machine, "sysfs /sys/module sysfs ro,nosuid,nodev,noexec,relatime", *bound(machine)[1:], source=thread)
    return inside.torch(machine, "2.4.1+cu121", python="3.11")


def chroot_bare() -> Reconstruction:
    """A chroot with the driver's libraries and none of /proc, /sys and /dev."""
    machine = _driver_root("chroot-bare", "Debian 12 chroot with libraries 570.124.06 and no /proc, /sys or /dev")
    thread = ("kubernetes-sigs/dra-driver-nvidia-gpu#389 (chroot /driver-root nvidia-smi fails on GKE: no true root "
              "file system, /dev is not under it)")  # fmt: skip
    machine.without("/proc", "/sys")
    inside.nvml_says(machine, 9, "Driver Not Loaded", source=thread, library=f"{_LIB}/libnvidia-ml.so.570.124.06")
    inside.cuda_says(machine, "570.124.06", 100)
    return inside.cache(machine)


def chroot_bare_near_miss() -> Reconstruction:
    """The same with all three mounted."""
    machine = _driver_root("chroot-bare-near-miss", "Debian 12 chroot with /proc, /sys and /dev of the host: works")
    inside.module(machine, "570.124.06", source=SUPPOSED)
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.nvml_lists(machine, "570.124.06", L4, source=SUPPOSED)
    inside.cuda_starts(machine, "570.124.06", L4)
    marks.mounts(machine, "proc /proc proc rw,relatime", "sysfs /sys sysfs rw,relatime", "udev /dev devtmpfs rw,nosuid")
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    machine.file("/proc/1/mountinfo", "29 1 8:1 / / rw,relatime - ext4 /dev/root rw\n", source=SUPPOSED)
    return inside.cache(machine)


def _driver_root(name: str, about: str) -> Reconstruction:
    machine = inside.start(name, about, "debian-12", source=SUPPOSED, kernel="6.6.72+")
    machine.file("/etc/debian_chroot", "driver-root\n", source=SUPPOSED)
    inside.libraries(machine, "570.124.06", source="kubernetes-sigs/dra-driver-nvidia-gpu#389; version supposed")
    return inside.torch(machine, "2.8.0+cu128", python="3.11")


MACHINES = (
    lxd_no_runtime,
    incus_user_refused,
    proxmox_guest_driver,
    proxmox_cgroup_refused,
    nspawn_short_library,
    chroot_bare,
)
NEAR_MISSES = (
    lxd_no_runtime_near_miss,
    incus_user_refused_near_miss,
    proxmox_guest_driver_near_miss,
    proxmox_cgroup_refused_near_miss,
    nspawn_short_library_near_miss,
    chroot_bare_near_miss,
)
