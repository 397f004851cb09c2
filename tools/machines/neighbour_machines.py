"""Machines beside a fault: everything looks like it but for one thing, and the rule next door must stay silent.

Made up by one who had read the purpose of the rules and not the rules; nothing in them is a report of a real machine.
"""

from __future__ import annotations

from dataclasses import replace

from tools.machines import distro_parts as distro
from tools.machines import parts, wheels
from tools.machines.distro_releases import CENTOS_7, DEBIAN_12, ROCKY_9, UBUNTU_22, UBUNTU_24, Release
from tools.machines.driver_parts import B200, TORCH_28_CU128, TORCH_211_CU130, log, reading, torch_of
from tools.machines.engine_machines import podman_selinux_near_miss
from tools.machines.fabric_machines import two_gpus_on_a_network
from tools.machines.guest_machines import L40, aks_a10_grid_unlicensed
from tools.machines.guest_parts import Placed, box, bus, cuda_works, firmware, gpus_at, torch_for, ubuntu
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.server_machines import unit
from tools.machines.smi_text import smi_q
from tools.machines.wheels import TorchWheel

MADE_UP = "made up: the neighbour of a fault"
L4 = GpuSpec("NVIDIA L4", "8.9", 14, 22.5, "0x27b8")
V100_PCIE = GpuSpec("Tesla V100-PCIE-32GB", "7.0", 2, 31.7, "0x1db6")
H100_PCIE = GpuSpec("NVIDIA H100 PCIe", "9.0", 14, 79.6, "0x2331")
RTX_5090 = GpuSpec("NVIDIA GeForce RTX 5090", "12.0", 5, 31.8, "0x2b85")
_EIGHT = ("0000:19:00.0", "0000:3b:00.0", "0000:4c:00.0", "0000:5d:00.0", "0000:9b:00.0", "0000:b3:00.0",
          "0000:cb:00.0", "0000:db:00.0")  # fmt: skip
_MINT_21 = replace(UBUNTU_22, text='NAME="Linux Mint"\nVERSION="21.3 (Virginia)"\nID=linuxmint\n'
                   'ID_LIKE="ubuntu debian"\nPRETTY_NAME="Linux Mint 21.3"\nVERSION_ID="21.3"\n'
                   'VERSION_CODENAME=virginia\nUBUNTU_CODENAME=jammy\n')  # fmt: skip
_LMDE_6 = replace(DEBIAN_12, text='PRETTY_NAME="LMDE 6 (faye)"\nNAME="LMDE"\nVERSION_ID="6"\nVERSION="6 (faye)"\n'
                  'VERSION_CODENAME=faye\nID=linuxmint\nID_LIKE=debian\nDEBIAN_CODENAME=bookworm\n')  # fmt: skip


def _no_driver(name: str, about: str, release: Release, kernel: str) -> Reconstruction:
    machine = distro.start(name, about, release, kernel=kernel, source=MADE_UP)
    distro.card(machine, L4, "0000:01:00.0", source=MADE_UP)
    distro.nothing_installed(machine)
    distro.torch(machine, TORCH_28_CU128)
    return distro.done(machine, release)


def lmde_no_driver() -> Reconstruction:
    """Mint's Debian edition: Debian's packages under Mint's name."""
    return _no_driver("lmde-no-driver", "LMDE 6 with an L4 and no driver", _LMDE_6, "6.1.0-41-amd64")


def mint_no_driver() -> Reconstruction:
    """Mint proper: Ubuntu's packages."""
    return _no_driver("mint-no-driver", "Linux Mint 21.3 with an L4 and no driver", _MINT_21, "5.15.0-143-generic")


def rocky_arm_no_driver() -> Reconstruction:
    """Rocky on Arm: NVIDIA's repository for it is called sbsa."""
    about = "Rocky Linux 9 on a GH200, no driver"
    machine = distro.start("rocky-arm-no-driver", about, ROCKY_9, kernel="5.14.0-570.el9.aarch64+64k", source=MADE_UP)
    machine.host = replace(machine.host, arch="aarch64")
    distro.card(machine, GpuSpec("NVIDIA GH200 480GB", "9.0", 14, 95.6, "0x2342"), "0009:01:00.0", source=MADE_UP)
    return distro.nothing_installed(machine)


def v100_beside_h100_proprietary() -> Reconstruction:
    """Volta has no open module, Hopper has both: the proprietary one drives the two."""
    machine = ubuntu(box("v100-beside-h100-proprietary", "V100 beside H100, proprietary 580"), "22.04", source=MADE_UP)
    places = (Placed(V100_PCIE, "0000:17:00.0"), Placed(H100_PCIE, "0000:65:00.0"))
    gpus_at(machine, "580.95.05", *places, source=MADE_UP, kind="proprietary")
    cuda_works(machine, "580.95.05", V100_PCIE, H100_PCIE)
    wheel = TorchWheel("2.8.0+cu126", "12.6", ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"))
    torch_of(machine, wheel)
    return parts.loader_cache(machine)


def _eight_l40(name: str, about: str, *there: str) -> Reconstruction:
    machine = ubuntu(box(name, about), "22.04", kernel="5.15.0-143-generic", source=MADE_UP)
    firmware(machine, "Supermicro", "SYS-421GE-TNRT", guest="", source=SUPPOSED)
    gpus_at(machine, "570.158.01", *(Placed(L40, place) for place in there), source=MADE_UP)
    cuda_works(machine, "570.158.01", *[L40] * len(there))
    log(machine, source=SUPPOSED)
    smi_q(machine)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def one_of_eight_for_a_guest() -> Reconstruction:
    """Somebody gave the sixth GPU to a virtual machine."""
    kept = tuple(place for place in _EIGHT if place != "0000:b3:00.0")
    machine = _eight_l40("one-of-eight-for-a-guest", "Eight L40, one bound to vfio-pci for a virtual machine", *kept)
    bus(machine, Placed(L40, "0000:b3:00.0"), driver="vfio-pci", source=MADE_UP)
    return machine


def gpu_with_sound() -> Reconstruction:
    """A card's sound function has the same vendor and is no GPU."""
    machine = _eight_l40("gpu-with-sound", "One L40 and the sound function of its card", _EIGHT[0])
    folder = "/sys/bus/pci/devices/0000:19:00.1"
    for name, value in (("vendor", "0x10de"), ("device", "0x22ba"), ("class", "0x040300")):
        machine.file(f"{folder}/{name}", f"{value}\n", source=MADE_UP)
    machine.file("/sys/bus/pci/drivers/snd_hda_intel/module", "", source=MADE_UP)
    return machine.link(f"{folder}/driver", "/sys/bus/pci/drivers/snd_hda_intel", source=MADE_UP)


def mask_leaves_one_out() -> Reconstruction:
    """The user asked for seven of eight."""
    machine = _eight_l40("mask-leaves-one-out", "Eight L40 with CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6", *_EIGHT)
    cuda_works(machine, "570.158.01", *[L40] * 7)
    return machine.env(CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6")


def container_with_seven() -> Reconstruction:
    """/sys shows the host's bus in every container; this one was given seven."""
    machine = _eight_l40("container-with-seven", "docker run --gpus with seven of the host's eight L40", *_EIGHT[:7])
    bus(machine, Placed(L40, _EIGHT[7]), driver="nvidia", source=MADE_UP)
    machine.file("/.dockerenv", "", source=MADE_UP)
    machine.file("/proc/1/cgroup", "0::/\n", source=MADE_UP)
    machine.without("/usr/bin/systemctl", "/proc/1/comm")
    return machine.env(NVIDIA_VISIBLE_DEVICES="0,1,2,3,4,5,6")


def line_nobody_knows() -> Reconstruction:
    """A line of the driver that no rule has heard of."""
    machine = _eight_l40("line-nobody-knows", "One L40 that works; the log has a line of an unheard-of kind", _EIGHT[0])
    line = "[ 88.1] NVRM: GPU 0000:19:00.0: an unheard-of condition 0x42 in rmFooBar, cannot go on"
    return log(machine, line, source=MADE_UP)


def path_brings_the_good_torch() -> Reconstruction:
    """The torch that PYTHONPATH brings is the one with CUDA."""
    machine = _eight_l40("path-brings-the-good-torch", "A CUDA torch on PYTHONPATH over a venv's CPU torch", _EIGHT[0])
    folder = wheels.python(machine, "/opt/venv", version="3.12", source=MADE_UP)
    wheels.torch(machine, folder, TorchWheel("2.8.0+cpu", "", ()), source=MADE_UP)
    wheels.torch(machine, "/shared/site", TORCH_28_CU128, source=MADE_UP)
    return machine.env(PYTHONPATH="/shared/site", VIRTUAL_ENV="/opt/venv", PATH="/opt/venv/bin:/usr/bin:/bin")


def blackwell_under_python_38() -> Reconstruction:
    """No torch with code for sm_120 was ever built for Python 3.8."""
    machine = ubuntu(box("blackwell-under-python-38", "RTX 5090 with Python 3.8, torch 2.4.1+cu121"), "20.04",
                     source=MADE_UP)  # fmt: skip
    gpus_at(machine, "580.95.05", Placed(RTX_5090, "0000:01:00.0", "0x030000"), source=MADE_UP, ecc_mode=0)
    cuda_works(machine, "580.95.05", RTX_5090)
    old = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    torch_for(machine, TorchWheel("2.4.1+cu121", "12.1", old), python="3.8")
    return parts.loader_cache(machine)


def centos_7_without_torch() -> Reconstruction:
    """glibc 2.17: no wheel of today installs."""
    machine = distro.start("centos-7-without-torch", "CentOS 7 with an H100, Python 3.9 and no torch", CENTOS_7,
                           kernel="3.10.0-1160.119.1.el7.x86_64", source=MADE_UP)  # fmt: skip
    distro.works(machine, "535.183.01", (H100_PCIE, "0000:17:00.0"), source=MADE_UP, kind="proprietary")
    wheels.python(machine, f"{machine.host.home}/venv", version="3.9", source=MADE_UP)
    machine.env(VIRTUAL_ENV=f"{machine.host.home}/venv")
    return distro.done(machine, CENTOS_7)


def vgpu_before_it_is_capped() -> Reconstruction:
    """No licence yet, and nothing is restricted yet."""
    machine = aks_a10_grid_unlicensed()
    machine.name, machine.about = "vgpu-before-it-is-capped", "A vGPU in its first minutes: unlicensed, unrestricted"
    return machine


def two_pcie_without_fabric() -> Reconstruction:
    """PCIe cards have no NVSwitch, and nobody has to manage one."""
    machine = ubuntu(box("two-pcie-without-fabric", "Two H100 PCIe, no Fabric Manager"), "22.04", source=MADE_UP)
    places = (Placed(H100_PCIE, "0000:17:00.0"), Placed(H100_PCIE, "0000:65:00.0"))
    gpus_at(machine, "570.158.01", *places, source=MADE_UP)
    cuda_works(machine, "570.158.01", H100_PCIE, H100_PCIE)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def b200_of_one_node() -> Reconstruction:
    """IMEX is for the nodes of a rack; eight GPUs of one server need none."""
    machine = ubuntu(box("b200-of-one-node", "HGX B200 with Fabric Manager and NVLSM, no IMEX"), "24.04",
                     source=MADE_UP)  # fmt: skip
    gpus_at(machine, "580.95.05", *(Placed(B200, place) for place in _EIGHT), source=MADE_UP, fabric_state=3,
            fabric_status=0)  # fmt: skip
    cuda_works(machine, "580.95.05", *[B200] * 8)
    machine.file("/usr/bin/nv-fabricmanager", "", source=MADE_UP)
    machine.command("/usr/bin/nv-fabricmanager --version", "Fabric Manager version is : 580.95.05\n")
    machine.file("/opt/nvidia/nvlsm/sbin/nvlsm", "", source=MADE_UP)
    machine.file("/sys/module/ib_umad/refcnt", "0\n", source=MADE_UP)
    unit(machine, "nvidia-fabricmanager", "active")
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def mps_alive() -> Reconstruction:
    """The daemon whose pipes lie there runs."""
    machine = _eight_l40("mps-alive", "One L40 with a running MPS daemon", _EIGHT[0])
    machine.file("/tmp/nvidia-mps/control", "", source=MADE_UP)
    machine.file("/tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "4711\n", source=MADE_UP)
    machine.file("/proc/4711/comm", "nvidia-cuda-mps\n", source=MADE_UP)
    return machine.file("/proc/4711/cmdline", "nvidia-cuda-mps-control\0-d\0", source=MADE_UP)


def ecc_corrected_alone() -> Reconstruction:
    """ECC did what it is for."""
    machine = _eight_l40("ecc-corrected-alone", "One L40 with corrected memory errors alone", _EIGHT[0])
    reading(machine, 0, ecc_corrected_volatile=12, ecc_corrected_aggregate=40, ecc_uncorrected_volatile=0,
            ecc_uncorrected_aggregate=0, rows_correctable=0, rows_uncorrectable=0, rows_pending=0,
            rows_failure=0)  # fmt: skip
    return machine


def xid_13_alone() -> Reconstruction:
    """A program wrote where it may not."""
    machine = _eight_l40("xid-13-alone", "One L40; the log has Xid 13 of a program", _EIGHT[0])
    line = ("[ 512.7] NVRM: Xid (PCI:0000:19:00): 13, pid=4211, name=python3, Graphics SM Warp Exception on "
            "(GPC 0, TPC 1, SM 0): Out Of Range Address")  # fmt: skip
    return log(machine, line, source=MADE_UP)


def secure_boot_all_enrolled() -> Reconstruction:
    """Secure Boot is on, and the module's key is enrolled."""
    machine = distro.start("secure-boot-all-enrolled", "Secure Boot with the module's key enrolled", UBUNTU_24,
                           kernel="6.8.0-60-generic", source=MADE_UP)  # fmt: skip
    path = "/lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko"
    distro.module_file(machine, path, "580.95.05", signer="host-a Secure Boot Module Signature key", source=MADE_UP)
    distro.secure_boot(machine, "Canonical Ltd. Master Certificate Authority",
                       "host-a Secure Boot Module Signature key", source=MADE_UP)  # fmt: skip
    distro.works(machine, "580.95.05", (L4, "0000:01:00.0"), source=MADE_UP)
    distro.torch(machine, TORCH_28_CU128)
    return distro.done(machine, UBUNTU_24)


def secure_boot_off_not_loaded() -> Reconstruction:
    """The module is on disk and not loaded, and Secure Boot has nothing to do with it."""
    machine = distro.start("secure-boot-off-not-loaded", "A signed module that was never loaded; Secure Boot is off",
                           UBUNTU_24, kernel="6.8.0-60-generic", source=MADE_UP)  # fmt: skip
    path = "/lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko"
    distro.module_file(machine, path, "580.95.05", signer="host-a Secure Boot Module Signature key", source=MADE_UP)
    machine.file(distro.SECURE_BOOT, b"\x06\0\0\0\0", source=MADE_UP)
    machine.file("/usr/bin/mokutil", "", source=SUPPOSED)
    machine.command("mokutil --sb-state", "SecureBoot disabled\n")
    distro.card(machine, L4, "0000:01:00.0", source=MADE_UP)
    distro.unloaded(machine, "580.95.05", source=MADE_UP)
    distro.torch(machine, TORCH_28_CU128)
    return distro.done(machine, UBUNTU_24)


def selinux_permissive() -> Reconstruction:
    """The label would keep the container out; SELinux only notes it."""
    machine = podman_selinux_near_miss()
    machine.name, machine.about = "selinux-permissive", "Rootful Podman on Fedora; SELinux is permissive: works"
    machine.file("/proc/self/attr/current", "system_u:system_r:container_t:s0:c164,c791", source=MADE_UP)
    return machine.file("/sys/fs/selinux/enforce", "0", source=MADE_UP)


def acs_with_one_gpu() -> Reconstruction:
    """Nobody sends anything to a peer that is not there."""
    machine = two_gpus_on_a_network()
    machine.name, machine.about = "acs-with-one-gpu", "One H100 behind a switch with ACS"
    devices = machine.children["nvml"].answer["devices"][:1]  # type: ignore[index]
    said = {**machine.children["nvml"].answer, "devices": devices, "count": 1}
    machine.child("nvml", said)
    machine.without("/sys/devices/pci0000:15/0000:17:01.0", "/sys/bus/pci/devices/0000:19:00.0", "/dev/nvidia1")
    return cuda_works(machine, "570.133.20", H100)


def small_shm_with_one_gpu() -> Reconstruction:
    """Docker's usual 64 MiB of shared memory."""
    machine = _eight_l40("small-shm-with-one-gpu", "docker with 64 MiB of /dev/shm and one L40", _EIGHT[0])
    machine.file("/.dockerenv", "", source=MADE_UP)
    mounts = ("overlay / overlay rw 0 0", "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,size=65536k 0 0")
    machine.file("/proc/self/mounts", "".join(f"{line}\n" for line in mounts), source=MADE_UP)
    machine.file("/dev/shm/keep", "", source=MADE_UP)
    return machine.space("/", total_gib=100, free_gib=60).space("/dev/shm", total_gib=0.0625, free_gib=0.0625)


MACHINES = (lmde_no_driver, mint_no_driver, rocky_arm_no_driver, v100_beside_h100_proprietary,
            one_of_eight_for_a_guest, gpu_with_sound, mask_leaves_one_out, container_with_seven, line_nobody_knows,
            path_brings_the_good_torch, blackwell_under_python_38, centos_7_without_torch, vgpu_before_it_is_capped,
            two_pcie_without_fabric, b200_of_one_node, mps_alive, ecc_corrected_alone, xid_13_alone,
            secure_boot_all_enrolled, secure_boot_off_not_loaded, selinux_permissive, acs_with_one_gpu,
            small_shm_with_one_gpu)  # fmt: skip
