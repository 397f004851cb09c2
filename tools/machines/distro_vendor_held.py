"""More machines of SUSE, Amazon, Azure and Arch: modules left behind, kernels without a package, healthy ones."""

from __future__ import annotations

from tools.machines import distro_parts as distro
from tools.machines.distro_gpus import (
    A100_80,
    GTX_1050,
    GTX_1650,
    L4,
    RTX_2060_SUPER,
    RTX_4070,
    TESLA_T4,
    TORCH_25_CU121,
    TORCH_27_CU126,
)
from tools.machines.distro_releases import AL2, AL2023, ARCH, AZL3, LEAP_15, TUMBLEWEED
from tools.machines.driver_parts import TORCH_26_CU124, TORCH_28_CU128, TORCH_211_CU130, log
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.signing import certificate
from tools.machines.wheels import TorchWheel

OPEN_712 = "NVIDIA/open-gpu-kernel-modules#712"
PUBKEYS = (
    "openSUSE/openSUSE-docs-revamped-temp#49 (Secure Boot kept the driver from being loaded); the key's place from "
    "build.opensuse.org, kmp-filelist of nvidia-driver-G06"
)
ECS_256 = "aws/amazon-ecs-ami#256"
EKS_2544 = "awslabs/amazon-eks-ami#2544"
AZL_10782 = "microsoft/azurelinux#10782"
TYGER_259 = "microsoft/tyger#259"
OMARCHY_3954 = "omacom/omarchy#3954"
KMODGUARD = "github.com/libcg/kmodguard (modules of the running kernel are deleted with each upgrade; reboot)"


def _tumbleweed(name: str, about: str, *, kernel: str) -> Reconstruction:
    """Two kernels: in the older one a module of 550.90.07 was left, the newer one has 550.100."""
    source = f"{OPEN_712}, comment of 2025-01-01 (Tumbleweed 20241226; client 550.100, kernel module 550.90.07)"
    machine = distro.start(name, about, TUMBLEWEED, kernel=kernel, source=source)
    listed = {
        "nvidia-driver-G06-kmp-default": "550.100_k6.9.7_1-25.1.x86_64",
        "nvidia-compute-G06": "550.100-25.1.x86_64",
        "nvidia-compute-utils-G06": "550.100-25.1.x86_64",
        "nvidia-drivers-G06": "550.100-25.1.x86_64",
        "nvidia-utils-G06": "550.100-25.1.x86_64",
    }
    distro.packages(machine, TUMBLEWEED, listed, source=source)
    machine.file("/lib/modules/6.9.7-1-default/updates/nvidia.ko", "", source=source)
    machine.file("/lib/modules/6.8.9-1-default/updates/nvidia.ko", "", source=SUPPOSED)
    return distro.torch(machine, TORCH_26_CU124)


def tumbleweed_older_kernel_older_module() -> Reconstruction:
    """Booted into an older kernel, whose module is of an older driver: a restart into it changes nothing."""
    machine = _tumbleweed(
        "tumbleweed-older-kernel-older-module",
        "openSUSE Tumbleweed in an older kernel: its module is 550.90.07, the libraries are 550.100",
        kernel="6.8.9-1-default",
    )
    source = f"{OPEN_712}, comment of 2025-01-01"
    distro.module_file(machine, "/lib/modules/6.8.9-1-default/updates/nvidia.ko", "550.90.07", licence="NVIDIA",
                       source=f"{source}; which kernel's it is, is supposed")  # fmt: skip
    distro.card(machine, RTX_2060_SUPER, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    distro.mismatched(machine, loaded="550.90.07", libraries="550.100", kind="proprietary", source=source)
    log(
        machine,
        "[   10.800842] [   T1343] NVRM: API mismatch: the client has the version 550.100, but",
        "NVRM: this kernel module has the version 550.90.07.  Please",
        "NVRM: make sure that this kernel module and all NVIDIA driver",
        "NVRM: components have the same version.",
        source=source,
    )
    return distro.done(machine, TUMBLEWEED)


def tumbleweed_older_kernel_older_module_near_miss() -> Reconstruction:
    machine = _tumbleweed(
        "tumbleweed-older-kernel-older-module-near-miss",
        "openSUSE Tumbleweed in the kernel of its kmp: works",
        kernel="6.9.7-1-default",
    )
    distro.module_file(
        machine, "/lib/modules/6.9.7-1-default/updates/nvidia.ko", "550.100", licence="NVIDIA", source=OPEN_712
    )
    distro.works(machine, "550.100", (RTX_2060_SUPER, "0000:01:00.0"), kind="proprietary", source=OPEN_712)
    return distro.done(machine, TUMBLEWEED)


def _leap_15(name: str, about: str) -> Reconstruction:
    """Leap 15.6 with NVIDIA's own kmp, which is built and signed on this machine."""
    kernel = "6.4.0-150600.23.42-default"
    machine = distro.start(name, about, LEAP_15, kernel=kernel, source=SUPPOSED)
    listed = {"nvidia-driver-G06-kmp-default": "550.135_k6.4.0_150600.21-lp156.28.1.x86_64",
              "nvidia-compute-G06": "550.135-lp156.28.1.x86_64",
              "nvidia-compute-utils-G06": "550.135-lp156.28.1.x86_64"}  # fmt: skip
    distro.packages(machine, LEAP_15, listed, source=PUBKEYS)
    path = f"/lib/modules/{kernel}/updates/nvidia.ko"
    distro.module_file(
        machine, path, "550.135", signer="Local build for nvidia-driver-G06", licence="NVIDIA", source=PUBKEYS
    )
    key = certificate("Local build for nvidia-driver-G06", 550135)
    machine.file("/usr/share/nvidia-pubkeys/MOK-nvidia-driver-G06-550.135-28.1-default.der", key, source=PUBKEYS)
    return distro.torch(machine, TORCH_26_CU124)


def leap_15_pubkey_not_enrolled() -> Reconstruction:
    """The kmp made a key and the blue screen at the restart was missed."""
    machine = _leap_15(
        "leap-15-pubkey-not-enrolled", "openSUSE Leap 15.6 with Secure Boot: the kmp's own key is not enrolled"
    )
    distro.card(machine, RTX_4070, "0000:01:00.0", source=SUPPOSED)
    distro.secure_boot(machine, "openSUSE Secure Boot CA", source=PUBKEYS)
    distro.unloaded(machine, "550.135", source=PUBKEYS)
    distro.rejected(machine, source=f"{PUBKEYS}; the line as in NVIDIA/yum-packaging-precompiled-kmod#68")
    return distro.done(machine, LEAP_15)


def leap_15_pubkey_not_enrolled_near_miss() -> Reconstruction:
    machine = _leap_15(
        "leap-15-pubkey-not-enrolled-near-miss", "openSUSE Leap 15.6 with Secure Boot and the key enrolled: works"
    )
    distro.secure_boot(machine, "openSUSE Secure Boot CA", "Local build for nvidia-driver-G06", source=SUPPOSED)
    distro.works(machine, "550.135", (RTX_4070, "0000:01:00.0"), kind="proprietary", source=PUBKEYS)
    return distro.done(machine, LEAP_15)


def _ecs(name: str, about: str) -> Reconstruction:
    source = f"{ECS_256} (amazon-linux-2/kernel-5.10/gpu, g4dn, 5.10.217-205.860.amzn2.x86_64)"
    machine = distro.start(name, about, AL2, kernel="5.10.217-205.860.amzn2.x86_64", source=source)
    distro.dmi(machine, "Amazon EC2", "g4dn.xlarge", source=source)
    listed = {"nvidia-driver-latest-dkms": "535.183.01-1.amzn2.x86_64", "ecs-init": "1.83.0-1.amzn2.x86_64"}
    distro.packages(machine, AL2, listed, source=source)
    path = "/lib/modules/5.10.217-205.860.amzn2.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "535.183.01", licence="NVIDIA", source=SUPPOSED)
    return distro.torch(machine, TORCH_25_CU121)


def ecs_al2_api_mismatch() -> Reconstruction:
    """An update at the first boot replaced the libraries under a loaded module."""
    machine = _ecs("ecs-al2-api-mismatch", "ECS node (Amazon Linux 2): libraries 535.183.01, module 535.161.07 loaded")
    source = f"{ECS_256} (API mismatch: the client has the version 535.183.01)"
    distro.card(machine, TESLA_T4, "0000:00:1e.0", driver="nvidia", source=source)
    distro.mismatched(machine, loaded="535.161.07", libraries="535.183.01", kind="proprietary", source=source)
    unit = "systemctl show nvidia-persistenced.service --property=ActiveState,SubState,Result,ExecMainStatus"
    machine.command(unit, "ActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=1\n")
    machine.command(
        "journalctl --unit=nvidia-persistenced.service --lines=40 --no-pager --output=cat",
        "Unit nvidia-persistenced.service entered failed state.\nnvidia-persistenced.service failed.\n",
    )
    log(
        machine,
        "[  145.441660] NVRM: API mismatch: the client has the version 535.183.01, but",
        "[  145.441820] NVRM: this kernel module has the version 535.161.07.  Please",
        "[  145.441978] NVRM: make sure that this kernel module and all NVIDIA driver",
        "[  145.442130] NVRM: components have the same version.",
        source=source,
    )
    return distro.done(machine, AL2)


def ecs_al2_api_mismatch_near_miss() -> Reconstruction:
    machine = _ecs("ecs-al2-api-mismatch-near-miss", "ECS node (Amazon Linux 2) after a restart: works")
    distro.works(machine, "535.183.01", (TESLA_T4, "0000:00:1e.0"), kind="proprietary", source=ECS_256)
    return distro.done(machine, AL2)


def _al2023_node(name: str, about: str, libraries: str) -> Reconstruction:
    source = f"{EKS_2544} (amazon-eks-node-al2023-x86_64-nvidia-1.32-v20251120, cuda-amzn2023-x86_64)"
    machine = distro.start(name, about, AL2023, kernel="6.1.158-178.288.amzn2023.x86_64", source=source)
    distro.dmi(machine, "Amazon EC2", "g6.xlarge", source=SUPPOSED)
    listed = {
        "kmod-nvidia-open-dkms": "580.95.05-1.amzn2023.noarch",
        "nvidia-driver-cuda": f"{libraries}-1.amzn2023.x86_64",
    }
    distro.packages(machine, AL2023, listed, source=f"{source}; the installed version is supposed")
    path = "/lib/modules/6.1.158-178.288.amzn2023.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "580.95.05", source=source)
    return distro.torch(machine, TORCH_211_CU130)


def al2023_l4_healthy() -> Reconstruction:
    """A node whose packages cannot be upgraded just now, and which works."""
    machine = _al2023_node("al2023-l4-healthy", "EKS node (Amazon Linux 2023) with an L4 and driver 580.95.05: works",
                           "580.95.05")  # fmt: skip
    distro.works(machine, "580.95.05", (L4, "0000:31:00.0"), source=EKS_2544)
    return distro.done(machine, AL2023)


def al2023_l4_healthy_near_miss() -> Reconstruction:
    """Somebody forced half of the upgrade that dnf refused."""
    machine = _al2023_node(
        "al2023-l4-healthy-near-miss", "EKS node with libraries 580.105.08 over the module 580.95.05", "580.105.08"
    )
    distro.card(machine, L4, "0000:31:00.0", driver="nvidia", source=SUPPOSED)
    source = f"{EKS_2544} (nvidia-kmod-common-3:580.105.08 requires nvidia-kmod = 3:580.105.08)"
    distro.mismatched(machine, loaded="580.95.05", libraries="580.105.08", source=source)
    return distro.done(machine, AL2023)


def _azl_rt(name: str, about: str, *, kernel: str) -> Reconstruction:
    source = f"{AZL_10782} (6.6.35.1-rt34-1.azl3; cuda installs a different kernel, nvidia-smi runs only with that)"
    machine = distro.start(name, about, AZL3, kernel=kernel, source=source)
    listed = {"cuda": "550.54.15-4_6.6.35.1.5.azl3.x86_64", "kernel-rt": "6.6.35.1-1.azl3.x86_64",
              "kernel": "6.6.35.1-5.azl3.x86_64"}  # fmt: skip
    distro.packages(machine, AZL3, listed, source=f"{source}; versions of cuda and kernel supposed")
    machine.file("/lib/modules/6.6.35.1-5.azl3/updates/nvidia.ko", "", source=SUPPOSED)
    return distro.torch(machine, TORCH_26_CU124)


def azl3_rt_kernel() -> Reconstruction:
    """The real-time kernel, for which there is no driver package."""
    machine = _azl_rt(
        "azl3-rt-kernel",
        "Azure Linux 3 on the real-time kernel: Microsoft's cuda package has no module for it",
        kernel="6.6.35.1-rt34-1.azl3",
    )
    distro.card(machine, A100_80, "0000:41:00.0", source=SUPPOSED)
    distro.unloaded(machine, "550.54.15", source=f"{AZL_10782} (if I boot the OS with RT kernel, nvidia-smi fails)")
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    log(machine, source=SUPPOSED)
    return distro.done(machine, AZL3)


def azl3_rt_kernel_near_miss() -> Reconstruction:
    machine = _azl_rt("azl3-rt-kernel-near-miss", "Azure Linux 3 on its plain kernel with the cuda package: works",
                      kernel="6.6.35.1-5.azl3")  # fmt: skip
    distro.module_file(machine, "/lib/modules/6.6.35.1-5.azl3/updates/nvidia.ko", "550.54.15", licence="NVIDIA",
                       source=AZL_10782)  # fmt: skip
    distro.works(machine, "550.54.15", (A100_80, "0000:41:00.0"), kind="proprietary", source=AZL_10782)
    return distro.done(machine, AZL3)


def _azl_a100(name: str, about: str, wheel: TorchWheel) -> Reconstruction:
    source = f"{TYGER_259} (AzureLinux3 supports A100; its nodes have CUDA 12.8)"
    machine = distro.start(name, about, AZL3, kernel="6.6.96.2-2.azl3", source=source)
    distro.dmi(machine, "Microsoft Corporation", "Virtual Machine", source=SUPPOSED)
    machine.file("/sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", source=SUPPOSED)
    distro.packages(
        machine, AZL3, {"cuda-open": "570.158.01-1_6.6.96.2.2.azl3.x86_64"}, source=f"{source}; name supposed"
    )
    distro.module_file(machine, "/lib/modules/6.6.96.2-2.azl3/updates/nvidia.ko", "570.158.01", source=SUPPOSED)
    distro.works(machine, "570.158.01", (A100_80, "0001:00:00.0"), source=source)
    distro.torch(machine, wheel)
    return distro.done(machine, AZL3)


def azl3_a100_healthy() -> Reconstruction:
    """An A100 node of AKS with torch for the same CUDA."""
    return _azl_a100(
        "azl3-a100-healthy",
        "Azure Linux 3 node with an A100, driver 570.158.01 and torch 2.8.0+cu128: works",
        TORCH_28_CU128,
    )


def azl3_a100_healthy_near_miss() -> Reconstruction:
    """torch for CUDA 13 on it."""
    return _azl_a100("azl3-a100-healthy-near-miss", "Azure Linux 3 node with driver 570.158.01 and torch 2.11.0+cu130",
                     TORCH_211_CU130)  # fmt: skip


def _arch_590(name: str, about: str) -> Reconstruction:
    source = f"{OMARCHY_3954} (Omarchy 3.2.3, GTX 1050; nvidia 590 has no Pascal)"
    machine = distro.start(name, about, ARCH, kernel="6.18.1-arch1-2", source=source)
    listed = {"linux": "6.18.1.arch1-2", "linux-headers": "6.18.1.arch1-2", "nvidia-open-dkms": "590.48.01-1",
              "nvidia-utils": "590.48.01-1"}  # fmt: skip
    distro.packages(machine, ARCH, listed, source=source)
    distro.module_file(machine, "/lib/modules/6.18.1-arch1-2/updates/dkms/nvidia.ko.zst", "590.48.01", source=source)
    return distro.torch(machine, TORCH_27_CU126)


def arch_pascal_driver_590() -> Reconstruction:
    """pacman -Syu brought 590, which leaves Pascal to the AUR."""
    machine = _arch_590("arch-pascal-driver-590", "Arch with a GTX 1050 after the upgrade to 590.48.01: ignored")
    distro.card(machine, GTX_1050, "0000:01:00.0", source=OMARCHY_3954)
    distro.unloaded(machine, "590.48.01", source=OMARCHY_3954)
    log(
        machine,
        "NVRM: The NVIDIA NVIDIA GeForce GTX 1050 GPU installed in this system is",
        "NVRM:  supported through the NVIDIA 580.xx Legacy drivers. Please",
        "NVRM:  visit http://www.nvidia.com/object/unix.html for more",
        "NVRM:  information.  The 590.48.01 NVIDIA driver will ignore",
        "NVRM:  this GPU.  Continuing probe...",
        "NVRM: No NVIDIA GPU found.",
        source="NixOS/nixos-hardware#1880 (the lines of 595 for the same GPU), with this version",
    )
    return distro.done(machine, ARCH)


def arch_pascal_driver_590_near_miss() -> Reconstruction:
    machine = _arch_590("arch-pascal-driver-590-near-miss", "Arch with a GTX 1650 and 590.48.01: works")
    distro.works(machine, "590.48.01", (GTX_1650, "0000:01:00.0"), source=SUPPOSED)
    return distro.done(machine, ARCH)


def _arch_without_uvm(name: str, about: str) -> Reconstruction:
    machine = distro.start(name, about, ARCH, kernel="6.17.4-arch1-1", source=SUPPOSED)
    distro.works(machine, "580.95.05", (RTX_4070, "0000:01:00.0"), source=SUPPOSED)
    machine.without("/sys/module/nvidia_uvm", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    machine.file(
        "/proc/modules", "nvidia_drm 1 0 - Live 0x0 (OE)\nnvidia 1 1 nvidia_drm, Live 0x0 (OE)\n", source=SUPPOSED
    )
    distro.cuda_gives(machine, "580.95.05", code=999)
    return distro.torch(machine, TORCH_211_CU130)


def arch_kernel_not_restarted() -> Reconstruction:
    """pacman took the running kernel's modules away: nvidia_uvm, not loaded before, cannot be loaded any more."""
    machine = _arch_without_uvm(
        "arch-kernel-not-restarted", "Arch after an upgrade of the kernel, not restarted: nvidia_uvm cannot be loaded"
    )
    machine.without("/lib/modules")
    machine.file("/lib/modules/6.17.5-arch1-1/extramodules/nvidia.ko.zst", "", source=KMODGUARD)
    machine.file("/lib/modules/6.17.5-arch1-1/extramodules/nvidia-uvm.ko.zst", "", source=KMODGUARD)
    listed = {"linux": "6.17.5.arch1-1", "nvidia-open": "580.95.05-7", "nvidia-utils": "580.95.05-1"}
    distro.packages(machine, ARCH, listed, source=KMODGUARD)
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    return distro.done(machine, ARCH)


def arch_kernel_not_restarted_near_miss() -> Reconstruction:
    """The modules of the running kernel are there, and nvidia_uvm is just not loaded."""
    machine = _arch_without_uvm(
        "arch-kernel-not-restarted-near-miss", "Arch on its own kernel: nvidia_uvm is not loaded"
    )
    for name in ("nvidia", "nvidia-uvm"):
        machine.file(f"/lib/modules/6.17.4-arch1-1/extramodules/{name}.ko.zst", "", source=SUPPOSED)
    listed = {"linux": "6.17.4.arch1-1", "nvidia-open": "580.95.05-6", "nvidia-utils": "580.95.05-1"}
    distro.packages(machine, ARCH, listed, source=SUPPOSED)
    return distro.done(machine, ARCH)


MACHINES = (
    tumbleweed_older_kernel_older_module,
    leap_15_pubkey_not_enrolled,
    ecs_al2_api_mismatch,
    al2023_l4_healthy,
    azl3_rt_kernel,
    azl3_a100_healthy,
    arch_pascal_driver_590,
    arch_kernel_not_restarted,
)
NEAR_MISSES = (
    tumbleweed_older_kernel_older_module_near_miss,
    leap_15_pubkey_not_enrolled_near_miss,
    ecs_al2_api_mismatch_near_miss,
    al2023_l4_healthy_near_miss,
    azl3_rt_kernel_near_miss,
    azl3_a100_healthy_near_miss,
    arch_pascal_driver_590_near_miss,
    arch_kernel_not_restarted_near_miss,
)
