"""More machines of the Red Hat kind: a DKMS key, a stale kmod, four GPUs of three generations, the wrong flavour."""

from __future__ import annotations

from tools.machines import distro_parts as distro
from tools.machines.distro_gpus import A100_80, GT_1030, RTX_4070, RTX_A5500, RTX_A6000, TORCH_27_CU126
from tools.machines.distro_releases import ORACLE_8, RHEL_9, RHEL_9_6, fedora
from tools.machines.driver_parts import RTX_4090, TORCH_28_CU128, TORCH_211_CU130, log
from tools.machines.parts import RTX_5090, SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import TorchWheel

KMOD_68 = "NVIDIA/yum-packaging-precompiled-kmod#68"
NEGATIVO_180 = "negativo17/nvidia-driver#180"
NEGATIVO_158 = "negativo17/nvidia-driver#158"
P2P_1 = "aikitoria/open-gpu-kernel-modules#1"
ORACLE = (
    "RemixVSL/iomemory-vsl4#40 (os-release of Oracle Linux, UEK) and NVIDIA/ansible-role-nvidia-driver#18 (DKMS has "
    "the devel package of another kernel); put together here"
)
FEDORA_41, FEDORA_40 = fedora(41, 40, "KDE Plasma"), fedora(40, 39)


def _rhel_workstation(name: str, about: str) -> Reconstruction:
    source = f"{KMOD_68} (RHEL 9.7, A5500, kmod-nvidia-open-dkms-3:595.71.05-1.el9)"
    machine = distro.start(name, about, RHEL_9, kernel="5.14.0-611.41.1.el9_7.x86_64", source=source)
    distro.dmi(machine, "Dell Inc.", "Precision 7960 Tower", source=source)
    listed = {
        "kmod-nvidia-open-dkms": "595.71.05-1.el9.noarch",
        "nvidia-driver": "595.71.05-1.el9.x86_64",
        "nvidia-driver-cuda": "595.71.05-1.el9.x86_64",
        "nvidia-kmod-common": "595.71.05-1.el9.noarch",
    }
    distro.packages(machine, RHEL_9, listed, source=source)
    machine.file("/etc/yum.repos.d/cuda-rhel9.repo", "[cuda-rhel9-x86_64]\nenabled=1\n", source=source)
    path = "/lib/modules/5.14.0-611.41.1.el9_7.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "595.71.05", signer="DKMS module signing key", source=source)
    machine.file("/var/lib/dkms/mok.pub", "", source=SUPPOSED)
    machine.command("dkms status", "nvidia-open/595.71.05, 5.14.0-611.41.1.el9_7.x86_64, x86_64: installed\n")
    return distro.torch(machine, TORCH_211_CU130)


def rhel_9_dkms_key() -> Reconstruction:
    """The precompiled, signed modules are no longer published; DKMS builds one that the kernel does not trust."""
    machine = _rhel_workstation(
        "rhel-9-dkms-key", "RHEL 9.7 with kmod-nvidia-open-dkms: the kernel does not know DKMS' key"
    )
    source = f"{KMOD_68} (Loading of module with unavailable key is rejected)"
    distro.card(machine, RTX_A5500, "0000:c1:00.0", source=SUPPOSED)
    distro.secure_boot(machine, "Red Hat Secure Boot CA 8", source=source)
    distro.unloaded(machine, "595.71.05", source=source)
    distro.rejected(machine, source=source)
    return distro.done(machine, RHEL_9)


def rhel_9_dkms_key_near_miss() -> Reconstruction:
    machine = _rhel_workstation("rhel-9-dkms-key-near-miss", "RHEL 9.7 with Secure Boot and DKMS' key enrolled: works")
    distro.secure_boot(machine, "Red Hat Secure Boot CA 8", "DKMS module signing key", source=SUPPOSED)
    distro.works(machine, "595.71.05", (RTX_A5500, "0000:c1:00.0"), source=KMOD_68)
    return distro.done(machine, RHEL_9)


def _rhel_9_6(name: str, about: str, *, on_disk: str) -> Reconstruction:
    source = f"{NEGATIVO_180} (RHEL 9.6; libraries 575.64.03; modinfo nvidia -F version: 575.64)"
    kernel = "5.14.0-570.24.1.el9_6.x86_64"
    machine = distro.start(name, about, RHEL_9_6, kernel=kernel, source=source)
    listed = {
        "akmod-nvidia": "575.64.03-1.el9.x86_64",
        "nvidia-driver-cuda-libs": "575.64.03-1.el9.x86_64",
        "libnvidia-ml": "575.64.03-1.el9.x86_64",
        "nvidia-xconfig": "575.64-1.el9.x86_64",
        "kmod-nvidia-5.14.0-427.el9_4": "575.64-1.el9.x86_64",
        "kmod-nvidia-5.14.0-570.el9_6": "575.64-1.el9.x86_64",
        "nvidia-driver": "575.64.03-1.el9.x86_64",
    }
    distro.packages(machine, RHEL_9_6, listed, source=source)
    machine.file("/usr/sbin/akmods", "", source=source)
    path = f"/lib/modules/{kernel}/weak-updates/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, on_disk, source=source)
    distro.card(machine, RTX_4070, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    distro.mismatched(machine, loaded="575.64", libraries="575.64.03", source=source)
    machine.every_call_of("nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch\n"
                          "NVML library version: 575.64\n", status=18)  # fmt: skip
    distro.torch(machine, TORCH_28_CU128)
    return distro.done(machine, RHEL_9_6)


def rhel_9_stale_kmod() -> Reconstruction:
    """The module on disk is of the older version too: a restart changes nothing."""
    return _rhel_9_6("rhel-9-stale-kmod", "RHEL 9.6: libraries 575.64.03, the module is 575.64 on disk as well",
                     on_disk="575.64")  # fmt: skip


def rhel_9_stale_kmod_near_miss() -> Reconstruction:
    """akmods has built the new one; the old one is still loaded."""
    return _rhel_9_6("rhel-9-stale-kmod-near-miss", "RHEL 9.6: module 575.64.03 is on disk, 575.64 is still loaded",
                     on_disk="575.64.03")  # fmt: skip


def _oracle(name: str, about: str) -> Reconstruction:
    """Oracle Linux boots its own kernel, UEK; its ID_LIKE says fedora."""
    machine = distro.start(name, about, ORACLE_8, kernel="5.15.0-306.177.4.el8uek.x86_64", source=ORACLE)
    distro.dmi(machine, "QEMU", "Standard PC (i440FX + PIIX, 1996)", source=SUPPOSED)
    machine.file("/sys/class/dmi/id/chassis_asset_tag", "OracleCloud.com\n", source=SUPPOSED)
    machine.file("/lib/modules/4.18.0-553.el8_10.x86_64/extra/nvidia.ko.xz", "", source=SUPPOSED)
    machine.file("/etc/yum.repos.d/cuda-rhel8.repo", "[cuda-rhel8-x86_64]\nenabled=1\n", source=SUPPOSED)
    return distro.torch(machine, TORCH_28_CU128)


def oracle_8_uek_without_devel() -> Reconstruction:
    """kernel-devel is installed and kernel-uek-devel is not: DKMS built for a kernel that does not run."""
    machine = _oracle("oracle-8-uek-without-devel", "Oracle Linux 8 on UEK: DKMS built the module for the other kernel")
    listed = {
        "kmod-nvidia-open-dkms": "570.172.08-1.el8.noarch",
        "nvidia-driver-cuda": "570.172.08-1.el8.x86_64",
        "kernel-devel": "4.18.0-553.el8_10.x86_64",
        "kernel-uek": "5.15.0-306.177.4.el8uek.x86_64",
    }
    distro.packages(machine, ORACLE_8, listed, source=ORACLE)
    distro.card(machine, A100_80, "0000:00:04.0", source=SUPPOSED)
    distro.unloaded(machine, "570.172.08", source=ORACLE)
    machine.command("dkms status", "nvidia-open/570.172.08, 4.18.0-553.el8_10.x86_64, x86_64: installed\n")
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    log(machine, source=SUPPOSED)
    return distro.done(machine, ORACLE_8)


def oracle_8_uek_without_devel_near_miss() -> Reconstruction:
    machine = _oracle("oracle-8-uek-without-devel-near-miss", "Oracle Linux 8 on UEK with kernel-uek-devel: works")
    listed = {"kmod-nvidia-open-dkms": "570.172.08-1.el8.noarch", "nvidia-driver-cuda": "570.172.08-1.el8.x86_64",
              "kernel-uek-devel": "5.15.0-306.177.4.el8uek.x86_64"}  # fmt: skip
    distro.packages(machine, ORACLE_8, listed, source=ORACLE)
    path = "/lib/modules/5.15.0-306.177.4.el8uek.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "570.172.08", source=SUPPOSED)
    distro.works(machine, "570.172.08", (A100_80, "0000:00:04.0"), source=SUPPOSED)
    return distro.done(machine, ORACLE_8)


def _four_gpus(name: str, about: str, wheel: TorchWheel) -> Reconstruction:
    source = f"{P2P_1} (Fedora 41 KDE, 6.13.9-200.fc41, 570.133.07, RTX 4090, 4090, A6000 and 5090)"
    machine = distro.start(name, about, FEDORA_41, kernel="6.13.9-200.fc41.x86_64", source=source)
    distro.packages(machine, FEDORA_41, {"kernel-core": "6.13.9-200.fc41.x86_64"}, source=SUPPOSED)
    path = "/lib/modules/6.13.9-200.fc41.x86_64/kernel/drivers/video/nvidia.ko"
    distro.module_file(machine, path, "570.133.07", source=f"{source} (./install.sh)")
    machine.file("/proc/cmdline", "BOOT_IMAGE=(hd9,gpt2)/vmlinuz-6.13.9-200.fc41.x86_64 ro rhgb quiet iommu=off "
                 "pcie_acs_override=downstream nvidia-drm.modeset=1\n", source=source)  # fmt: skip
    gpus = (
        (RTX_4090, "0000:01:00.0"),
        (RTX_4090, "0000:02:00.0"),
        (RTX_A6000, "0000:0c:00.0"),
        (RTX_5090, "0000:11:00.0"),
    )
    distro.works(machine, "570.133.07", *gpus, source=source)
    distro.torch(machine, wheel)
    return distro.done(machine, FEDORA_41)


def fedora_41_four_gpus() -> Reconstruction:
    """Three generations under one open module, all listed by everybody."""
    return _four_gpus(
        "fedora-41-four-gpus",
        "Fedora 41 with four GPUs of three generations and torch 2.8.0+cu128: works",
        TORCH_28_CU128,
    )


def fedora_41_four_gpus_near_miss() -> Reconstruction:
    """A wheel without code for the newest of them."""
    return _four_gpus(
        "fedora-41-four-gpus-near-miss",
        "Fedora 41 with four GPUs: torch 2.7.1+cu126 has nothing for the 5090",
        TORCH_27_CU126,
    )


def _negativo(name: str, about: str, variant: str) -> Reconstruction:
    source = f"{NEGATIVO_158} (560.31, GT 1030, PCI ID 10de:1d01)"
    machine = distro.start(name, about, FEDORA_40, kernel="6.10.3-200.fc40.x86_64", source=SUPPOSED)
    listed = {"akmod-nvidia": "560.31.02-1.fc40.x86_64", "nvidia-driver-cuda": "560.31.02-1.fc40.x86_64",
              "nvidia-kmod-common": "560.31.02-1.fc40.noarch"}  # fmt: skip
    distro.packages(machine, FEDORA_40, listed, source=source)
    machine.file("/etc/yum.repos.d/fedora-nvidia.repo", "[fedora-nvidia]\nname=negativo17 - Nvidia\nenabled=1\n",
                 source=source)  # fmt: skip
    machine.file("/etc/nvidia/kernel.conf", f"MODULE_VARIANT={variant}\n", source=source)
    return distro.torch(machine, TORCH_27_CU126)


def fedora_40_open_gt1030() -> Reconstruction:
    """negativo17's packages went over to the open module, which leaves the GT 1030 out."""
    machine = _negativo(
        "fedora-40-open-gt1030",
        "Fedora 40 with negativo17's driver 560.31.02: open module, GT 1030 ignored",
        "kernel-open",
    )
    source = NEGATIVO_158
    path = "/lib/modules/6.10.3-200.fc40.x86_64/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "560.31.02", source=source)
    distro.card(machine, GT_1030, "0000:09:00.0", source=source)
    distro.unloaded(machine, "560.31.02", source=source)
    log(
        machine,
        "kernel: NVRM: The NVIDIA GPU 0000:09:00.0 (PCI ID: 10de:1d01)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
        "NVRM: System Processor (GSP).",
        "kernel: nvidia 0000:09:00.0: probe with driver nvidia failed with error -1",
        "kernel: NVRM: The NVIDIA probe routine failed for 1 device(s).",
        "kernel: NVRM: None of the NVIDIA devices were initialized.",
        source=source,
    )
    return distro.done(machine, FEDORA_40)


def fedora_40_open_gt1030_near_miss() -> Reconstruction:
    machine = _negativo(
        "fedora-40-open-gt1030-near-miss",
        "Fedora 40 with negativo17's driver and a GT 1030: proprietary, works",
        "kernel",
    )
    path = "/lib/modules/6.10.3-200.fc40.x86_64/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "560.31.02", licence="NVIDIA", source=NEGATIVO_158)
    distro.works(machine, "560.31.02", (GT_1030, "0000:09:00.0"), kind="proprietary", source=NEGATIVO_158)
    return distro.done(machine, FEDORA_40)


MACHINES = (rhel_9_dkms_key, rhel_9_stale_kmod, oracle_8_uek_without_devel, fedora_41_four_gpus, fedora_40_open_gt1030)
NEAR_MISSES = (
    rhel_9_dkms_key_near_miss,
    rhel_9_stale_kmod_near_miss,
    oracle_8_uek_without_devel_near_miss,
    fedora_41_four_gpus_near_miss,
    fedora_40_open_gt1030_near_miss,
)
