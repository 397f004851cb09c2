"""Six places that are not a plain machine: LXC, podman, a pod, a vGPU guest, WSL 2 and a Jetson."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines import parts, wheels
from tools.machines.container_marks import bound
from tools.machines.distro_gpus import A10G
from tools.machines.elf_writer import ElfSpec
from tools.machines.guest_parts import Placed, box, cuda_works, firmware, gpus_at, renamed, ubuntu, unit
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.special_parts import jetson, jetson_cache, jetson_cuda, torch_of_board, wsl
from tools.machines.wheels import CU130, TorchWheel

RTX_3090 = GpuSpec("NVIDIA GeForce RTX 3090", "8.6", 5, 23.99, "0x2204")
P100 = GpuSpec("Tesla P100-PCIE-16GB", "6.0", 2, 15.9, "0x15f8")
RTX_6000_8Q = GpuSpec("GRID RTX6000-8Q", "7.5", 10, 8.0, "0x1e30")
GTX_1660_TI = GpuSpec("NVIDIA GeForce GTX 1660 Ti", "7.5", 5, 6.0, "0x2191")
ORIN = GpuSpec("Orin", "8.7", 1, 61.4, "0x0000")
_LIB = "/usr/lib/x86_64-linux-gnu"
_TEGRA = "/usr/lib/aarch64-linux-gnu/nvidia"


def _proxmox(name: str, about: str) -> Reconstruction:
    thread = ("ollama/ollama#4984 (two 3090, Proxmox, GPUs lost after a restart), NVIDIA/enroot#106 (UVM is not loaded "
              "by default, and an unprivileged container cannot do it)")  # fmt: skip
    machine = inside.start(name, about, "debian-12", source=SUPPOSED, kernel="6.8.12-9-pve")
    inside.module(machine, "550.120", source=thread, kind="proprietary")
    inside.bus(machine, RTX_3090)
    inside.libraries(machine, "550.120", source=SUPPOSED)
    marks.dpkg_knows_not(machine, *(f"{_LIB}/lib{each}.so.550.120" for each in ("cuda", "nvidia-ml")))
    inside.nvml_lists(machine, "550.120", RTX_3090, source=thread, ecc_mode=0)
    return inside.torch(machine, "2.6.0+cu124", python="3.11")


def _proxmox_done(machine: Reconstruction) -> Reconstruction:
    marks.lxc(machine, *(line for line in bound(machine) if "/dev/nv" in line), source=SUPPOSED, manager="proxmox",
              root="rpool/data/subvol-105-disk-0 / zfs rw,relatime,xattr,posixacl")  # fmt: skip
    return inside.cache(machine)


def proxmox_host_without_uvm() -> Reconstruction:
    """After a restart nobody on the host asked for nvidia-uvm: no module, no node; nvidia-smi works."""
    machine = _proxmox("proxmox-host-without-uvm", "Debian 12 Proxmox container, nvidia_uvm is not loaded on the host")
    inside.nodes(machine, 1, source=SUPPOSED, uvm=False)
    machine.without("/sys/module/nvidia_uvm")
    machine.file("/proc/modules", "nvidia 56823808 2 - Live 0x0 (POE)\n", source=SUPPOSED)
    machine.file("/proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n", source=SUPPOSED)
    inside.cuda_says(machine, "550.120", 999)
    return _proxmox_done(machine)


def proxmox_host_without_uvm_near_miss() -> Reconstruction:
    """The host has loaded it, and its nodes are bound."""
    machine = _proxmox("proxmox-host-without-uvm-near-miss", "The same container with nvidia-uvm on the host: works")
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.cuda_starts(machine, "550.120", RTX_3090)
    return _proxmox_done(machine)


def _cdi(name: str, about: str) -> Reconstruction:
    thread = ("NVIDIA/nvidia-container-toolkit#50 (Tesla P100, Ubuntu 22.04 host, podman 4.3.1 rootless, toolkit 1.12: "
              "the CDI file has nvidiactl alone; nvidia-smi works, torch.cuda.is_available() is False)")  # fmt: skip
    machine = inside.start(name, about, "ubuntu-22.04", source=SUPPOSED, kernel="5.15.0-60-generic")
    inside.module(machine, "525.85.05", source=f"{thread}; the version supposed", kind="proprietary")
    inside.bus(machine, P100)
    inside.libraries(machine, "525.85.05", source=thread)
    inside.nvml_lists(machine, "525.85.05", P100, source=thread)
    return inside.torch(machine, "2.4.1+cu118", python="3.10")


def podman_cdi_without_uvm() -> Reconstruction:
    """The CDI description was written while the uvm nodes were not there, so that they are not handed in."""
    machine = _cdi("podman-cdi-without-uvm", "Rootless podman, CDI description without nvidia-uvm: cuInit fails")
    inside.nodes(machine, 1, source=SUPPOSED, uvm=False)
    inside.cuda_says(machine, "525.85.05", 999)
    marks.podman(machine, *bound(machine), source=SUPPOSED, rootless=1, version="4.3.1", NVIDIA_VISIBLE_DEVICES="void")
    return inside.cache(machine)


def podman_cdi_without_uvm_near_miss() -> Reconstruction:
    """The description names the uvm nodes too."""
    machine = _cdi("podman-cdi-without-uvm-near-miss", "Rootless podman with nvidia-uvm in the description: works")
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.cuda_starts(machine, "525.85.05", P100)
    marks.podman(machine, *bound(machine), source=SUPPOSED, rootless=1, version="4.3.1", NVIDIA_VISIBLE_DEVICES="void")
    return inside.cache(machine)


def _eks(name: str, about: str, version: str) -> Reconstruction:
    thread = "awslabs/amazon-eks-ami#2437 (EKS images have driver 570; CUDA 13 needs 580)"
    machine = inside.start(name, about, "ubuntu-22.04", source=SUPPOSED, kernel="6.1.148-173.267.amzn2023.x86_64")
    machine.file("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n", source=SUPPOSED)
    machine.file("/sys/class/dmi/id/product_name", "g5.2xlarge\n", source=SUPPOSED)
    inside.bus(machine, A10G)
    inside.given(machine, version, A10G, source=f"{thread}; the version supposed")
    marks.kubernetes(machine, *bound(machine), source=SUPPOSED, NVIDIA_DRIVER_CAPABILITIES="compute,utility",
                     NVIDIA_VISIBLE_DEVICES="GPU-00000000-0000-0000-0000-000000000000")  # fmt: skip
    inside.torch(machine, "2.9.0+cu130")
    return inside.cache(machine)


def eks_pod_driver_570_cu130() -> Reconstruction:
    """The node's driver is the image's, and the pod brings torch for CUDA 13."""
    return _eks("eks-pod-driver-570-cu130", "Pod on EKS with an A10G, driver 570.148.08 and torch 2.9.0+cu130",
                "570.148.08")  # fmt: skip


def eks_pod_driver_570_cu130_near_miss() -> Reconstruction:
    """A node of a newer image."""
    return _eks("eks-pod-driver-570-cu130-near-miss", "The same pod on a node with driver 580.82.07: works",
                "580.82.07")  # fmt: skip


def _vgpu(name: str, about: str) -> Reconstruction:
    machine = box(name, about)
    source = ("DualCoder/vgpu_unlock#51 (RTX 2070, vGPU 12.2, NVIDIA-Linux-x86_64-460.73.02-vgpu-kvm.run in the "
              "virtual machine: nvidia-smi shows the driver and no CUDA version)")  # fmt: skip
    ubuntu(machine, "20.04", kernel="5.4.0-73-generic", source=SUPPOSED)
    firmware(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", guest="kvm", source=SUPPOSED)
    gpus_at(machine, "460.73.02", Placed(RTX_6000_8Q, "0000:01:00.0", "0x030000"), source=source, kind="proprietary",
            virtualization=2, ecc_mode=0, grid_licensable_features={"is_licensed": 1})  # fmt: skip
    folder = "/sys/bus/pci/devices/0000:01:00.0"
    machine.file(f"{folder}/subsystem_vendor", "0x10de\n", source=SUPPOSED)
    machine.file(f"{folder}/subsystem_device", "0x1327\n", source="supposed: a vGPU type's own number")
    machine.file("/var/log/nvidia-installer.log", "nvidia-installer log\ndriver version : 460.73.02\n", source=source)
    wheel = TorchWheel("1.13.1+cu117", "11.7", ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86"),
                       tag="cp38-cp38-manylinux1_x86_64")  # fmt: skip
    site = wheels.python(machine, "/root/venv", version="3.8", source=SUPPOSED)
    wheels.torch(machine, site, wheel, source=SUPPOSED)
    return machine


def vgpu_host_driver_in_guest() -> Reconstruction:
    """The hypervisor's half of the package was installed in the virtual machine: it has no libcuda."""
    machine = _vgpu("vgpu-host-driver-in-guest", "KVM guest with a vGPU and the host's driver 460.73.02: no libcuda")
    machine.without(f"{_LIB}/libcuda.so.460.73.02", f"{_LIB}/libcuda.so.1", f"{_LIB}/libcuda.so")
    unit(machine, "nvidia-gridd", state="absent", sub="dead", source=SUPPOSED)
    smi_q(machine, virtualization="VGPU", brand="NVIDIA RTX Virtual Workstation", ecc="N/A",
          product="NVIDIA RTX Virtual Workstation", licence="Unlicensed (Unrestricted)")  # fmt: skip
    return parts.loader_cache(machine)


def vgpu_host_driver_in_guest_near_miss() -> Reconstruction:
    """The guest's half of the same release."""
    machine = _vgpu("vgpu-host-driver-in-guest", "")
    renamed(machine, "The same guest with the guest's driver and a licence: works")
    cuda_works(machine, "460.73.02", RTX_6000_8Q)
    unit(machine, "nvidia-gridd", log=("nvidia-gridd: License acquired successfully.",), source=SUPPOSED)
    smi_q(machine, virtualization="VGPU", brand="NVIDIA RTX Virtual Workstation", ecc="N/A",
          product="NVIDIA RTX Virtual Workstation", licence="Licensed (Expiry: N/A)")  # fmt: skip
    return parts.loader_cache(machine)


def _windows(name: str, about: str, driver: str, cuda: str) -> Reconstruction:
    machine = box(name, about, root=0, python="3.10.12")
    source = "microsoft/WSL#9272 (Windows 11 22H2, NVIDIA-SMI 525.60.13, Driver Version: 522.25, CUDA Version: 11.8)"
    ubuntu(machine, "22.04", source=source)
    wsl(machine, GTX_1660_TI, driver, kernel="5.15.79.1-microsoft-standard-WSL2", cuda=cuda, source=source)
    site = wheels.python(machine, "/home/user-a/venv", version="3.10", source=SUPPOSED)
    wheel = TorchWheel("2.9.0+cu130", "13.0", CU130, tag="cp310-cp310-manylinux_2_28_x86_64")
    wheels.torch(machine, site, wheel, source="supposed: what pip gives today")
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def wsl2_windows_driver_522() -> Reconstruction:
    """A Windows driver of CUDA 11.8, which no build of today's torch runs on."""
    return _windows("wsl2-windows-driver-522", "WSL 2 with Windows driver 522.25 (CUDA 11.8) and torch 2.9.0+cu130",
                    "522.25", "11.8")  # fmt: skip


def wsl2_windows_driver_522_near_miss() -> Reconstruction:
    """Windows got a driver of CUDA 13."""
    return _windows("wsl2-windows-driver-522-near-miss", "The same WSL 2 with Windows driver 581.80: works",
                    "581.80", "13.0")  # fmt: skip


def _orin(name: str, about: str) -> Reconstruction:
    thread = ("NVIDIA/Isaac-GR00T#343 (Orin, JetPack 6.2, torch 2.8 of the Jetson index: ImportError: libcudss.so.0; "
              "sudo apt-get -y install cudss cures it)")  # fmt: skip
    machine = box(name, about, arch="aarch64", root=0, python="3.10.12")
    ubuntu(machine, "22.04", source=f"{thread}; Ubuntu of JetPack 6")
    jetson(machine, "36.4.3", board="NVIDIA Jetson AGX Orin Developer Kit", chip="tegra234", kernel="5.15.148-tegra",
           date="Wed Jan  8 01:49:37 UTC 2025", source=thread)  # fmt: skip
    jetson_cuda(machine, ORIN, cuda="12.6", folder=_TEGRA, source=SUPPOSED)
    site = wheels.python(machine, "/home/user-a/env", version="3.10", source=thread)
    wheel = TorchWheel("2.8.0", "12.6", ("sm_87",), needed=("libcudss.so.0",), tag="cp310-cp310-linux_aarch64")
    torch_of_board(machine, site, wheel, runtime="libcudart.so.12", source=thread)
    needed = ("libcudart.so.12", "libc10_cuda.so", "libcudss.so.0", "libc.so.6")
    machine.elf(f"{site}/torch/lib/libtorch_cuda.so", ElfSpec(rpath="$ORIGIN", needed=needed), source=thread)
    return machine


def orin_torch_28_no_cudss() -> Reconstruction:
    """torch of the Jetson index asks for a library that JetPack does not have."""
    machine = _orin("orin-torch-28-no-cudss", "Jetson AGX Orin, JetPack 6.2, torch 2.8.0: libcudss.so.0 is missing")
    return jetson_cache(machine, cuda="12.6", folder=_TEGRA)


def orin_torch_28_no_cudss_near_miss() -> Reconstruction:
    """With NVIDIA's package of it."""
    machine = _orin("orin-torch-28-no-cudss", "")
    renamed(machine, "The same Orin with libcudss.so.0: works")
    path = "/usr/lib/aarch64-linux-gnu/libcudss/12/libcudss.so.0"
    machine.elf(path, ElfSpec(soname="libcudss.so.0", needed=("libc.so.6",)), source=SUPPOSED)
    lib = "/usr/local/cuda-12.6/targets/aarch64-linux/lib/libcudart.so.12"
    return parts.loader_cache(machine, f"{_TEGRA}/libcuda.so.1", lib, path)


MACHINES = (
    proxmox_host_without_uvm,
    podman_cdi_without_uvm,
    eks_pod_driver_570_cu130,
    vgpu_host_driver_in_guest,
    wsl2_windows_driver_522,
    orin_torch_28_no_cudss,
)
NEAR_MISSES = (
    proxmox_host_without_uvm_near_miss,
    podman_cdi_without_uvm_near_miss,
    eks_pod_driver_570_cu130_near_miss,
    vgpu_host_driver_in_guest_near_miss,
    wsl2_windows_driver_522_near_miss,
    orin_torch_28_no_cudss_near_miss,
)
