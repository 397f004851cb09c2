"""Machines of SUSE, Amazon, Azure and Arch, each with the package names and module folders of its kind."""

from __future__ import annotations

from tools.machines import distro_parts as distro
from tools.machines.distro_gpus import (
    A100_80,
    RTX_4060_TI,
    RTX_4070,
    RTX_5080_LAPTOP,
    TESLA_T4,
    TESLA_V100,
    TORCH_25_CU121,
)
from tools.machines.distro_releases import AL2, AL2023, ARCH, AZL3, LEAP_16, MARINER_2, SLE_MICRO_55
from tools.machines.driver_parts import TORCH_26_CU124, TORCH_28_CU128, TORCH_211_CU130, log
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction

OPEN_1000 = "NVIDIA/open-gpu-kernel-modules#1000"
EDGE_86 = "suse-edge/suse-edge.github.io#86"
EKS_1697 = "awslabs/amazon-eks-ami#1697"
AL2023_1054 = "amazonlinux/amazon-linux-2023#1054"
AZL_13433 = "microsoft/azurelinux#13433"
AZL_9013 = "microsoft/azurelinux#9013"
OPEN_935 = "NVIDIA/open-gpu-kernel-modules#935"
CUSTOM_KERNEL = "OpenGamingCollective/asusctl#291 (the regular package works only with the stock Arch kernel)"


def _leap_16(name: str, about: str, *, on_disk: str) -> Reconstruction:
    """Leap 16 whose userspace went to 580.119.02, with 580.105.08 loaded."""
    source = f"{OPEN_1000} (Leap 16.0, 6.12.0-160000.8-default, RTX 4060 Ti, 580.105.08; repo-oss is at 580.119)"
    machine = distro.start(name, about, LEAP_16, kernel="6.12.0-160000.8-default", source=source)
    listed = {"nvidia-open-driver-G06-signed-cuda-kmp-default": f"{on_disk}_k6.12.0_160000.6-lp160.1.1.x86_64",
              "nvidia-compute-G06": "580.119.02-lp160.24.1.x86_64",
              "nvidia-compute-utils-G06": "580.119.02-lp160.24.1.x86_64"}  # fmt: skip
    distro.packages(machine, LEAP_16, listed, source=f"{source}; that the userspace moved on is supposed")
    path = "/lib/modules/6.12.0-160000.8-default/weak-updates/updates/nvidia.ko.zst"
    distro.module_file(machine, path, on_disk, signer="openSUSE Secure Boot CA", source=source)
    distro.card(machine, RTX_4060_TI, "0000:01:00.0", driver="nvidia", source=source)
    distro.mismatched(machine, loaded="580.105.08", libraries="580.119.02", source=source)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, LEAP_16)


def leap_16_kmp_behind() -> Reconstruction:
    """The signed module's package is older than the libraries: no restart mends that."""
    return _leap_16("leap-16-kmp-behind", "openSUSE Leap 16: libraries 580.119.02, the signed module is 580.105.08",
                    on_disk="580.105.08")  # fmt: skip


def leap_16_kmp_behind_near_miss() -> Reconstruction:
    """The new module is installed, and the old one is still loaded."""
    return _leap_16("leap-16-kmp-behind-near-miss", "openSUSE Leap 16 after an update of all parts: not restarted yet",
                    on_disk="580.119.02")  # fmt: skip


def _sle_micro(name: str, about: str) -> Reconstruction:
    """SLE Micro: the root file system is a read-only snapshot."""
    machine = distro.start(name, about, SLE_MICRO_55, kernel="5.14.21-150500.55.36-default", source=SUPPOSED)
    root = "/dev/sda3 / btrfs ro,relatime,subvolid=267,subvol=/@/.snapshots/2/snapshot 0 0\n"
    machine.file("/proc/self/mounts", root, source=SUPPOSED)
    machine.file("/proc/self/mountinfo", "23 1 0:21 /@/.snapshots/2/snapshot / ro,relatime - btrfs /dev/sda3 ro\n",
                 source=SUPPOSED)  # fmt: skip
    machine.file("/etc/transactional-update.conf", "REBOOT_METHOD=auto\n", source=SUPPOSED)
    return distro.torch(machine, TORCH_26_CU124)


def sle_micro_no_driver() -> Reconstruction:
    """A server with a GPU and nothing of NVIDIA on it."""
    machine = _sle_micro("sle-micro-no-driver", "SLE Micro 5.5 server with an A100 and no driver")
    distro.card(machine, A100_80, "0000:17:00.0", source=f"{EDGE_86} (a guide to the driver on SLE Micro)")
    distro.nothing_installed(machine)
    distro.packages(machine, SLE_MICRO_55, {"kernel-default": "5.14.21-150500.55.36.1.x86_64"}, source=SUPPOSED)
    log(machine, source=SUPPOSED)
    return distro.done(machine, SLE_MICRO_55)


def sle_micro_no_driver_near_miss() -> Reconstruction:
    """The guide was followed."""
    machine = _sle_micro(
        "sle-micro-no-driver-near-miss", "SLE Micro 5.5 server with an A100 and driver 535.86.05: works"
    )
    listed = {"nvidia-open-driver-G06-signed-kmp-default": "535.86.05_k5.14.21_150500.53-150500.3.7.1.x86_64",
              "kernel-firmware-nvidia-gspx-G06": "535.86.05-150500.11.6.1.x86_64",
              "nvidia-compute-utils-G06": "535.86.05-9.1.x86_64"}  # fmt: skip
    source = f"{EDGE_86} (nvidia-open-driver-G06-signed-kmp=535.86.05 kernel-firmware-nvidia-gspx-G06)"
    distro.packages(machine, SLE_MICRO_55, listed, source=source)
    path = "/lib/modules/5.14.21-150500.55.36-default/weak-updates/updates/nvidia.ko"
    distro.module_file(machine, path, "535.86.05", signer="SUSE Linux Enterprise Secure Boot CA", source=source)
    distro.works(machine, "535.86.05", (A100_80, "0000:17:00.0"), source=source)
    return distro.done(machine, SLE_MICRO_55)


def _eks_node(name: str, about: str) -> Reconstruction:
    """An EKS GPU node of Amazon Linux 2."""
    source = f"{EKS_1697} (p3.2xlarge, amazon-eks-gpu-node-1.29-v20240227, 5.10.209-198.858.amzn2.x86_64)"
    machine = distro.start(name, about, AL2, kernel="5.10.209-198.858.amzn2.x86_64", source=source)
    distro.dmi(machine, "Amazon EC2", "p3.2xlarge", source=source)
    machine.file("/etc/eks/bootstrap.sh", "", source=SUPPOSED)
    listed = {"nvidia-driver-latest-dkms": "535.161.07-1.amzn2.x86_64", "kubelet": "1.29.0-1.amzn2.x86_64"}
    distro.packages(machine, AL2, listed, source=f"{source}; the driver's version is supposed")
    return distro.torch(machine, TORCH_25_CU121)


def eks_al2_v100_open_module() -> Reconstruction:
    """A new image loads the open module on an instance whose V100 it does not support."""
    machine = _eks_node("eks-al2-v100-open-module", "EKS node (Amazon Linux 2) with a V100: the open module ignores it")
    source = f"{EKS_1697} (Some instance types using incorrect NVIDIA kernel module)"
    path = "/lib/modules/5.10.209-198.858.amzn2.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "535.161.07", source=source)
    distro.card(machine, TESLA_V100, "0000:00:1e.0", source=source)
    distro.unloaded(machine, "535.161.07", source=source)
    log(
        machine,
        "[   12.046099] NVRM: The NVIDIA GPU 0000:00:1e.0 (PCI ID: 10de:1db1)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
        "NVRM: System Processor (GSP).",
        "[   12.047001] nvidia: probe of 0000:00:1e.0 failed with error -1",
        "[   12.047090] NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "[   12.047091] NVRM: None of the NVIDIA devices were initialized.",
        source="NVIDIA/open-gpu-kernel-modules#322 and #587 (another V100 and its lines); the address is this GPU's",
    )
    return distro.done(machine, AL2)


def eks_al2_v100_open_module_near_miss() -> Reconstruction:
    """The proprietary module of the same version."""
    machine = _eks_node("eks-al2-v100-open-module-near-miss", "EKS node with a V100 and the proprietary module: works")
    path = "/lib/modules/5.10.209-198.858.amzn2.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "535.161.07", licence="NVIDIA", source=EKS_1697)
    distro.works(machine, "535.161.07", (TESLA_V100, "0000:00:1e.0"), kind="proprietary", source=EKS_1697)
    return distro.done(machine, AL2)


def _al2023_image(name: str, about: str) -> Reconstruction:
    """Amazon Linux 2023 with the DKMS stream of NVIDIA's repository, made by EC2 Image Builder."""
    source = f"{AL2023_1054} (2023.10.20260105, kernel 6.12, nvidia-driver:latest-dkms, CUDA 13.1)"
    machine = distro.start(name, about, AL2023, kernel="6.12.58-82.121.amzn2023.x86_64", source=source)
    distro.dmi(machine, "Amazon EC2", "g4dn.xlarge", source=SUPPOSED)
    listed = {
        "kmod-nvidia-latest-dkms": "590.48.01-1.amzn2023.x86_64",
        "nvidia-driver-cuda": "590.48.01-1.amzn2023.x86_64",
        "dkms": "3.2.2-1.amzn2023.noarch",
        "kernel6.12-devel": "6.12.58-82.121.amzn2023.x86_64",
    }
    distro.packages(machine, AL2023, listed, source=f"{source}; the driver's version is supposed")
    machine.file("/etc/yum.repos.d/cuda-amzn2023.repo", "[cuda-amzn2023-x86_64]\nenabled=1\n", source=source)
    machine.file("/usr/src/kernels/6.12.58-82.121.amzn2023.x86_64/Makefile", "", source=SUPPOSED)
    return distro.torch(machine, TORCH_211_CU130)


def al2023_full_disk_no_module() -> Reconstruction:
    """The root volume of 4 GB was full before DKMS had built the module."""
    machine = _al2023_image("al2023-full-disk-no-module", "Amazon Linux 2023 on a 4 GB volume: DKMS built no module")
    source = f"{AL2023_1054} (4 GB root volume; nvidia-smi couldn't communicate with the NVIDIA driver)"
    distro.card(machine, TESLA_T4, "0000:00:1e.0", source=SUPPOSED)
    distro.unloaded(machine, "590.48.01", source=source)
    machine.command("dkms status", "nvidia/590.48.01: added\n")
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    machine.file("/var/lib/dkms/nvidia/590.48.01/build/make.log", "error writing: No space left on device\n",
                 source=f"{source}; the line is supposed")  # fmt: skip
    machine.space("/", total_gib=4, free_gib=0.02)
    machine.sources["/"] = source
    log(machine, source=SUPPOSED)
    return distro.done(machine, AL2023)


def al2023_full_disk_no_module_near_miss() -> Reconstruction:
    """A volume with room for the build."""
    machine = _al2023_image("al2023-full-disk-no-module-near-miss", "Amazon Linux 2023 on a 16 GB volume: works")
    machine.space("/", total_gib=16, free_gib=9)
    machine.command("dkms status", "nvidia/590.48.01, 6.12.58-82.121.amzn2023.x86_64, x86_64: installed\n")
    path = "/lib/modules/6.12.58-82.121.amzn2023.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "590.48.01", licence="NVIDIA", source=AL2023_1054)
    distro.works(machine, "590.48.01", (TESLA_T4, "0000:00:1e.0"), kind="proprietary", source=AL2023_1054)
    return distro.done(machine, AL2023)


def _azure_linux_node(name: str, about: str, kernel: str) -> Reconstruction:
    """An AKS node of Azure Linux 3 with Microsoft's cuda package for kernel 6.6.78.1-3."""
    source = f"{AZL_13433} (AKS 1.32.3, cuda-0:560.35.03-1_6.6.78.1.3.azl3.x86_64, kernel {kernel})"
    machine = distro.start(name, about, AZL3, kernel=kernel, source=source)
    distro.dmi(machine, "Microsoft Corporation", "Virtual Machine", source=source)
    machine.file("/sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", source=SUPPOSED)
    distro.packages(machine, AZL3, {"cuda": "560.35.03-1_6.6.78.1.3.azl3.x86_64", "kernel": f"{kernel}.x86_64"},
                    source=source)  # fmt: skip
    machine.file(
        "/etc/yum.repos.d/azurelinux-official-nvidia.repo",
        "[azurelinux-official-nvidia]\nenabled=1\n"
        "baseurl=https://packages.microsoft.com/azurelinux/3.0/prod/nvidia/x86_64\n",
        source=AZL_9013,
    )
    path = "/lib/modules/6.6.78.1-3.azl3/updates/nvidia.ko"
    distro.module_file(machine, path, "560.35.03", signer="Microsoft Corporation", licence="NVIDIA", source=source)
    return distro.torch(machine, TORCH_26_CU124)


def azl3_kernel_ahead_of_cuda() -> Reconstruction:
    """Installing the cuda package pulled a kernel for which it has no module; the restart showed it."""
    machine = _azure_linux_node("azl3-kernel-ahead-of-cuda", "Azure Linux 3 node on kernel 6.6.82: cuda is for 6.6.78",
                                "6.6.82.1-1.azl3")  # fmt: skip
    distro.card(machine, A100_80, "0001:00:00.0", source=SUPPOSED)
    distro.unloaded(machine, "560.35.03", source=f"{AZL_13433} (the GPU driver cannot be loaded)")
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    log(machine, source=SUPPOSED)
    return distro.done(machine, AZL3)


def azl3_kernel_ahead_of_cuda_near_miss() -> Reconstruction:
    """The kernel that the package is for."""
    machine = _azure_linux_node("azl3-kernel-ahead-of-cuda-near-miss", "Azure Linux 3 node on kernel 6.6.78: works",
                                "6.6.78.1-3.azl3")  # fmt: skip
    distro.works(machine, "560.35.03", (A100_80, "0001:00:00.0"), kind="proprietary", source=AZL_13433)
    return distro.done(machine, AZL3)


def _mariner(name: str, about: str) -> Reconstruction:
    source = f"{AZL_9013} (our azure vm is CBL; yum install cuda and reboot, still the same error)"
    machine = distro.start(name, about, MARINER_2, kernel="5.15.153.1-2.cm2", source=source)
    distro.dmi(machine, "Microsoft Corporation", "Virtual Machine", source=source)
    return distro.torch(machine, TORCH_25_CU121)


def mariner_2_no_module() -> Reconstruction:
    """nvidia-smi is there and no module: the repository with the driver was never registered."""
    machine = _mariner("mariner-2-no-module", "CBL-Mariner 2.0 in Azure: nvidia-smi and no kernel module")
    distro.card(machine, TESLA_T4, "0001:00:00.0", source=SUPPOSED)
    distro.unloaded(machine, "525.85.12", source=f"{AZL_9013}; the version is supposed")
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    distro.packages(machine, MARINER_2, {"kernel": "5.15.153.1-2.cm2.x86_64"}, source=SUPPOSED)
    log(machine, source=SUPPOSED)
    return distro.done(machine, MARINER_2)


def mariner_2_no_module_near_miss() -> Reconstruction:
    """Microsoft's NVIDIA repository is registered and its cuda package installed."""
    machine = _mariner(
        "mariner-2-no-module-near-miss", "CBL-Mariner 2.0 with the cuda package: works, and is out of support"
    )
    machine.file("/etc/yum.repos.d/mariner-nvidia.repo", "[mariner-official-nvidia]\nenabled=1\n",
                 source="microsoft/azurelinux:toolkit/docs/nvidia/nvidia.md of branch 2.0")  # fmt: skip
    distro.packages(machine, MARINER_2, {"cuda": "525.85.12-6_5.15.153.1.2.cm2.x86_64"}, source=SUPPOSED)
    path = "/lib/modules/5.15.153.1-2.cm2/updates/nvidia.ko"
    distro.module_file(machine, path, "525.85.12", licence="NVIDIA", source=SUPPOSED)
    distro.works(machine, "525.85.12", (TESLA_T4, "0001:00:00.0"), kind="proprietary", source=AZL_9013)
    return distro.done(machine, MARINER_2)


def _arch_zen(name: str, about: str, listed: dict[str, str]) -> Reconstruction:
    source = (
        "Witko/nvidia-xrun#144 (nvidia_drm not found in directory /lib/modules/5.5.9-zen1-2-zen); versions supposed"
    )
    machine = distro.start(name, about, ARCH, kernel="6.16.8-zen3-1-zen", source=source)
    distro.packages(
        machine, ARCH, {"linux-zen": "6.16.8.zen3-1", "nvidia-utils": "580.82.09-1", **listed}, source=source
    )
    return distro.torch(machine, TORCH_28_CU128)


def arch_zen_with_stock_module() -> Reconstruction:
    """linux-zen runs, and nvidia-open has a module for linux only."""
    machine = _arch_zen("arch-zen-with-stock-module", "Arch on linux-zen with nvidia-open, which is built for linux",
                        {"linux": "6.16.8.arch3-1", "nvidia-open": "580.82.09-5"})  # fmt: skip
    machine.file("/lib/modules/6.16.8-arch3-1/extramodules/nvidia.ko.zst", "", source=CUSTOM_KERNEL)
    distro.card(machine, RTX_4070, "0000:01:00.0", source=SUPPOSED)
    distro.unloaded(machine, "580.82.09", source="Witko/nvidia-xrun#144 (could not find module by name 'nvidia')")
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    log(machine, source=SUPPOSED)
    return distro.done(machine, ARCH)


def arch_zen_with_stock_module_near_miss() -> Reconstruction:
    """nvidia-open-dkms with the headers of linux-zen."""
    machine = _arch_zen("arch-zen-with-stock-module-near-miss", "Arch on linux-zen with nvidia-open-dkms: works",
                        {"nvidia-open-dkms": "580.82.09-5", "linux-zen-headers": "6.16.8.zen3-1"})  # fmt: skip
    path = "/lib/modules/6.16.8-zen3-1-zen/updates/dkms/nvidia.ko.zst"
    distro.module_file(machine, path, "580.82.09", source=CUSTOM_KERNEL)
    distro.works(machine, "580.82.09", (RTX_4070, "0000:01:00.0"), source=SUPPOSED)
    return distro.done(machine, ARCH)


def _arch_laptop(name: str, about: str) -> Reconstruction:
    source = f"{OPEN_935}, comment of 2025-10-25 (6.17.5-arch1-1, nvidia-open 580.95.05-7, 5080 Laptop GPU)"
    machine = distro.start(name, about, ARCH, kernel="6.17.5-arch1-1", source=source)
    listed = {"linux": "6.17.5.arch1-1", "nvidia-open": "580.95.05-7", "nvidia-utils": "580.95.05-1",
              "linux-firmware-nvidia": "20251021-1"}  # fmt: skip
    distro.packages(machine, ARCH, listed, source=source)
    distro.module_file(machine, "/lib/modules/6.17.5-arch1-1/extramodules/nvidia.ko.zst", "580.95.05", source=source)
    return distro.torch(machine, TORCH_211_CU130)


def arch_gsp_does_not_boot() -> Reconstruction:
    """The module is right, and the GPU's own firmware does not start."""
    machine = _arch_laptop("arch-gsp-does-not-boot", "Arch laptop with an RTX 5080: its GSP firmware does not boot")
    source = f"{OPEN_935}, comment of 2025-10-25"
    distro.card(machine, RTX_5080_LAPTOP, "0000:01:00.0", driver="nvidia", source=source)
    distro.no_devices(machine, "580.95.05", source=source)
    log(
        machine,
        *["NVRM: kgspBootstrap_GH100: GSP-FMC reported an error while attempting to boot GSP: 0xb"] * 4,
        "NVRM: kgspInitRm_IMPL: Max GSP-RM boot attempts exceeded: 4/4",
        "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2168)",
        "NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0",
        source=f"{source}; the last two lines as in NVIDIA/open-gpu-kernel-modules#1058",
    )
    return distro.done(machine, ARCH)


def arch_gsp_does_not_boot_near_miss() -> Reconstruction:
    """The same laptop on a day when it starts."""
    machine = _arch_laptop(
        "arch-gsp-does-not-boot-near-miss", "Arch laptop with an RTX 5080 and nvidia-open 580.95.05: works"
    )
    distro.works(machine, "580.95.05", (RTX_5080_LAPTOP, "0000:01:00.0"), source=OPEN_935)
    return distro.done(machine, ARCH)


MACHINES = (
    leap_16_kmp_behind,
    sle_micro_no_driver,
    eks_al2_v100_open_module,
    al2023_full_disk_no_module,
    azl3_kernel_ahead_of_cuda,
    mariner_2_no_module,
    arch_zen_with_stock_module,
    arch_gsp_does_not_boot,
)
NEAR_MISSES = (
    leap_16_kmp_behind_near_miss,
    sle_micro_no_driver_near_miss,
    eks_al2_v100_open_module_near_miss,
    al2023_full_disk_no_module_near_miss,
    azl3_kernel_ahead_of_cuda_near_miss,
    mariner_2_no_module_near_miss,
    arch_zen_with_stock_module_near_miss,
    arch_gsp_does_not_boot_near_miss,
)
