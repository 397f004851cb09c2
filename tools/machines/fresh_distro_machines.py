"""Six distributions whose module and libraries went different ways: not built, half upgraded, one half missing."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import distro_parts as distro
from tools.machines.distro_gpus import A10G, GTX_1060, RTX_3060, RTX_4060_TI, RTX_4070, TESLA_T4, TORCH_27_CU126
from tools.machines.distro_releases import AL2, ARCH, DEBIAN_13, ROCKY_9, TUMBLEWEED, fedora
from tools.machines.driver_parts import TORCH_26_CU124, TORCH_28_CU128, TORCH_211_CU130, log
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction

SURFACE_1884 = "linux-surface/linux-surface#1884"
OPS_2357 = "GoogleCloudPlatform/ops-agent#2357"
GUIDE_18 = "fady-saied/Nvidia-Fedora-Guide#18"
G06_1 = "openSUSE/nvidia-driver-G06#1"
CI_74 = "pytorch/ci-infra#74"
TKG_394 = "Frogging-Family/nvidia-all#394"
FEDORA_43 = fedora(43, 42)
NOT_FOUND = "modinfo: ERROR: Module nvidia not found.\n"


def _surface(name: str, about: str, kernel: str) -> Reconstruction:
    source = f"{SURFACE_1884} (Debian Trixie, nvidia-driver 550.163.01-2, kernel 6.17.1-surface-2)"
    machine = distro.start(name, about, DEBIAN_13, kernel=kernel, source=source)
    machine.file("/lib/modules/6.12.48+deb13-amd64/modules.dep", "", source=SUPPOSED)
    machine.file("/lib/modules/6.12.48+deb13-amd64/updates/dkms/nvidia-current.ko.xz", "", source=SUPPOSED)
    machine.file("/boot/vmlinuz-6.12.48+deb13-amd64", "", source=SUPPOSED)
    machine.file(f"/usr/src/linux-headers-{kernel}/Makefile", "", source=SUPPOSED)
    machine.file("/usr/src/nvidia-current-550.163.01/dkms.conf", "", source=SUPPOSED)
    listed = ("nvidia-driver", "nvidia-kernel-dkms", "libcuda1", "libnvidia-ml1", "nvidia-smi")
    distro.packages(machine, DEBIAN_13, dict.fromkeys(listed, "550.163.01-2"), source=source)
    return distro.torch(machine, TORCH_27_CU126)


def debian_13_surface_kernel() -> Reconstruction:
    """DKMS fails under a kernel that is newer than the driver; Debian's own kernel has its module."""
    machine = _surface(
        "debian-13-surface-kernel",
        "Debian 13 on kernel 6.17.1-surface-2: 550.163.01 does not build there, Debian's kernel 6.12 has it",
        "6.17.1-surface-2",
    )
    source = f"{SURFACE_1884} (Bad return status for module build on kernel: 6.17.1-surface-2; make.log)"
    status = machine.files["/var/lib/dpkg/status"].decode()
    half = status.replace(
        "Package: nvidia-kernel-dkms\nStatus: install ok installed",
        "Package: nvidia-kernel-dkms\nStatus: install ok half-configured",
    )
    machine.file("/var/lib/dpkg/status", half, source=source)
    distro.card(machine, GTX_1060, "0000:02:00.0", source=SUPPOSED)
    distro.unloaded(machine, "550.163.01", source=source)
    machine.file("/var/lib/dkms/nvidia-current/550.163.01/build/make.log",
                 "DKMS (dkms-3.2.2) make.log for nvidia-current/550.163.01 for kernel 6.17.1-surface-2 (x86_64)\n"
                 "Error! (bad exit status: 2)\n", source=source)  # fmt: skip
    machine.command("dkms status", "nvidia-current/550.163.01, 6.12.48+deb13-amd64, x86_64: installed\n")
    machine.command("modinfo nvidia", "", status=1, stderr=NOT_FOUND)
    log(machine, source=SUPPOSED)
    return distro.done_debian(machine, DEBIAN_13)


def debian_13_surface_kernel_near_miss() -> Reconstruction:
    """Debian's own kernel, before the other one came."""
    machine = _surface(
        "debian-13-surface-kernel-near-miss",
        "Debian 13 on its kernel 6.12 with 550.163.01: works",
        "6.12.48+deb13-amd64",
    )
    path = "/lib/modules/6.12.48+deb13-amd64/updates/dkms/nvidia-current.ko.xz"
    distro.module_file(machine, path, "550.163.01", licence="NVIDIA", source=SUPPOSED)
    distro.works(machine, "550.163.01", (GTX_1060, "0000:02:00.0"), kind="proprietary", source=SURFACE_1884)
    return distro.done_debian(machine, DEBIAN_13)


def _rocky(name: str, about: str, kernel: str) -> Reconstruction:
    source = f"{OPS_2357} (Rocky Linux 9.8, kernel 5.14.0-687, stream nvidia-driver:575-dkms, 575.57.08)"
    machine = distro.start(name, about, ROCKY_9, kernel=kernel, source=source)
    distro.dmi(machine, "Google", "Google Compute Engine", source=SUPPOSED)
    machine.file("/etc/yum.repos.d/cuda-rhel9.repo", "[cuda-rhel9-x86_64]\nenabled=1\n", source=SUPPOSED)
    listed = {
        "nvidia-driver": "575.57.08-1.el9.x86_64",
        "nvidia-driver-cuda": "575.57.08-1.el9.x86_64",
        "nvidia-driver-cuda-libs": "575.57.08-1.el9.x86_64",
        "kmod-nvidia-latest-dkms": "575.57.08-1.el9.noarch",
        "kernel-devel": kernel,
        "dkms": "3.2.1-1.el9.noarch",
    }
    distro.packages(machine, ROCKY_9, listed, source=source)
    machine.file(f"/usr/src/kernels/{kernel}/Makefile", "", source=SUPPOSED)
    machine.file("/usr/sbin/dkms", "", source=SUPPOSED)
    machine.file("/usr/src/nvidia-575.57.08/dkms.conf", "", source=SUPPOSED)
    return distro.torch(machine, TORCH_28_CU128)


def rocky_9_driver_575_does_not_build() -> Reconstruction:
    """An image of Rocky 9.8 brought a kernel under which 575.57.08 does not compile."""
    kernel = "5.14.0-687.el9.x86_64"
    machine = _rocky(
        "rocky-9-driver-575-does-not-build",
        "Rocky 9.8 in Google's cloud: DKMS cannot build 575.57.08 for kernel 5.14.0-687",
        kernel,
    )
    source = f"{OPS_2357} (failed to compile via DKMS on this newer kernel; 580 does)"
    distro.card(machine, TESLA_T4, "0000:00:04.0", source=SUPPOSED)
    distro.unloaded(machine, "575.57.08", source=source)
    machine.file("/var/lib/dkms/nvidia/575.57.08/build/make.log",
                 f"DKMS (dkms-3.2.1) make.log for nvidia/575.57.08 for kernel {kernel} (x86_64)\n"
                 "Error! (bad exit status: 2)\n", source=source)  # fmt: skip
    machine.command("dkms status", "nvidia/575.57.08: added\n")
    machine.command("modinfo nvidia", "", status=1, stderr=NOT_FOUND)
    log(machine, source=SUPPOSED)
    return distro.done(machine, ROCKY_9)


def rocky_9_driver_575_does_not_build_near_miss() -> Reconstruction:
    """The image of the month before."""
    kernel = "5.14.0-611.el9.x86_64"
    machine = _rocky(
        "rocky-9-driver-575-does-not-build-near-miss", "Rocky 9.7 in Google's cloud with 575.57.08: works", kernel
    )
    distro.module_file(machine, f"/lib/modules/{kernel}/extra/nvidia.ko.xz", "575.57.08", licence="NVIDIA",
                       source=SUPPOSED)  # fmt: skip
    distro.works(machine, "575.57.08", (TESLA_T4, "0000:00:04.0"), kind="proprietary", source=SUPPOSED)
    return distro.done(machine, ROCKY_9)


def _half(name: str, about: str, akmod: str) -> Reconstruction:
    kernel = "6.18.4-200.fc43.x86_64"
    source = f"{GUIDE_18} (dnf upgrade, restart; modinfo says 580.126.18, NVML library version 580.142)"
    machine = distro.start(name, about, FEDORA_43, kernel=kernel, source=f"{source}; release and kernel supposed")
    listed = {
        "akmod-nvidia": f"{akmod}-1.fc43.x86_64",
        f"kmod-nvidia-{kernel}": f"{akmod}-1.fc43.x86_64",
        "xorg-x11-drv-nvidia": "580.142-1.fc43.x86_64",
        "xorg-x11-drv-nvidia-cuda": "580.142-1.fc43.x86_64",
        "xorg-x11-drv-nvidia-cuda-libs": "580.142-1.fc43.x86_64",
        "rpmfusion-nonfree-release": "43-1.noarch",
    }
    distro.packages(machine, FEDORA_43, listed, source=f"{source}; names as RPM Fusion has them")
    machine.file("/etc/yum.repos.d/rpmfusion-nonfree.repo", "[rpmfusion-nonfree]\nenabled=1\n", source=SUPPOSED)
    path = f"/lib/modules/{kernel}/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, akmod, source=source)
    machine.file(f"/usr/src/akmods/nvidia-kmod-{akmod}-1.fc43.src.rpm", "", source=SUPPOSED)
    distro.card(machine, RTX_4070, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        package = "xorg-x11-drv-nvidia-cuda-libs-580.142-1.fc43.x86_64"
        distro.owned(machine, FEDORA_43, package, f"/usr/lib64/{name}.580.142")
    distro.mismatched(machine, loaded="580.126.18", libraries="580.142", source=source)
    log(machine, source=SUPPOSED)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, FEDORA_43)


def fedora_43_half_upgraded() -> Reconstruction:
    """akmod-nvidia stayed behind the libraries: the module on disk is the old one, and a restart changes nothing."""
    return _half(
        "fedora-43-half-upgraded",
        "Fedora 43 with RPM Fusion: libraries 580.142, akmod-nvidia and its module 580.126.18",
        "580.126.18",
    )


def fedora_43_half_upgraded_near_miss() -> Reconstruction:
    """akmod-nvidia came along and built its module, which is not loaded yet."""
    return _half(
        "fedora-43-half-upgraded-near-miss",
        "Fedora 43 with RPM Fusion: all packages 580.142, module 580.126.18 still loaded",
        "580.142",
    )


def _tumbleweed(name: str, about: str) -> Reconstruction:
    kernel = "6.10.7-1-default"
    source = f"{G06_1} (nvidia-open-driver-G06-signed-kmp-default 550.107, userspace packages not published)"
    machine = distro.start(name, about, TUMBLEWEED, kernel=kernel, source=f"{source}; kernel supposed")
    machine.file("/etc/zypp/repos.d/NVIDIA.repo", "[NVIDIA]\nenabled=1\n"
                 "baseurl=https://download.nvidia.com/opensuse/tumbleweed\n", source=source)  # fmt: skip
    path = f"/lib/modules/{kernel}/updates/nvidia.ko.zst"
    return distro.module_file(machine, path, "550.107.02", signer="openSUSE Secure Boot CA", source=source)


_KMP = {"nvidia-open-driver-G06-signed-kmp-default": "550.107.02_k6.10.7_1-1.1.x86_64"}


def tumbleweed_kmp_alone() -> Reconstruction:
    """The signed modules of the distribution without the libraries, which come from another repository."""
    machine = _tumbleweed("tumbleweed-kmp-alone", "Tumbleweed with the signed open modules 550.107.02, no libraries")
    distro.packages(machine, TUMBLEWEED, _KMP, source=G06_1)
    distro.card(machine, RTX_4060_TI, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    distro.module(machine, "550.107.02", source=G06_1)
    machine.file("/dev/nvidia0", "", source=SUPPOSED)
    distro.nothing_installed(machine)
    distro.torch(machine, TORCH_26_CU124)
    return distro.done(machine, TUMBLEWEED)


def tumbleweed_kmp_alone_near_miss() -> Reconstruction:
    """With the libraries of the same version."""
    machine = _tumbleweed("tumbleweed-kmp-alone-near-miss", "Tumbleweed with modules and libraries 550.107.02: works")
    listed = {
        **_KMP,
        "nvidia-compute-G06": "550.107.02-1.1.x86_64",
        "nvidia-compute-utils-G06": "550.107.02-1.1.x86_64",
    }
    distro.packages(machine, TUMBLEWEED, listed, source=SUPPOSED)
    distro.works(machine, "550.107.02", (RTX_4060_TI, "0000:01:00.0"), source=SUPPOSED)
    distro.torch(machine, TORCH_26_CU124)
    return distro.done(machine, TUMBLEWEED)


def _runner(name: str, about: str, listed: dict[str, str]) -> Reconstruction:
    source = f"{CI_74} (Amazon Linux on EC2, nvidia-driver-latest-dkms, mended by yum update and a new install)"
    kernel = "5.10.210-201.852.amzn2.x86_64"
    machine = distro.start(name, about, AL2, kernel=kernel, source=f"{source}; kernel supposed")
    distro.dmi(machine, "Amazon EC2", "g5.4xlarge", source=SUPPOSED)
    machine.file("/etc/yum.repos.d/cuda-rhel7.repo", "[cuda-rhel7-x86_64]\nenabled=1\n", source=SUPPOSED)
    machine.file("/lib/modules/5.10.184-175.731.amzn2.x86_64/extra/nvidia.ko.xz", "", source=SUPPOSED)
    driver = ("nvidia-driver-latest-dkms", "nvidia-driver-latest-dkms-cuda", "kmod-nvidia-latest-dkms")
    versions = dict.fromkeys(driver, "535.54.03-1.el7.x86_64")
    distro.packages(machine, AL2, {**versions, "dkms": "2.7.1-1.el7.noarch", **listed}, source=source)
    machine.file("/usr/sbin/dkms", "", source=SUPPOSED)
    machine.file("/usr/src/nvidia-535.54.03/dkms.conf", "", source=SUPPOSED)
    wheel = replace(TORCH_26_CU124, tag="cp310-cp310-linux_x86_64")
    return distro.torch(machine, wheel, python="3.10")


def al2_dkms_behind_kernel() -> Reconstruction:
    """The image's kernel is newer than the one DKMS built for, and its headers are not installed."""
    machine = _runner(
        "al2-dkms-behind-kernel",
        "Amazon Linux 2 on EC2 with 535.54.03: DKMS built for the kernel before this one",
        {"kernel-devel": "5.10.184-175.731.amzn2.x86_64"},
    )
    distro.card(machine, A10G, "0000:00:1e.0", source=SUPPOSED)
    distro.unloaded(machine, "535.54.03", source=CI_74)
    machine.command("dkms status", "nvidia, 535.54.03, 5.10.184-175.731.amzn2.x86_64, x86_64: installed\n")
    machine.command("modinfo nvidia", "", status=1, stderr=NOT_FOUND)
    log(machine, source=SUPPOSED)
    return distro.done(machine, AL2)


def al2_dkms_behind_kernel_near_miss() -> Reconstruction:
    """Headers of this kernel, and a module for it."""
    kernel = "5.10.210-201.852.amzn2.x86_64"
    machine = _runner(
        "al2-dkms-behind-kernel-near-miss", "Amazon Linux 2 on EC2 with a module for its kernel: works",
        {"kernel-devel": kernel},
    )  # fmt: skip
    distro.module_file(machine, f"/lib/modules/{kernel}/extra/nvidia.ko.xz", "535.54.03", licence="NVIDIA",
                       source=SUPPOSED)  # fmt: skip
    distro.works(machine, "535.54.03", (A10G, "0000:00:1e.0"), kind="proprietary", source=CI_74)
    return distro.done(machine, AL2)


def _zen(name: str, about: str, on_disk: str) -> Reconstruction:
    kernel = "7.0.12-zen1-1-zen"
    source = f"{TKG_394} (7.0.12-zen1-1-zen, 595.84 installed, modinfo and the kernel log say 595.80)"
    machine = distro.start(name, about, ARCH, kernel=kernel, source=source)
    listed = dict.fromkeys(("nvidia-open-dkms-tkg", "nvidia-utils-tkg"), "595.84-1")
    distro.packages(machine, ARCH, {**listed, "linux-zen": "7.0.12.zen1-1", "linux-zen-headers": "7.0.12.zen1-1",
                                    "dkms": "3.2.2-1"}, source=source)  # fmt: skip
    machine.file(
        "/usr/src/nvidia-595.84/dkms.conf", 'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="595.84"\n', source=SUPPOSED
    )
    machine.file(f"/usr/lib/modules/{kernel}/build/Makefile", "", source=SUPPOSED)
    machine.file("/usr/bin/dkms", "", source=SUPPOSED)
    distro.module_file(machine, f"/lib/modules/{kernel}/updates/dkms/nvidia.ko.zst", on_disk, source=source)
    machine.command("dkms status", f"nvidia/{on_disk}, {kernel}, x86_64: installed\n")
    distro.card(machine, RTX_3060, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    distro.mismatched(machine, loaded="595.80", libraries="595.84", source=source)
    log(
        machine,
        "[    9.424670] NVRM: API mismatch: the client 'kwin_wayland' (pid 1005)",
        "               NVRM: has the version 595.84, but this kernel module has",
        "               NVRM: the version 595.80.  Please make sure that this",
        "               NVRM: kernel module and all NVIDIA driver components",
        "               NVRM: have the same version.",
        source=source,
    )
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, ARCH)


def arch_zen_dkms_stale() -> Reconstruction:
    """The libraries came, and the module that DKMS made of the version before is still the one on disk."""
    return _zen("arch-zen-dkms-stale", "Arch on linux-zen: libraries 595.84, DKMS has 595.80 on disk", "595.80")


def arch_zen_dkms_stale_near_miss() -> Reconstruction:
    """DKMS has built the new one; the old one is still loaded."""
    return _zen("arch-zen-dkms-stale-near-miss", "Arch on linux-zen: 595.84 on disk, 595.80 still loaded", "595.84")


MACHINES = (
    debian_13_surface_kernel,
    rocky_9_driver_575_does_not_build,
    fedora_43_half_upgraded,
    tumbleweed_kmp_alone,
    al2_dkms_behind_kernel,
    arch_zen_dkms_stale,
)
NEAR_MISSES = (
    debian_13_surface_kernel_near_miss,
    rocky_9_driver_575_does_not_build_near_miss,
    fedora_43_half_upgraded_near_miss,
    tumbleweed_kmp_alone_near_miss,
    al2_dkms_behind_kernel_near_miss,
    arch_zen_dkms_stale_near_miss,
)
