"""More machines whose system is an image, and more with musl."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import distro_parts as distro
from tools.machines import parts, wheels
from tools.machines.distro_gpus import (
    L4,
    RTX_3060,
    RTX_3070,
    RTX_4070,
    TESLA_P100,
    TORCH_25_CU121,
    TORCH_27_CU126,
    TORCH_110_CU113,
)
from tools.machines.distro_releases import (
    ALPINE_318,
    AURORA_41,
    COS,
    DEBIAN_12,
    NIXOS,
    UBUNTU_24,
    VOID_GLIBC,
    VOID_MUSL,
)
from tools.machines.driver_parts import TORCH_28_CU128, TORCH_211_CU130, docker, log
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import TorchWheel

NIX_138943 = "NixOS/nixpkgs#138943"
NIX_286028 = "NixOS/nixpkgs#286028"
AURORA_148 = "ublue-os/aurora#148"
KIT_254 = "bottlerocket-os/bottlerocket-kernel-kit#254"
COS_58 = "GoogleCloudPlatform/cos-gpu-installer#58"
MUSL_2 = "a2flo/standalone_musl#2, alpinelinux/aports#9250 (the proprietary driver doesn't work with musl)"
TORCH_102592 = "pytorch/pytorch#102592"
DRIVER_LINK = "/run/opengl-driver/lib"
PROFILE = "/nix/store/q3g0bx2603v01n1sbnva321p48v2hdnp-nvidia-x11-460.73.01-5.11.21/lib"
NIXOS_21 = replace(NIXOS, text='NAME=NixOS\nID=nixos\nVERSION_ID="21.11"\nPRETTY_NAME="NixOS 21.11 (Porcupine)"\n')
NIXOS_23 = replace(NIXOS, text='NAME=NixOS\nID=nixos\nVERSION_ID="23.11"\nPRETTY_NAME="NixOS 23.11 (Tapir)"\n')


def _nixos_470(name: str, about: str) -> Reconstruction:
    source = f"{NIX_138943} (kernel-modules/lib/modules/5.13.18/misc/nvidia.ko is nvidia-x11-470.57.02-5.13.18)"
    machine = distro.start(name, about, NIXOS_21, kernel="5.13.18", source=source)
    distro.nixos(machine, "5.13.18", source=source)
    path = "/run/current-system/kernel-modules/lib/modules/5.13.18/misc/nvidia.ko"
    distro.module_file(machine, path, "470.57.02", licence="NVIDIA", source=source)
    return distro.torch(machine, TORCH_110_CU113, python="3.9")


def nixos_profile_old_driver() -> Reconstruction:
    """A driver of another age was installed into the profile, and its libraries are found first."""
    machine = _nixos_470(
        "nixos-profile-old-driver", "NixOS: module 470.57.02, and nvidia-x11 460.73.01 in the default profile"
    )
    source = f"{NIX_138943} (nvidia-smi in the default profile is nvidia-x11-460.73.01)"
    distro.card(machine, RTX_3070, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    distro.mismatched(machine, loaded="470.57.02", libraries="460.73.01", kind="proprietary", source=source)
    machine.link("/nix/var/nix/profiles/default/lib", PROFILE, source=source)
    machine.file("/nix/var/nix/profiles/default/manifest.nix", "", source=SUPPOSED)
    machine.env(LD_LIBRARY_PATH=f"{PROFILE}:{DRIVER_LINK}")
    machine.sources["LD_LIBRARY_PATH"] = f"{source}; that the profile's libraries come first is supposed"
    distro.done(machine, NIXOS_21, folder=PROFILE)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        machine.elf(f"{DRIVER_LINK}/{name}.470.57.02", ElfSpec(soname=f"{name}.1"), source=source)
        machine.link(f"{DRIVER_LINK}/{name}.1", f"{name}.470.57.02", source=source)
    return machine


def nixos_profile_old_driver_near_miss() -> Reconstruction:
    """Only the system's driver."""
    machine = _nixos_470("nixos-profile-old-driver-near-miss", "NixOS with module and libraries 470.57.02: works")
    distro.works(machine, "470.57.02", (RTX_3070, "0000:01:00.0"), kind="proprietary", source=NIX_138943)
    machine.env(LD_LIBRARY_PATH=DRIVER_LINK)
    return distro.done(machine, NIXOS_21, folder=DRIVER_LINK)


def _nixos_23(name: str, about: str) -> Reconstruction:
    source = f"{NIX_286028} (Linux 6.1.74, NixOS 23.11; softdep nvidia post: nvidia-uvm)"
    machine = distro.start(name, about, NIXOS_23, kernel="6.1.74", source=source)
    distro.nixos(machine, "6.1.74", source=source)
    machine.file(
        "/etc/modprobe.d/nixos.conf",
        "blacklist nouveau\nblacklist nvidiafb\n\nsoftdep nvidia post: nvidia-uvm\n",
        source=source,
    )
    machine.env(LD_LIBRARY_PATH=DRIVER_LINK)
    distro.works(machine, "545.29.02", (RTX_4070, "0000:01:00.0"), source=f"{source}; driver and GPU supposed")
    return distro.torch(machine, TORCH_25_CU121)


def nixos_uvm_not_loaded() -> Reconstruction:
    """nvidia is loaded and the softdep did not bring nvidia-uvm."""
    machine = _nixos_23("nixos-uvm-not-loaded", "NixOS 23.11: nvidia-smi works, nvidia-uvm is not loaded")
    machine.without("/sys/module/nvidia_uvm", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    machine.file(
        "/proc/modules", "nvidia_drm 1 0 - Live 0x0 (OE)\nnvidia 1 1 nvidia_drm, Live 0x0 (OE)\n", source=SUPPOSED
    )
    distro.cuda_gives(machine, "545.29.02", code=999)
    return distro.done(machine, NIXOS_23, folder=DRIVER_LINK)


def nixos_uvm_not_loaded_near_miss() -> Reconstruction:
    machine = _nixos_23("nixos-uvm-not-loaded-near-miss", "NixOS 23.11 with nvidia-uvm loaded: works")
    return distro.done(machine, NIXOS_23, folder=DRIVER_LINK)


def _aurora(name: str, about: str, *, libraries: str) -> Reconstruction:
    source = f"{AURORA_148} (aurora-dx-nvidia:stable-daily, 41.20250123.3; before: 41.20250119.3)"
    kernel = "6.12.9-200.fc41.x86_64"
    machine = distro.start(name, about, AURORA_41, kernel=kernel, source=source)
    image = "ostree-image-signed:docker://ghcr.io/ublue-os/aurora-dx-nvidia"
    status = (
        f"State: idle\nDeployments:\n* {image}:stable-daily\n      Version: 41.20250123.3 (2025-01-23T17:16:25Z)\n\n"
        f"  {image}:stable\n      Version: 41.20250119.3 (2025-01-19T14:51:17Z)\n"
    )
    distro.ostree(machine, status, source=source)
    path = f"/lib/modules/{kernel}/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "565.57.01", signer="ublue kernel", source=f"{source}; versions supposed")
    listed = {"kmod-nvidia": "565.57.01-1.fc41.x86_64", "nvidia-driver-cuda": f"{libraries}-1.fc41.x86_64"}
    distro.packages(machine, AURORA_41, listed, source=SUPPOSED)
    return distro.torch(machine, TORCH_27_CU126)


def aurora_image_mismatch() -> Reconstruction:
    """The image of that day has a module and libraries of different versions."""
    machine = _aurora(
        "aurora-image-mismatch", "Aurora image with module 565.57.01 and libraries 565.77", libraries="565.77"
    )
    distro.card(machine, RTX_3060, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    distro.mismatched(
        machine,
        loaded="565.57.01",
        libraries="565.77",
        source=f"{AURORA_148} (mismatched versions); the versions are supposed",
    )
    return distro.done(machine, AURORA_41)


def aurora_image_mismatch_near_miss() -> Reconstruction:
    machine = _aurora("aurora-image-mismatch-near-miss", "Aurora image with module and libraries 565.57.01: works",
                      libraries="565.57.01")  # fmt: skip
    distro.works(machine, "565.57.01", (RTX_3060, "0000:01:00.0"), source=AURORA_148)
    return distro.done(machine, AURORA_41)


def _bottlerocket_pod(name: str, about: str, wheel: TorchWheel) -> Reconstruction:
    source = f"{KIT_254} (the kernel kit offers R570; a container with CUDA 13 does not work on it)"
    machine = distro.start(name, about, UBUNTU_24, kernel="6.1.141", source=source)
    distro.pod(machine, source=source)
    distro.dmi(machine, "Amazon EC2", "g6.xlarge", source=SUPPOSED)
    machine.file(
        "/proc/version",
        "Linux version 6.1.141 (builder@buildkitsandbox) (x86_64-bottlerocket-linux-gnu-gcc)\n",
        source=SUPPOSED,
    )
    distro.works(machine, "570.172.08", (L4, "0000:31:00.0"), source=f"{source}; the version is supposed")
    distro.torch(machine, wheel)
    return distro.done(machine, UBUNTU_24)


def bottlerocket_pod_driver_570() -> Reconstruction:
    """An image with CUDA 13 on a node whose driver is part of a read-only image."""
    return _bottlerocket_pod(
        "bottlerocket-pod-driver-570", "Pod on a Bottlerocket node with R570 and torch 2.11.0+cu130", TORCH_211_CU130
    )


def bottlerocket_pod_driver_570_near_miss() -> Reconstruction:
    return _bottlerocket_pod("bottlerocket-pod-driver-570-near-miss", "Pod on a Bottlerocket node with R570 and torch "
                             "2.8.0+cu128: works", TORCH_28_CU128)  # fmt: skip


def _cos(name: str, about: str) -> Reconstruction:
    source = f"{COS_58} (2x Tesla P100-PCIE-16GB on compute instances; the release is supposed)"
    machine = distro.start(name, about, COS, kernel="6.1.90+", source=source)
    distro.dmi(machine, "Google", "Google Compute Engine", source=source)
    machine.file(
        "/proc/self/mounts",
        "/dev/dm-0 / ext2 ro,relatime 0 0\n/dev/sda1 /var ext4 rw,nosuid,nodev,noexec 0 0\n",
        source=SUPPOSED,
    )
    machine.socket("/var/run/docker.sock", source=SUPPOSED)
    return distro.torch(machine, TORCH_25_CU121)


def cos_no_driver() -> Reconstruction:
    """Container-Optimized OS brings no driver: its installer was not run, or failed at the start."""
    machine = _cos("cos-no-driver", "Container-Optimized OS with two P100 and no driver")
    for address in ("0000:00:04.0", "0000:00:05.0"):
        distro.card(machine, TESLA_P100, address, source=COS_58)
    distro.nothing_installed(machine)
    log(machine, source=SUPPOSED)
    return distro.done(machine, COS)


def cos_no_driver_near_miss() -> Reconstruction:
    """After cos-extensions install gpu."""
    machine = _cos(
        "cos-no-driver-near-miss", "Container-Optimized OS with two P100 and the driver in /var/lib/nvidia: works"
    )
    distro.works(
        machine,
        "535.183.01",
        (TESLA_P100, "0000:00:04.0"),
        (TESLA_P100, "0000:00:05.0"),
        kind="proprietary",
        source=COS_58,
    )
    machine.file("/var/lib/nvidia/bin/nvidia-smi", "", source=SUPPOSED)
    machine.env(LD_LIBRARY_PATH="/var/lib/nvidia/lib64")
    return distro.done(machine, COS, folder="/var/lib/nvidia/lib64")


def void_musl_host() -> Reconstruction:
    """A desktop with musl: the driver's own libraries exist for glibc only."""
    machine = distro.start(
        "void-musl-host",
        "Void Linux with musl and an RTX 3060 on nouveau: no NVIDIA driver for musl",
        VOID_MUSL,
        kernel="6.12.30_1",
        source=MUSL_2,
    )
    machine.file(
        "/usr/share/xbps.d/00-repository-main.conf",
        "repository=https://repo-default.voidlinux.org/current/musl\n",
        source=SUPPOSED,
    )
    distro.card(machine, RTX_3060, "0000:01:00.0", driver="nouveau", source=SUPPOSED)
    machine.file("/sys/module/nouveau/parameters/modeset", "-1\n", source=SUPPOSED)
    distro.nothing_installed(machine)
    machine.file("/usr/bin/python3", "", source=SUPPOSED)
    log(machine, "[    2.900001] nouveau 0000:01:00.0: NVIDIA GA106 (b76000a1)", source=SUPPOSED)
    return distro.done(machine, VOID_MUSL)


def void_musl_host_near_miss() -> Reconstruction:
    """The glibc edition, which has the same /etc/os-release."""
    machine = distro.start("void-musl-host-near-miss", "Void Linux with glibc, the nvidia package and torch: works",
                           VOID_GLIBC, kernel="6.12.30_1", source=SUPPOSED)  # fmt: skip
    path = "/lib/modules/6.12.30_1/kernel/drivers/video/nvidia.ko"
    distro.module_file(machine, path, "570.153.02", licence="NVIDIA", source=SUPPOSED)
    distro.works(machine, "570.153.02", (RTX_3060, "0000:01:00.0"), kind="proprietary", source=SUPPOSED)
    distro.torch(machine, TORCH_28_CU128)
    return distro.done(machine, VOID_GLIBC)


def alpine_with_glibc_beside() -> Reconstruction:
    """glibc was put beside musl; Python is still the one for musl."""
    source = f"{TORCH_102592} (python:3.9-alpine, torch==2.0.0+cpu; glibc installed, still not resolved)"
    machine = distro.start(
        "alpine-with-glibc-beside",
        "Alpine container with glibc beside musl: torch cannot be imported",
        ALPINE_318,
        kernel="5.15.0-1036-aws",
        source=source,
    )
    distro.in_container(machine)
    machine.host = replace(machine.host, python_version="3.9.16", python_executable="/usr/local/bin/python3.9",
                           python_prefix="/usr/local", python_base_prefix="/usr/local")  # fmt: skip
    docker(machine, source=source)
    distro.packages(machine, ALPINE_318, {"musl": "1.2.4-r0", "glibc": "2.35-r1", "gcompat": "1.1.0-r1"}, source=source)
    names = tuple(f"GLIBC_2.{number}" for number in range(17, 36))
    machine.elf("/usr/glibc-compat/lib/libc.so.6", ElfSpec(soname="libc.so.6", defines=names), source=source)
    machine.link("/lib64/ld-linux-x86-64.so.2", "/usr/glibc-compat/lib/ld-linux-x86-64.so.2", source=source)
    machine.file("/usr/glibc-compat/lib/ld-linux-x86-64.so.2", "", source=source)
    machine.file("/usr/local/bin/python3", "#!", source=source)
    machine.file("/usr/local/bin/python3.9", "#!", source=source)
    wheel = TorchWheel("2.0.0+cpu", "", tag="cp39-cp39-linux_x86_64")
    folder = "/usr/local/lib/python3.9/site-packages"
    machine.file("/usr/local/lib/python3.9/os.py", "", source=source)
    wheels.torch(machine, folder, wheel, source=source)
    distro.module(machine, "525.105.17", kind="proprietary", source=SUPPOSED)
    machine.file("/dev/nvidia0", "", source=SUPPOSED)
    distro.card(machine, L4, "0000:00:1e.0", driver="nvidia", source=SUPPOSED)
    distro.nothing_installed(machine)
    machine.env(NVIDIA_VISIBLE_DEVICES="all")
    return distro.done(machine, ALPINE_318)


def alpine_with_glibc_beside_near_miss() -> Reconstruction:
    """The same on python:3.9-slim: it imports, and is a build for the CPU."""
    source = f"{TORCH_102592}; the image python:3.9-slim-bookworm is supposed"
    machine = distro.start(
        "alpine-with-glibc-beside-near-miss",
        "Debian container with torch 2.0.0+cpu and a GPU",
        DEBIAN_12,
        kernel="5.15.0-1036-aws",
        source=source,
    )
    distro.in_container(machine)
    docker(machine, source=source)
    distro.works(machine, "525.105.17", (L4, "0000:00:1e.0"), kind="proprietary", source=SUPPOSED)
    wheel = TorchWheel("2.0.0+cpu", "", tag="cp39-cp39-linux_x86_64")
    distro.torch(machine, wheel, python="3.9")
    machine.env(NVIDIA_VISIBLE_DEVICES="all")
    distro.done(machine, DEBIAN_12)
    return parts.loader_cache(machine)


MACHINES = (
    nixos_profile_old_driver,
    nixos_uvm_not_loaded,
    aurora_image_mismatch,
    bottlerocket_pod_driver_570,
    cos_no_driver,
    void_musl_host,
    alpine_with_glibc_beside,
)
NEAR_MISSES = (
    nixos_profile_old_driver_near_miss,
    nixos_uvm_not_loaded_near_miss,
    aurora_image_mismatch_near_miss,
    bottlerocket_pod_driver_570_near_miss,
    cos_no_driver_near_miss,
    void_musl_host_near_miss,
    alpine_with_glibc_beside_near_miss,
)
