"""Ubuntu and Debian machines: keys that are not enrolled, headers that are missing, a GPU that one flavour ignores."""

from __future__ import annotations

from tools.machines import distro_parts as distro
from tools.machines.distro_gpus import GTX_1070_TI, RTX_2060_SUPER, RTX_4070, TESLA_T4, TORCH_27_CU126
from tools.machines.distro_releases import DEBIAN_12, DEBIAN_13, UBUNTU_22, UBUNTU_24
from tools.machines.driver_parts import TORCH_26_CU124, log
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction

CANONICAL_62 = "canonical/nvidia-graphics-drivers#62"
OPEN_696 = "NVIDIA/open-gpu-kernel-modules#696"
GCE_25 = "GoogleCloudPlatform/compute-gpu-installation#25"
DEBIAN_42 = "devleonardoamaral/debian-nvidia-installer#42"


def _jammy_with_secure_boot(name: str, about: str) -> Reconstruction:
    """nvidia/535.113.01 built by DKMS for 6.2.0-34-generic, Secure Boot on."""
    source = f"{CANONICAL_62} (nvidia/535.113.01, 6.2.0-34-generic, x86_64: installed)"
    machine = distro.start(name, about, UBUNTU_22, kernel="6.2.0-34-generic", source=source)
    path = "/lib/modules/6.2.0-34-generic/updates/dkms/nvidia.ko"
    distro.module_file(machine, path, "535.113.01", signer="host-a Secure Boot Module Signature key",
                       licence="NVIDIA", source=source)  # fmt: skip
    machine.file("/var/lib/shim-signed/mok/MOK.der", "", source=SUPPOSED)
    machine.file("/var/lib/shim-signed/mok/MOK.priv", "", source=SUPPOSED)
    machine.file("/usr/src/linux-headers-6.2.0-34-generic/Makefile", "", source=SUPPOSED)
    machine.command("dkms status", "nvidia/535.113.01, 6.2.0-34-generic, x86_64: installed\n")
    listed = ("nvidia-driver-535", "nvidia-dkms-535", "libnvidia-compute-535", "nvidia-utils-535", "dkms",
              "shim-signed", "mokutil")  # fmt: skip
    distro.packages(machine, UBUNTU_22, dict.fromkeys(listed, "535.113.01-0ubuntu0.22.04.3"), source=source)
    return distro.torch(machine, TORCH_26_CU124)


def ubuntu_22_mok_not_enrolled() -> Reconstruction:
    """Secure Boot was on when DKMS built the module, and nobody enrolled its key."""
    machine = _jammy_with_secure_boot(
        "ubuntu-22-mok-not-enrolled", "Ubuntu 22.04, driver 535.113.01 from DKMS: the kernel rejects the module's key"
    )
    source = f"{CANONICAL_62} (modprobe: ERROR: could not insert 'nvidia': Key was rejected by service)"
    distro.card(machine, RTX_2060_SUPER, "0000:01:00.0", source=SUPPOSED)
    distro.secure_boot(machine, "Canonical Ltd. Master Certificate Authority", source=source)
    distro.unloaded(machine, "535.113.01", source=source)
    machine.command("modprobe --dry-run --verbose nvidia", "")
    distro.rejected(machine, source=f"{source}; the kernel's own line as other reports have it")
    return distro.done(machine, UBUNTU_22)


def ubuntu_22_mok_not_enrolled_near_miss() -> Reconstruction:
    """The same with the key enrolled."""
    machine = _jammy_with_secure_boot(
        "ubuntu-22-mok-not-enrolled-near-miss", "Ubuntu 22.04 with Secure Boot and the DKMS key enrolled: works"
    )
    distro.secure_boot(machine, "Canonical Ltd. Master Certificate Authority",
                       "host-a Secure Boot Module Signature key", source=SUPPOSED)  # fmt: skip
    distro.works(machine, "535.113.01", (RTX_2060_SUPER, "0000:01:00.0"), kind="proprietary", source=CANONICAL_62)
    return distro.done(machine, UBUNTU_22)


def _open_560_with_two_gpus(name: str, about: str) -> Reconstruction:
    """The open module 560.35.03 with one GPU that it supports."""
    machine = distro.start(name, about, UBUNTU_24, kernel="6.8.0-41-generic", source=SUPPOSED)
    distro.works(
        machine,
        "560.35.03",
        (RTX_4070, "0000:01:00.0"),
        source=f"{OPEN_696} (560.35.03, the open driver shows one of two); the first GPU is supposed",
    )
    distro.module_file(
        machine, "/lib/modules/6.8.0-41-generic/updates/dkms/nvidia.ko.zst", "560.35.03", source=OPEN_696
    )
    listed = ("nvidia-driver-560-open", "nvidia-dkms-560-open", "libnvidia-compute-560")
    distro.packages(machine, UBUNTU_24, dict.fromkeys(listed, "560.35.03-0ubuntu0~gpu24.04.1"), source=SUPPOSED)
    return distro.torch(machine, TORCH_27_CU126)


def ubuntu_open_ignores_second_gpu() -> Reconstruction:
    """A GTX 1070 Ti beside a newer GPU: the open module starts only the newer one."""
    machine = _open_560_with_two_gpus(
        "ubuntu-open-ignores-second-gpu", "Two GPUs under the open module 560.35.03: the GTX 1070 Ti is left out"
    )
    distro.card(machine, GTX_1070_TI, "0000:02:00.0", source=f"{OPEN_696} (0000:02:00.0, PCI ID 10de:1b82)")
    log(
        machine,
        "[    4.100001] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:1b82)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: nvidia.ko because it does not include the required GPU",
        "NVRM: System Processor (GSP).",
        "NVRM: Please see the 'Open Linux Kernel Modules' and 'GSP",
        "NVRM: Firmware' sections in the driver README, available on",
        "NVRM: the Linux graphics driver download page at",
        "NVRM: www.nvidia.com.",
        "[    4.100233] nvidia: probe of 0000:02:00.0 failed with error -1",
        source=f"{OPEN_696}, comment of 2024-08-26; the times and the last line are supposed",
    )
    return distro.done(machine, UBUNTU_24)


def ubuntu_open_ignores_second_gpu_near_miss() -> Reconstruction:
    """The second GPU is held by vfio-pci for a virtual machine: nobody misses it."""
    machine = _open_560_with_two_gpus(
        "ubuntu-open-ignores-second-gpu-near-miss", "Two GPUs, one of them given to vfio-pci on purpose: works"
    )
    distro.card(machine, GTX_1070_TI, "0000:02:00.0", driver="vfio-pci", source=SUPPOSED)
    machine.file("/etc/modprobe.d/vfio.conf", "options vfio-pci ids=10de:1b82\n", source=SUPPOSED)
    log(machine, source=SUPPOSED)
    return distro.done(machine, UBUNTU_24)


def _bookworm_in_the_cloud(name: str, about: str) -> Reconstruction:
    """A Debian image of a cloud with a driver that DKMS keeps."""
    machine = distro.start(name, about, DEBIAN_12, kernel="6.1.0-41-cloud-amd64", source=SUPPOSED)
    distro.dmi(machine, "Google", "Google Compute Engine", source=GCE_25)
    listed = ("nvidia-driver", "nvidia-kernel-dkms", "libcuda1", "libnvidia-ml1", "nvidia-smi", "dkms",
              "linux-image-cloud-amd64")  # fmt: skip
    distro.packages(machine, DEBIAN_12, dict.fromkeys(listed, "535.261.03-1~deb12u1"), source=SUPPOSED)
    machine.file("/lib/modules/6.1.0-40-cloud-amd64/updates/dkms/nvidia-current.ko", "", source=SUPPOSED)
    machine.file("/usr/src/linux-headers-6.1.0-40-cloud-amd64/Makefile", "", source=SUPPOSED)
    machine.file("/etc/apt/sources.list.d/debian.sources", "Types: deb\nURIs: https://deb.debian.org/debian\n"
                 "Suites: bookworm bookworm-updates\nComponents: main contrib non-free non-free-firmware\n",
                 source=SUPPOSED)  # fmt: skip
    return distro.torch(machine, TORCH_26_CU124)


def debian_12_headers_missing() -> Reconstruction:
    """A new kernel came without its headers, so DKMS had nothing to build against."""
    machine = _bookworm_in_the_cloud(
        "debian-12-headers-missing", "Debian 12 in a cloud: no headers for the new kernel, so no module for it"
    )
    source = f"{GCE_25} (nvidia-smi fails after a restart; apt-get install linux-headers-$(uname -r) mends it)"
    distro.card(machine, TESLA_T4, "0000:00:04.0", source=SUPPOSED)
    distro.unloaded(machine, "535.261.03", source=source)
    machine.command(
        "modinfo nvidia",
        "",
        status=1,
        stderr="modinfo: ERROR: Module nvidia not found in directory /lib/modules/6.1.0-41-cloud-amd64\n",
    )
    machine.command("dkms status", "nvidia-current/535.261.03, 6.1.0-40-cloud-amd64, x86_64: installed\n")
    log(machine, source=SUPPOSED)
    return distro.done_debian(machine, DEBIAN_12)


def debian_12_headers_missing_near_miss() -> Reconstruction:
    """The headers are there and DKMS built nvidia-current.ko, which is how Debian names it."""
    machine = _bookworm_in_the_cloud(
        "debian-12-headers-missing-near-miss", "Debian 12 in a cloud with headers and nvidia-current.ko: works"
    )
    machine.file("/usr/src/linux-headers-6.1.0-41-cloud-amd64/Makefile", "", source=GCE_25)
    path = "/lib/modules/6.1.0-41-cloud-amd64/updates/dkms/nvidia-current.ko"
    distro.module_file(machine, path, "535.261.03", licence="NVIDIA", source=SUPPOSED)
    distro.works(machine, "535.261.03", (TESLA_T4, "0000:00:04.0"), kind="proprietary", source=GCE_25)
    return distro.done_debian(machine, DEBIAN_12)


def _trixie_with_debians_driver(name: str, about: str) -> Reconstruction:
    """Debian 13 with its own 550.163.01 and Secure Boot switched on after the installation."""
    machine = distro.start(name, about, DEBIAN_13, kernel="6.12.57+deb13-amd64", source=SUPPOSED)
    listed = ("nvidia-driver", "nvidia-kernel-dkms", "libcuda1", "libnvidia-ml1", "nvidia-smi", "dkms", "mokutil")
    distro.packages(machine, DEBIAN_13, dict.fromkeys(listed, "550.163.01-2"), source=SUPPOSED)
    path = "/lib/modules/6.12.57+deb13-amd64/updates/dkms/nvidia-current.ko.xz"
    distro.module_file(
        machine, path, "550.163.01", signer="DKMS module signing key", licence="NVIDIA", source=DEBIAN_42
    )
    machine.file("/usr/src/linux-headers-6.12.57+deb13-amd64/Makefile", "", source=SUPPOSED)
    machine.file("/var/lib/dkms/mok.pub", "", source=SUPPOSED)
    machine.file("/var/lib/dkms/mok.key", "", source=SUPPOSED)
    machine.command("dkms status", "nvidia-current/550.163.01, 6.12.57+deb13-amd64, x86_64: installed\n")
    return distro.torch(machine, TORCH_26_CU124)


def debian_13_secure_boot_later() -> Reconstruction:
    """Installed with Secure Boot off, which was switched on afterwards."""
    machine = _trixie_with_debians_driver(
        "debian-13-secure-boot-later",
        "Debian 13 with driver 550.163.01: Secure Boot came on later, the module is refused",
    )
    source = f"{DEBIAN_42} (installed with Secure Boot disabled, later enabled: the driver is no longer loaded)"
    distro.card(machine, RTX_4070, "0000:01:00.0", source=SUPPOSED)
    distro.secure_boot(machine, "Debian Secure Boot CA", source=source)
    distro.unloaded(machine, "550.163.01", source=source)
    distro.rejected(machine, source=f"{source}; the line as in NVIDIA/yum-packaging-precompiled-kmod#68")
    return distro.done_debian(machine, DEBIAN_13)


def debian_13_secure_boot_later_near_miss() -> Reconstruction:
    """Secure Boot stayed off: the signature is not asked for."""
    machine = _trixie_with_debians_driver(
        "debian-13-secure-boot-later-near-miss", "Debian 13 with driver 550.163.01 and Secure Boot off: works"
    )
    machine.file(distro.SECURE_BOOT, b"\x06\0\0\0\x00", source=SUPPOSED)
    machine.command("mokutil --sb-state", "SecureBoot disabled\n")
    distro.works(machine, "550.163.01", (RTX_4070, "0000:01:00.0"), kind="proprietary", source=DEBIAN_42)
    return distro.done_debian(machine, DEBIAN_13)


MACHINES = (
    ubuntu_22_mok_not_enrolled,
    ubuntu_open_ignores_second_gpu,
    debian_12_headers_missing,
    debian_13_secure_boot_later,
)
NEAR_MISSES = (
    ubuntu_22_mok_not_enrolled_near_miss,
    ubuntu_open_ignores_second_gpu_near_miss,
    debian_12_headers_missing_near_miss,
    debian_13_secure_boot_later_near_miss,
)
