"""Images of the clouds with a fault of their kind, from public threads."""

from __future__ import annotations

from tools.machines import parts, wheels
from tools.machines.driver_parts import SM_50_TO_90, TORCH_211_CU130, log
from tools.machines.fleet_parts import fabric_manager, hgx
from tools.machines.guest_parts import (
    Placed,
    box,
    bus,
    cuda_works,
    firmware,
    gpus_at,
    moved,
    no_devices,
    other,
    package,
    renamed,
    running,
    torch_for,
    ubuntu,
)
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import TorchWheel

RTX_PRO_4500 = GpuSpec("NVIDIA RTX PRO 4500 Blackwell Server Edition", "12.0", 14, 31.8, "0x2c3a")
A100 = GpuSpec("NVIDIA A100-SXM4-80GB", "8.0", 14, 79.2, "0x20b2")
V100 = GpuSpec("Tesla V100-SXM2-16GB", "7.0", 2, 15.8, "0x1db1")
L4 = GpuSpec("NVIDIA L4", "8.9", 14, 22.5, "0x27b8")
_G7 = Placed(RTX_PRO_4500, "0000:57:00.0")
_EKS = "awslabs/amazon-eks-ami#2768, #2769 (g7, 10de:2c3a at 57:00.0, AL2023, 580.159.03, proprietary module loaded)"


def _g7_node(name: str, about: str) -> Reconstruction:
    machine = box(name, about)
    ubuntu(machine, "24.04", source=SUPPOSED)
    running(machine, "6.12.40-64.114.amzn2023.x86_64", source=SUPPOSED)
    firmware(machine, "Amazon EC2", "g7.2xlarge", guest="amazon", source=_EKS)
    machine.file("/etc/eks/nvidia-kmod-load.sh", "#!/bin/bash\n", source=_EKS)
    listed = "0x2C31 NVIDIA RTX PRO 4500 Blackwell\n0x2C38 NVIDIA RTX PRO 4000 Blackwell Laptop GPU\n"
    machine.file("/etc/eks/nvidia-open-supported-devices-580.txt", listed, source=_EKS)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TORCH_211_CU130, source=SUPPOSED)
    return machine


def eks_g7_proprietary() -> Reconstruction:
    """The node image chose the proprietary module for a Blackwell GPU it had not on its list."""
    machine = _g7_node("eks-g7-proprietary", "EKS node g7 (AL2023) with the proprietary module: No devices were found")
    bus(machine, _G7, driver="nvidia", source=_EKS)
    no_devices(machine, "580.159.03", source=_EKS, kind="proprietary")
    log(
        machine,
        "NVRM: The NVIDIA GPU 0000:57:00.0 (PCI ID: 10de:2c3a)",
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        "NVRM: GPU 0000:57:00.0: RmInitAdapter failed! (0x22:0x56:897)",
        source=_EKS,
    )
    return other(machine, "amzn-2023", source=_EKS)


def eks_g7_proprietary_near_miss() -> Reconstruction:
    """The open module of the same version."""
    machine = _g7_node("eks-g7-proprietary", "")
    renamed(machine, "The same node with the open module: works")
    gpus_at(machine, "580.159.03", _G7, source=SUPPOSED, virtualization=1)
    cuda_works(machine, "580.159.03", RTX_PRO_4500)
    log(machine, source=SUPPOSED)
    return other(machine, "amzn-2023", source=_EKS)


def _cos(name: str, about: str) -> Reconstruction:
    machine = box(name, about)
    source = "NVIDIA/gpu-operator#1623 (COS 121, its os-release), actions/actions-runner-controller#1902 (no driver)"
    ubuntu(machine, "24.04", source=SUPPOSED)
    running(machine, "6.6.93+", source=SUPPOSED)
    firmware(machine, "Google", "Google Compute Engine", guest="google", source=SUPPOSED)
    machine.file("/usr/bin/cos-extensions", "", source="kubernetes/kubernetes#105989 (the installer is built in)")
    machine.file("/usr/bin/toolbox", "", source=SUPPOSED)
    mounts = "/dev/root / ext2 ro,relatime 0 0\n/dev/sda1 /mnt/stateful_partition ext4 rw 0 0\n"
    machine.file("/proc/self/mounts", mounts, source=SUPPOSED)
    site = wheels.python(machine, "/mnt/stateful_partition/venv", source=SUPPOSED)
    wheels.torch(machine, site, TORCH_211_CU130, source=SUPPOSED)
    machine.sources["/etc/os-release"] = source
    return machine


def gce_cos_no_driver() -> Reconstruction:
    """Container-Optimized OS on a machine with an L4: a driver comes only by the system's own extension."""
    machine = _cos("gce-cos-no-driver", "Container-Optimized OS 121 with an L4 and no driver")
    bus(machine, Placed(L4, "0000:00:03.0"), source=SUPPOSED)
    machine.file("/sys/module/kernel/parameters/panic", "0\n", source=SUPPOSED)
    log(machine, source=SUPPOSED)
    return other(machine, "cos-121", source="NVIDIA/gpu-operator#1623 (os-release of COS 121)")


def gce_cos_no_driver_near_miss() -> Reconstruction:
    """The extension put driver 580 under /var/lib/nvidia and loaded it."""
    machine = _cos("gce-cos-no-driver", "")
    renamed(machine, "The same system after cos-extensions install gpu: works")
    gpus_at(machine, "580.95.05", Placed(L4, "0000:00:03.0"), source=SUPPOSED, virtualization=1)
    cuda_works(machine, "580.95.05", L4)
    machine.env(LD_LIBRARY_PATH="/var/lib/nvidia/lib64")
    log(machine, source=SUPPOSED)
    other(machine, "cos-121", source="NVIDIA/gpu-operator#1623 (os-release of COS 121)")
    return moved(machine, "/usr/lib64/", "/var/lib/nvidia/lib64/", "libcuda", "libnvidia-ml")


def _oci(name: str, about: str, *, manager: str, state: int, code: int) -> Reconstruction:
    machine = box(name, about)
    source = ("dstackai/dstack#2348, #2355 (8 x A100 on OCI, Error 802, FM 535.183.01 pinned, driver newer: "
              "its number supposed)")  # fmt: skip
    ubuntu(machine, "22.04", kernel="6.8.0-1019-oracle", source=SUPPOSED)
    firmware(machine, "Oracle Corporation", "ORACLE SERVER E4-2c", guest="", source=SUPPOSED)
    machine.file("/sys/class/dmi/id/chassis_asset_tag", "OracleCloud.com\n", source=SUPPOSED)
    hgx(machine, "535.230.02", A100, state=state, code=code, switch="0x1af1", switches=6, source=source,
        kind="proprietary")  # fmt: skip
    package(machine, "cuda-drivers-535", "535.183.01-1", source=source)
    package(machine, "nvidia-driver-535", "535.230.02-0ubuntu1", source=source)
    package(machine, "nvidia-fabricmanager-535", f"{manager}-1", "/usr/bin/nv-fabricmanager", source=source)
    said = ("fabric manager NVIDIA GPU driver interface version 535.183.01 don't match with driver version 535.230.02. "
            "Please update with matching NVIDIA driver package.")  # fmt: skip
    lines = (said,) if code else ("Successfully configured all the available NVSwitches to route GPU NVLink traffic.",)
    fabric_manager(machine, manager, log=lines, failed=1 if code else 0, source=source)
    log(machine, source=SUPPOSED)
    torch_for(machine, TorchWheel("2.5.1+cu121", "12.1", SM_50_TO_90), python="3.10")
    return parts.loader_cache(machine)


def oci_a100_pinned_manager() -> Reconstruction:
    """An image that pinned the Fabric Manager while the driver moved on: cuInit gives 802."""
    about = "OCI A100 server with driver 535.230.02 and Fabric Manager 535.183.01: cuInit gives 802"
    return _oci("oci-a100-pinned-manager", about, manager="535.183.01", state=0, code=802)


def oci_a100_pinned_manager_near_miss() -> Reconstruction:
    """Both of the same version."""
    machine = _oci("oci-a100-pinned-manager", "", manager="535.230.02", state=0, code=0)
    return renamed(machine, "The same server with Fabric Manager 535.230.02: works")


def _dlami(name: str, about: str, wheel: TorchWheel) -> Reconstruction:
    machine = box(name, about, root=0, python="3.10.12")
    source = "skypilot-org/skypilot#548 (Deep Learning Base AMI (Ubuntu 18.04) Version 50.0, 450.142.00, CUDA 11.0)"
    ubuntu(machine, "18.04", kernel="5.4.0-1060-aws", source=source)
    firmware(machine, "Amazon EC2", "p3.2xlarge", guest="amazon", source=f"{source}; the instance is supposed")
    machine.file("/etc/motd", "Deep Learning Base AMI (Ubuntu 18.04) Version 50.0\n", source=source)
    gpus_at(machine, "450.142.00", Placed(V100, "0000:00:1e.0"), source=source, kind="proprietary", virtualization=1)
    cuda_works(machine, "450.142.00", V100)
    log(machine, source=SUPPOSED)
    prefix = "/home/user-a/miniconda3/envs/train"
    site = wheels.python(machine, prefix, version="3.10", source=SUPPOSED)
    machine.file(f"{prefix}/conda-meta/history", "", source=SUPPOSED)
    machine.env(CONDA_PREFIX=prefix)
    wheels.torch(machine, site, wheel, source=SUPPOSED)
    return parts.loader_cache(machine)


def dlami_driver_450() -> Reconstruction:
    """An old Deep Learning AMI: its driver runs CUDA 11 alone, its glibc takes no wheel for manylinux_2_28."""
    wheel = TorchWheel("2.4.1+cu121", "12.1", SM_50_TO_90, tag="cp310-cp310-linux_x86_64")
    return _dlami("dlami-driver-450", "AWS DLAMI of Ubuntu 18.04 with driver 450.142.00 and torch 2.4.1+cu121", wheel)


def dlami_driver_450_near_miss() -> Reconstruction:
    """The wheel of the same release for CUDA 11.8."""
    wheel = TorchWheel("2.4.1+cu118", "11.8", SM_50_TO_90, tag="cp310-cp310-linux_x86_64")
    return renamed(_dlami("dlami-driver-450", "", wheel), "The same DLAMI with torch 2.4.1+cu118: works")


MACHINES = (eks_g7_proprietary, gce_cos_no_driver, oci_a100_pinned_manager, dlami_driver_450)
NEAR_MISSES = (eks_g7_proprietary_near_miss, gce_cos_no_driver_near_miss, oci_a100_pinned_manager_near_miss,
               dlami_driver_450_near_miss)  # fmt: skip
