"""Machines of the Red Hat kind: rebuilds of RHEL, CentOS 7 and Fedora with its akmods."""

from __future__ import annotations

from tools.machines import distro_parts as distro
from tools.machines.distro_gpus import (
    RTX_3070,
    RTX_4070,
    RTX_5060_LAPTOP,
    TESLA_M60,
    TORCH_110_CU113,
)
from tools.machines.distro_releases import ALMA_9, CENTOS_7, ROCKY_10, fedora
from tools.machines.driver_parts import TORCH_26_CU124, TORCH_28_CU128, TORCH_211_CU130, log
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction

ALMA_7216 = "forums.almalinux.org/t/technical-incident-report-nvidia-driver-almalinux-9-7-kernel-incompatibility/7216"
ROCKY_201 = "rocky-linux/rockylinux.org#201"
AZHOP_269 = "Azure/az-hop#269"
FEDORA_GUIDE_9 = "fady-saied/Nvidia-Fedora-Guide#9"
ROWORU_2 = "roworu/nvidia-fedora-secureboot#2"
OLLAMA_1593 = "ollama/ollama#1593"
FEDORA_43, FEDORA_41, FEDORA_40 = fedora(43, 42), fedora(41, 40), fedora(40, 39)


def _alma_after_an_update(name: str, about: str) -> Reconstruction:
    """AlmaLinux 9.7 on kernel 611.49.1 with the prebuilt, signed module of 611.41.1."""
    kernel = "5.14.0-611.49.1.el9_7.x86_64"
    machine = distro.start(name, about, ALMA_9, kernel=kernel, source=f"{ALMA_7216} (booted 611.45.1, then 611.49.1)")
    built = "/lib/modules/5.14.0-611.41.1.el9_7.x86_64/extra/nvidia/nvidia.ko.xz"
    machine.file(built, "", source=f"{ALMA_7216} (works with 5.14.0-611.41.1.el9_7)")
    machine.file("/boot/vmlinuz-5.14.0-611.41.1.el9_7.x86_64", "", source=ALMA_7216)
    machine.file(f"/boot/vmlinuz-{kernel}", "", source=ALMA_7216)
    machine.file("/etc/yum.repos.d/almalinux-nvidia.repo", "[almalinux-nvidia]\nname=AlmaLinux 9 - NVIDIA\nenabled=1\n",
                 source=SUPPOSED)  # fmt: skip
    listed = {"kmod-nvidia-open": "595.58.03-1.el9_7.x86_64", "nvidia-driver": "595.58.03-1.el9.x86_64",
              "nvidia-driver-cuda": "595.58.03-1.el9.x86_64", "nvidia-driver-cuda-libs": "595.58.03-1.el9.x86_64",
              "almalinux-release-nvidia-driver": "9-1.el9.x86_64"}  # fmt: skip
    distro.packages(machine, ALMA_9, listed, source=f"{ALMA_7216} (kmod-nvidia-open-595.58.03)")
    distro.secure_boot(machine, "AlmaLinux Secure Boot CA", source=ALMA_7216)
    return distro.torch(machine, TORCH_211_CU130)


def almalinux_9_kmod_behind_kernel() -> Reconstruction:
    """dnf update brought a kernel for which there is no prebuilt module yet."""
    machine = _alma_after_an_update(
        "almalinux-9-kmod-behind-kernel", "AlmaLinux 9.7 on a new kernel: kmod-nvidia-open is for the one before"
    )
    distro.card(machine, RTX_4070, "0000:01:00.0", source=SUPPOSED)
    distro.unloaded(machine, "595.58.03", source=f"{ALMA_7216} (the NVIDIA module failed to load)")
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    log(machine, source=SUPPOSED)
    return distro.done(machine, ALMA_9)


def almalinux_9_kmod_behind_kernel_near_miss() -> Reconstruction:
    """The older module fits the new kernel, so weak-modules linked it there."""
    machine = _alma_after_an_update(
        "almalinux-9-kmod-behind-kernel-near-miss", "AlmaLinux 9.7 on a new kernel: weak-updates has the module, works"
    )
    weak = "/lib/modules/5.14.0-611.49.1.el9_7.x86_64/weak-updates/nvidia/nvidia.ko.xz"
    distro.module_file(machine, weak, "595.58.03", signer="AlmaLinux kernel signing key", source=SUPPOSED)
    distro.works(machine, "595.58.03", (RTX_4070, "0000:01:00.0"), source=ALMA_7216)
    return distro.done(machine, ALMA_9)


def _rocky_10_with_a_repository(name: str, about: str) -> Reconstruction:
    """Rocky 10 on which NVIDIA's repository was added."""
    machine = distro.start(name, about, ROCKY_10, kernel="6.12.0-55.22.1.el10_0.x86_64", source=ROCKY_201)
    machine.file("/etc/yum.repos.d/cuda-rhel10.repo", "[cuda-rhel10-x86_64]\nname=cuda-rhel10-x86_64\nenabled=1\n"
                 "baseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel10/x86_64\n",
                 source=ROCKY_201)  # fmt: skip
    return distro.torch(machine, TORCH_211_CU130)


def rocky_10_no_driver() -> Reconstruction:
    """The toolkit was installed and the driver was not; nouveau drives the GPU."""
    machine = _rocky_10_with_a_repository(
        "rocky-10-no-driver", "Rocky Linux 10 with an RTX 4070 on nouveau: NVIDIA's repository is there, no driver"
    )
    source = f"{ROCKY_201} (clean Rocky 10, 40th series card; nvidia-open-3:580.65.06-1.el10 could not be installed)"
    distro.card(machine, RTX_4070, "0000:01:00.0", driver="nouveau", source=source)
    machine.file("/sys/module/nouveau/parameters/modeset", "-1\n", source=SUPPOSED)
    machine.file("/proc/modules", "nouveau 3874816 1 - Live 0x0000000000000000\n", source=SUPPOSED)
    distro.packages(machine, ROCKY_10, {"cuda-toolkit-13-0": "13.0.0-1.x86_64"}, source=source)
    distro.nothing_installed(machine)
    log(machine, "[    3.210001] nouveau 0000:01:00.0: NVIDIA AD104 (194000a1)", source=SUPPOSED)
    return distro.done(machine, ROCKY_10)


def rocky_10_no_driver_near_miss() -> Reconstruction:
    """nvidia-open was installed."""
    machine = _rocky_10_with_a_repository(
        "rocky-10-no-driver-near-miss", "Rocky Linux 10 with an RTX 4070 and nvidia-open 580.65.06: works"
    )
    listed = {"nvidia-open": "580.65.06-1.el10.noarch", "kmod-nvidia-open-dkms": "580.65.06-1.el10.noarch"}
    distro.packages(machine, ROCKY_10, listed, source=ROCKY_201)
    path = "/lib/modules/6.12.0-55.22.1.el10_0.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "580.65.06", source=SUPPOSED)
    distro.works(machine, "580.65.06", (RTX_4070, "0000:01:00.0"), source=ROCKY_201)
    return distro.done(machine, ROCKY_10)


def _centos_7_for_viewing(name: str, about: str) -> Reconstruction:
    """A CentOS 7 node for remote visualisation with NVIDIA's packages."""
    source = f"{AZHOP_269} (KERNEL : 3.10.0-1127.19.1.el7.x86_64, nvidia-driver-latest-dkms-cuda-465.19.01-1.el7)"
    machine = distro.start(name, about, CENTOS_7, kernel="3.10.0-1127.19.1.el7.x86_64", source=source)
    listed = {"nvidia-driver-latest-dkms-cuda": "465.19.01-1.el7.x86_64",
              "nvidia-driver-latest-dkms-cuda-libs": "465.19.01-1.el7.x86_64",
              "cuda-drivers": "465.19.01-1.x86_64", "cuda-runtime-11-3": "11.3.0-1.x86_64"}  # fmt: skip
    distro.packages(machine, CENTOS_7, listed, source=source)
    distro.dmi(machine, "Microsoft Corporation", "Virtual Machine", source=AZHOP_269)
    path = "/lib/modules/3.10.0-1127.19.1.el7.x86_64/extra/nvidia.ko.xz"
    distro.module_file(machine, path, "465.19.01", licence="NVIDIA", source=SUPPOSED)
    distro.card(machine, TESLA_M60, "0001:00:00.0", driver="nvidia", source=SUPPOSED)
    return distro.torch(machine, TORCH_110_CU113, python="3.9")


def centos_7_driver_mismatch() -> Reconstruction:
    """yum brought 465.19.01 while the older module stayed loaded."""
    machine = _centos_7_for_viewing(
        "centos-7-driver-mismatch", "CentOS 7: libraries 465.19.01, an older module still loaded"
    )
    source = f"{AZHOP_269} (Failed to initialize NVML: Driver/library version mismatch); the loaded version is supposed"
    distro.mismatched(machine, loaded="460.32.03", libraries="465.19.01", kind="proprietary", source=source)
    log(
        machine,
        "[86402.100001] NVRM: API mismatch: the client has the version 465.19.01, but",
        "NVRM: this kernel module has the version 460.32.03.  Please",
        "NVRM: make sure that this kernel module and all NVIDIA driver",
        "NVRM: components have the same version.",
        source=f"{source}; the wording as in aws/amazon-ecs-ami#256",
    )
    return distro.done(machine, CENTOS_7)


def centos_7_driver_mismatch_near_miss() -> Reconstruction:
    """After the restart."""
    machine = _centos_7_for_viewing(
        "centos-7-driver-mismatch-near-miss", "CentOS 7 with module and libraries 465.19.01: works"
    )
    distro.works(machine, "465.19.01", (TESLA_M60, "0001:00:00.0"), kind="proprietary", source=AZHOP_269)
    return distro.done(machine, CENTOS_7)


def _fedora_43_laptop(name: str, about: str) -> Reconstruction:
    """Fedora 43 with akmod-nvidia of RPM Fusion and Secure Boot on."""
    source = f"{FEDORA_GUIDE_9} (Fedora 43, 6.17.10-300.fc43, 580.105.08, 5060 laptop, rpmfusion-nonfree-release-43-1)"
    machine = distro.start(name, about, FEDORA_43, kernel="6.17.10-300.fc43.x86_64", source=source)
    listed = {"akmod-nvidia": "580.105.08-1.fc43.x86_64", "xorg-x11-drv-nvidia": "580.105.08-1.fc43.x86_64",
              "xorg-x11-drv-nvidia-cuda": "580.105.08-1.fc43.x86_64", "akmods": "0.6.2-1.fc43.noarch",
              "kmod-nvidia-6.17.10-300.fc43.x86_64": "580.105.08-1.fc43.x86_64",
              "rpmfusion-nonfree-release": "43-1.noarch"}  # fmt: skip
    distro.packages(machine, FEDORA_43, listed, source=source)
    machine.file("/etc/yum.repos.d/rpmfusion-nonfree.repo", "[rpmfusion-nonfree]\nenabled=1\n", source=source)
    machine.file(
        "/etc/pki/akmods/certs/public_key.der", "", source="gridhead/nvidia-auto-installer-for-fedora-linux#107"
    )
    machine.file("/var/cache/akmods/nvidia/580.105.08-1-for-6.17.10-300.fc43.x86_64.log", "", source=SUPPOSED)
    return distro.torch(machine, TORCH_211_CU130)


def fedora_43_akmods_key() -> Reconstruction:
    """akmods built and signed the module; its key is not enrolled."""
    machine = _fedora_43_laptop(
        "fedora-43-akmods-key", "Fedora 43 with akmod-nvidia 580.105.08: Secure Boot does not know the akmods key"
    )
    source = f"{FEDORA_GUIDE_9} (nvidia-smi fails, modinfo says 580.105.08); that Secure Boot refuses it is supposed"
    path = "/lib/modules/6.17.10-300.fc43.x86_64/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "580.105.08", signer="host-a-1765720000", source=source)
    distro.card(machine, RTX_5060_LAPTOP, "0000:01:00.0", source=source)
    distro.secure_boot(machine, "Fedora Secure Boot CA", source=source)
    distro.unloaded(machine, "580.105.08", source=source)
    distro.rejected(machine, source=f"{source}; the line as in NVIDIA/yum-packaging-precompiled-kmod#68")
    return distro.done(machine, FEDORA_43)


def fedora_43_akmods_key_near_miss() -> Reconstruction:
    """The key is enrolled, but akmods built the proprietary module, which starts no Blackwell GPU."""
    machine = _fedora_43_laptop(
        "fedora-43-akmods-key-near-miss", "Fedora 43 with a Blackwell GPU: the akmod is the proprietary one"
    )
    path = "/lib/modules/6.17.10-300.fc43.x86_64/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "580.105.08", signer="host-a-1765720000", licence="NVIDIA", source=SUPPOSED)
    distro.secure_boot(machine, "Fedora Secure Boot CA", "host-a-1765720000", source=SUPPOSED)
    distro.card(machine, RTX_5060_LAPTOP, "0000:01:00.0", driver="nvidia", source=FEDORA_GUIDE_9)
    distro.no_devices(machine, "580.105.08", kind="proprietary", source=SUPPOSED)
    log(machine, "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2d59)",
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        source="coreos/rpm-ostree#5395, with this GPU's id")  # fmt: skip
    return distro.done(machine, FEDORA_43)


def _fedora_41_desktop(name: str, about: str, version: str) -> Reconstruction:
    """Fedora 41 on kernel 6.13.4 with an akmod of this version."""
    source = f"{ROWORU_2} (6.13.4-200.fc41.x86_64, akmod-nvidia, xorg-x11-drv-nvidia)"
    machine = distro.start(name, about, FEDORA_41, kernel="6.13.4-200.fc41.x86_64", source=source)
    listed = {"akmod-nvidia": f"{version}-1.fc41.x86_64", "xorg-x11-drv-nvidia-cuda": f"{version}-1.fc41.x86_64",
              "akmods": "0.6.0-1.fc41.noarch", "rpmfusion-nonfree-release": "41-1.noarch",
              "kernel-devel": "6.13.4-200.fc41.x86_64"}  # fmt: skip
    distro.packages(machine, FEDORA_41, listed, source=source)
    machine.file("/etc/yum.repos.d/rpmfusion-nonfree.repo", "[rpmfusion-nonfree]\nenabled=1\n", source=source)
    machine.file("/usr/src/kernels/6.13.4-200.fc41.x86_64/Makefile", "", source=source)
    machine.file("/lib/modules/6.12.15-200.fc41.x86_64/extra/nvidia/nvidia.ko.xz", "", source=SUPPOSED)
    return distro.torch(machine, TORCH_28_CU128)


def fedora_41_akmods_build_failed() -> Reconstruction:
    """The driver is older than the kernel knows, so akmods could not build it."""
    machine = _fedora_41_desktop(
        "fedora-41-akmods-build-failed", "Fedora 41: akmods cannot build driver 565.77 for kernel 6.13.4", "565.77"
    )
    source = f"{ROWORU_2} (Building and installing nvidia-kmod [FAILED])"
    machine.file("/var/cache/akmods/nvidia/565.77-1-for-6.13.4-200.fc41.x86_64.failed.log",
                 "2025/02/26 15:27:18 akmodsbuild: make: *** [Makefile:115: modules] Error 2\n"
                 "2025/02/26 15:27:18 akmodsbuild: RPM build errors:\n",
                 source=source)  # fmt: skip
    machine.command("systemctl show akmods.service --property=ActiveState,SubState,Result,ExecMainStatus",
                    "ActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=1\n")  # fmt: skip
    distro.card(machine, RTX_3070, "0000:01:00.0", source=SUPPOSED)
    distro.unloaded(machine, "565.77", source=source)
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    log(machine, source=SUPPOSED)
    return distro.done(machine, FEDORA_41)


def fedora_41_akmods_build_failed_near_miss() -> Reconstruction:
    """The next driver builds."""
    machine = _fedora_41_desktop(
        "fedora-41-akmods-build-failed-near-miss", "Fedora 41 on kernel 6.13.4 with driver 570.124.04: works",
        "570.124.04",
    )  # fmt: skip
    path = "/lib/modules/6.13.4-200.fc41.x86_64/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "570.124.04", licence="NVIDIA", source=SUPPOSED)
    distro.works(machine, "570.124.04", (RTX_3070, "0000:01:00.0"), kind="proprietary", source=SUPPOSED)
    return distro.done(machine, FEDORA_41)


def _fedora_40_of_two_repositories(name: str, about: str, *, libraries: str) -> Reconstruction:
    """RPM Fusion's driver, with NVIDIA's repository for a much older Fedora enabled beside it by an install script."""
    source = f"{OLLAMA_1593}, comment of 2024-05-06 (Fedora 40, cuda-fedora37-x86_64 beside RPM Fusion's 550.78)"
    machine = distro.start(name, about, FEDORA_40, kernel="6.8.7-300.fc40.x86_64", source=source)
    listed = {"akmod-nvidia": "550.78-1.fc40.x86_64", "kmod-nvidia-6.8.7-300.fc40.x86_64": "550.78-1.fc40.x86_64",
              "xorg-x11-drv-nvidia": "550.78-1.fc40.x86_64",
              "xorg-x11-drv-nvidia-cuda-libs": f"{libraries}-1.fc40.x86_64"}  # fmt: skip
    distro.packages(machine, FEDORA_40, listed, source=source)
    machine.file("/etc/yum.repos.d/cuda-fedora37.repo", "[cuda-fedora37-x86_64]\nenabled=1\n", source=source)
    machine.file(
        "/etc/yum.repos.d/rpmfusion-nonfree-nvidia-driver.repo",
        "[rpmfusion-nonfree-nvidia-driver]\nenabled=1\n",
        source=source,
    )
    path = "/lib/modules/6.8.7-300.fc40.x86_64/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "550.78", licence="NVIDIA", source=source)
    return distro.torch(machine, TORCH_26_CU124)


def fedora_40_two_repositories() -> Reconstruction:
    """dnf upgrade complains of a conflict, and the driver itself works."""
    machine = _fedora_40_of_two_repositories(
        "fedora-40-two-repositories", "Fedora 40 with RPM Fusion's driver and NVIDIA's repository beside it: works",
        libraries="550.78",
    )  # fmt: skip
    distro.works(machine, "550.78", (RTX_3070, "0000:01:00.0"), kind="proprietary", source=OLLAMA_1593)
    return distro.done(machine, FEDORA_40)


def fedora_40_two_repositories_near_miss() -> Reconstruction:
    """The conflict was forced: libraries of NVIDIA's repository over RPM Fusion's module."""
    machine = _fedora_40_of_two_repositories(
        "fedora-40-two-repositories-near-miss",
        "Fedora 40: NVIDIA's libraries 545.23.08 over RPM Fusion's module 550.78",
        libraries="545.23.08",
    )
    distro.card(machine, RTX_3070, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    distro.mismatched(
        machine,
        loaded="550.78",
        libraries="545.23.08",
        kind="proprietary",
        source=f"{OLLAMA_1593} (nvidia-driver-3:545.23.08-1.fc37 wants to replace it); that it did is supposed",
    )
    return distro.done(machine, FEDORA_40)


MACHINES = (
    almalinux_9_kmod_behind_kernel,
    rocky_10_no_driver,
    centos_7_driver_mismatch,
    fedora_43_akmods_key,
    fedora_41_akmods_build_failed,
    fedora_40_two_repositories,
)
NEAR_MISSES = (
    almalinux_9_kmod_behind_kernel_near_miss,
    rocky_10_no_driver_near_miss,
    centos_7_driver_mismatch_near_miss,
    fedora_43_akmods_key_near_miss,
    fedora_41_akmods_build_failed_near_miss,
    fedora_40_two_repositories_near_miss,
)
