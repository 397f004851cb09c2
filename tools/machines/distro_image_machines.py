"""Machines whose system is an image, and machines with musl: no package manager's step mends these."""

from __future__ import annotations

from tools.machines import distro_parts as distro
from tools.machines.distro_gpus import (
    GTX_1050,
    L4,
    RTX_3060,
    RTX_3070,
    RTX_3080_TI,
    RTX_5070_TI,
    TESLA_T4,
    TORCH_25_CU121,
    TORCH_27_CU126,
)
from tools.machines.distro_releases import (
    ALPINE_321,
    BAZZITE_39,
    DEBIAN_12,
    FLATCAR,
    NIXOS,
    SILVERBLUE_42,
    TALOS,
    UBUNTU_20,
    WOLFI,
)
from tools.machines.driver_parts import SM_50_TO_90, TORCH_26_CU124, TORCH_28_CU128, TORCH_211_CU130, docker, log
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import TorchWheel

NIX_75079 = "NixOS/nixpkgs#75079, nix-community/dream2nix#698"
NIX_1828 = "NixOS/nixos-hardware#1828"
BAZZITE_688 = "ublue-os/bazzite#688"
OSTREE_5395 = "coreos/rpm-ostree#5395, NVIDIA/open-gpu-kernel-modules#856"
TALOS_940 = "siderolabs/extensions#940"
FLATCAR_1859 = "flatcar/Flatcar#1859"
TORCH_112553 = "pytorch/pytorch#112553"
UV_9901 = "astral-sh/uv#9901"
WOLFI_PAGE = "speakerdeck.com/erikaheidi/hello-wolfi (apk, primarily glibc), chainguard.dev/unchained on PyTorch wheels"
DRIVER_LINK = "/run/opengl-driver/lib"


def _nixos_with_pip(name: str, about: str) -> Reconstruction:
    machine = distro.start(name, about, NIXOS, kernel="6.12.53", source=SUPPOSED)
    distro.nixos(machine, "6.12.53", source=SUPPOSED)
    distro.works(machine, "580.95.05", (RTX_3080_TI, "0000:01:00.0"), source=SUPPOSED)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, NIXOS, folder=DRIVER_LINK)


def nixos_pip_torch_no_libcuda() -> Reconstruction:
    """A venv on NixOS: the driver works, and pip's torch does not look where NixOS keeps libcuda."""
    machine = _nixos_with_pip("nixos-pip-torch-no-libcuda", "NixOS with torch from pip: libcuda is out of its reach")
    machine.sources[f"{DRIVER_LINK}/libcuda.so.1"] = (
        f"{NIX_75079} (the driver's libraries are in /run/opengl-driver/lib)"
    )
    return machine


def nixos_pip_torch_no_libcuda_near_miss() -> Reconstruction:
    """The same with the folder on LD_LIBRARY_PATH."""
    machine = _nixos_with_pip(
        "nixos-pip-torch-no-libcuda-near-miss", "NixOS with torch from pip and LD_LIBRARY_PATH: works"
    )
    return machine.env(LD_LIBRARY_PATH=DRIVER_LINK)


def _nixos_xps(name: str, about: str) -> Reconstruction:
    source = f"{NIX_1828} (XPS 15-9550, nixos-version 26.05.20260409.4c1018d (Yarara))"
    machine = distro.start(name, about, NIXOS, kernel="6.18.21", source=source)
    distro.nixos(machine, "6.18.21", source=source)
    machine.env(LD_LIBRARY_PATH=DRIVER_LINK)
    return distro.torch(machine, TORCH_27_CU126)


def nixos_26_pascal_driver_595() -> Reconstruction:
    """The stable driver of NixOS went to 595, which knows no Pascal."""
    machine = _nixos_xps("nixos-26-pascal-driver-595", "NixOS with a GTX 1050: driver 595.58.03 ignores it")
    path = "/run/current-system/kernel-modules/lib/modules/6.18.21/misc/nvidia.ko"
    distro.module_file(machine, path, "595.58.03", source=NIX_1828)
    distro.card(machine, GTX_1050, "0000:01:00.0", source=NIX_1828)
    distro.unloaded(machine, "595.58.03", source=NIX_1828)
    log(
        machine,
        "NVRM: The NVIDIA NVIDIA GeForce GTX 1050 GPU installed in this system is",
        "NVRM:  supported through the NVIDIA 580.xx Legacy drivers. Please",
        "NVRM:  visit http://www.nvidia.com/object/unix.html for more",
        "NVRM:  information.  The 595.58.03 NVIDIA driver will ignore",
        "NVRM:  this GPU.  Continuing probe...",
        "NVRM: No NVIDIA GPU found.",
        source=NIX_1828,
    )
    return distro.done(machine, NIXOS, folder=DRIVER_LINK)


def nixos_26_pascal_driver_595_near_miss() -> Reconstruction:
    """nvidiaPackages.legacy_580."""
    machine = _nixos_xps("nixos-26-pascal-driver-595-near-miss", "NixOS with a GTX 1050 and legacy_580: works")
    path = "/run/current-system/kernel-modules/lib/modules/6.18.21/misc/nvidia.ko"
    distro.module_file(machine, path, "580.142", licence="NVIDIA", source=NIX_1828)
    distro.works(machine, "580.142", (GTX_1050, "0000:01:00.0"), kind="proprietary", source=NIX_1828)
    return distro.done(machine, NIXOS, folder=DRIVER_LINK)


def _bazzite(name: str, about: str) -> Reconstruction:
    source = f"{BAZZITE_688} (fresh install of bazzite-nvidia with Secure Boot)"
    kernel = "6.6.9-201.fsync.fc39.x86_64"
    machine = distro.start(name, about, BAZZITE_39, kernel=kernel, source=source)
    status = "State: idle\nDeployments:\n* ostree-image-signed:docker://ghcr.io/ublue-os/bazzite-nvidia:latest\n"
    distro.ostree(machine, status, source=source)
    path = f"/lib/modules/{kernel}/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "545.29.06", signer="ublue kernel", licence="NVIDIA", source=SUPPOSED)
    machine.file("/etc/pki/akmods/certs/akmods-ublue.der", "", source=SUPPOSED)
    listed = {"kmod-nvidia": "545.29.06-1.fc39.x86_64", "xorg-x11-drv-nvidia-cuda": "545.29.06-1.fc39.x86_64"}
    distro.packages(machine, BAZZITE_39, listed, source=SUPPOSED)
    return distro.torch(machine, TORCH_25_CU121)


def bazzite_mok_missing() -> Reconstruction:
    """The image's modules are signed with a key that this machine does not have."""
    machine = _bazzite(
        "bazzite-mok-missing", "Bazzite with Secure Boot: the key of the image's modules is not enrolled"
    )
    source = f"{BAZZITE_688} (missing akmods MOK key on fresh install)"
    distro.card(machine, RTX_3070, "0000:01:00.0", source=SUPPOSED)
    distro.secure_boot(machine, "Fedora Secure Boot CA", "ublue akmods 2022", source=source)
    distro.unloaded(machine, "545.29.06", source=source)
    distro.rejected(machine, source=f"{source}; the line as in NVIDIA/yum-packaging-precompiled-kmod#68")
    return distro.done(machine, BAZZITE_39)


def bazzite_mok_missing_near_miss() -> Reconstruction:
    """After ujust enroll-secure-boot-key."""
    machine = _bazzite("bazzite-mok-missing-near-miss", "Bazzite with Secure Boot and the image's key enrolled: works")
    distro.secure_boot(machine, "Fedora Secure Boot CA", "ublue kernel", source=BAZZITE_688)
    distro.works(machine, "545.29.06", (RTX_3070, "0000:01:00.0"), kind="proprietary", source=BAZZITE_688)
    return distro.done(machine, BAZZITE_39)


def _silverblue(name: str, about: str, *, licence: str) -> Reconstruction:
    source = f"{OSTREE_5395} (Silverblue 42, 6.14.6-300.fc42, 570.144-1.fc42, GB203 [GeForce RTX 5070 Ti])"
    kernel = "6.14.6-300.fc42.x86_64"
    machine = distro.start(name, about, SILVERBLUE_42, kernel=kernel, source=source)
    status = ("State: idle\nDeployments:\n* fedora:fedora/42/x86_64/silverblue\n"
              "          LayeredPackages: akmod-nvidia-open xorg-x11-drv-nvidia\n"
              "            LocalPackages: rpmfusion-nonfree-release-42-1.noarch\n")  # fmt: skip
    distro.ostree(machine, status, source=source)
    machine.file("/proc/self/mounts", "composefs / overlay ro,relatime 0 0\n/dev/nvme0n1p3 /sysroot btrfs ro 0 0\n",
                 source=SUPPOSED)  # fmt: skip
    machine.file("/proc/self/mountinfo", "70 1 0:40 / / ro,relatime - overlay composefs ro\n", source=SUPPOSED)
    machine.file("/etc/rpm/macros.nvidia-kmod", "%_with_kmod_nvidia_open 1\n", source=source)
    listed = {"akmod-nvidia-open": "570.144-1.fc42.x86_64", "akmod-nvidia": "570.144-1.fc42.x86_64",
              "xorg-x11-drv-nvidia-cuda-libs": "570.144-1.fc42.x86_64"}  # fmt: skip
    distro.packages(machine, SILVERBLUE_42, listed, source=source)
    path = f"/lib/modules/{kernel}/extra/nvidia/nvidia.ko.xz"
    distro.module_file(machine, path, "570.144", licence=licence, source=source)
    return distro.torch(machine, TORCH_28_CU128)


def silverblue_42_akmod_proprietary() -> Reconstruction:
    """akmod-nvidia-open was layered, and what was built is the proprietary module."""
    machine = _silverblue("silverblue-42-akmod-proprietary", "Silverblue 42 with an RTX 5070 Ti: the layered akmod "
                          "built the proprietary module", licence="NVIDIA")  # fmt: skip
    distro.card(machine, RTX_5070_TI, "0000:01:00.0", driver="nvidia", source=OSTREE_5395)
    distro.no_devices(
        machine, "570.144", kind="proprietary", source=f"{OSTREE_5395} (modinfo -l nvidia returns NVIDIA)"
    )
    log(machine, "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2c05)",
        "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
        source=OSTREE_5395)  # fmt: skip
    return distro.done(machine, SILVERBLUE_42)


def silverblue_42_akmod_proprietary_near_miss() -> Reconstruction:
    """The macro reached the build."""
    machine = _silverblue("silverblue-42-akmod-proprietary-near-miss", "Silverblue 42 with an RTX 5070 Ti and the open "
                          "module: works", licence="Dual MIT/GPL")  # fmt: skip
    source = "CheariX/silverblue-akmods-keys#14 (%_with_kmod_nvidia_open 1 in macros.kmodtool; Dual MIT/GPL)"
    distro.works(machine, "570.144", (RTX_5070_TI, "0000:01:00.0"), source=source)
    return distro.done(machine, SILVERBLUE_42)


def _talos(name: str, about: str) -> Reconstruction:
    source = f"{TALOS_940} (Talos v1.12.0, driver 580.105.08, toolkit 580.105.08-v1.18.1, RTX 3060)"
    machine = distro.start(name, about, TALOS, kernel="6.18.1-talos", source=source)
    distro.in_container(machine)
    machine.file("/proc/self/mounts", "/dev/loop0 / squashfs ro,relatime 0 0\n", source=source)
    machine.file("/proc/1/comm", "machined\n", source=SUPPOSED)
    distro.works(machine, "580.105.08", (RTX_3060, "0000:01:00.0"), source=source)
    return distro.torch(machine, TORCH_211_CU130)


def talos_cache_without_driver() -> Reconstruction:
    """A Talos node, looked at from a debug pod with the node's root: the loader's cache lacks NVIDIA's libraries."""
    machine = _talos("talos-cache-without-driver", "Talos node: the loader's cache is without the driver and read-only")
    distro.done(machine, TALOS)
    empty = b"glibc-ld.so.cache1.1" + bytes(28)
    machine.without("/etc/ld.so.cache")
    return machine.file("/usr/local/glibc/etc/ld.so.cache", empty, source=f"{TALOS_940} (ldconfig -p has no nvidia)")


def talos_cache_without_driver_near_miss() -> Reconstruction:
    """An extension whose cache was made with the driver in it."""
    machine = _talos("talos-cache-without-driver-near-miss", "Talos node with the driver in the loader's cache: works")
    return distro.done(machine, TALOS)


def _flatcar(name: str, about: str, runtime: str) -> Reconstruction:
    source = f"{FLATCAR_1859} (nvidia-drivers-570 in enabled-sysext.conf, nvidia_runtime {runtime})"
    machine = distro.start(name, about, FLATCAR, kernel="6.6.95-flatcar", source=source)
    machine.file("/etc/flatcar/enabled-sysext.conf", "nvidia-drivers-570\n", source=source)
    machine.file("/etc/extensions/nvidia_runtime.raw", f"{runtime}\n", source=source)
    machine.file("/proc/self/mounts", "/dev/sda9 / ext4 rw 0 0\n/dev/mapper/usr /usr erofs ro 0 0\n", source=SUPPOSED)
    machine.file("/usr/share/flatcar/nvidia-metadata", "NVIDIA_DRIVER_VERSION=535.261.03\n", source=SUPPOSED)
    machine.socket("/var/run/docker.sock", source=SUPPOSED)
    return distro.torch(machine, TORCH_28_CU128)


def flatcar_sysexts_do_not_fit() -> Reconstruction:
    """An old runtime extension and the prebuilt driver extension: nvidia.service finds no nvidia-smi."""
    machine = _flatcar("flatcar-sysexts-do-not-fit", "Flatcar: nvidia.service failed, two extensions that do not fit",
                       "v1.16.2-x86-64")  # fmt: skip
    unit = "systemctl show nvidia.service --property=ActiveState,SubState,Result,ExecMainStatus"
    machine.command(unit, "ActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=127\n")
    machine.command("journalctl --unit=nvidia.service --lines=40 --no-pager --output=cat",
                    "Starting nvidia.service - NVIDIA Configure Service...\n"
                    "setup-nvidia: nvidia-smi: command not found\n"
                    "nvidia.service: Main process exited, code=exited, status=127/n/a\n")  # fmt: skip
    distro.card(machine, TESLA_T4, "0000:00:04.0", source=SUPPOSED)
    distro.nothing_installed(machine)
    log(machine, source=SUPPOSED)
    return distro.done(machine, FLATCAR)


def flatcar_sysexts_do_not_fit_near_miss() -> Reconstruction:
    """A runtime extension of the present."""
    machine = _flatcar("flatcar-sysexts-do-not-fit-near-miss", "Flatcar with driver and newer runtime: works",
                       "v1.17.8-x86-64")  # fmt: skip
    distro.works(machine, "570.172.08", (TESLA_T4, "0000:00:04.0"), kind="proprietary", source=FLATCAR_1859)
    return distro.done(machine, FLATCAR)


def _gke_pod(name: str, about: str, wheel: TorchWheel) -> Reconstruction:
    """A pod on a Container-Optimized OS node: its kernel ends in +, the libraries are in /usr/local/nvidia."""
    source = f"{TORCH_112553} (GKE 1.25 COS, 470.182.03, Ubuntu 20.04.6, kernel 5.15.107+, Python 3.11.6)"
    machine = distro.start(name, about, UBUNTU_20, kernel="5.15.107+", source=source)
    distro.pod(machine, source=source)
    distro.dmi(machine, "Google", "Google Compute Engine", source=SUPPOSED)
    distro.works(machine, "470.182.03", (TESLA_T4, "0000:00:04.0"), kind="proprietary", source=source)
    machine.env(LD_LIBRARY_PATH="/usr/local/nvidia/lib64")
    distro.torch(machine, wheel, python="3.11", source=source)
    return distro.done(machine, UBUNTU_20, folder="/usr/local/nvidia/lib64")


def gke_cos_driver_470() -> Reconstruction:
    """torch for CUDA 12.1 on a node whose driver offers 11.4."""
    wheel = TorchWheel("2.1.0+cu121", "12.1", SM_50_TO_90, tag="cp311-cp311-linux_x86_64")
    return _gke_pod("gke-cos-driver-470", "GKE pod on Container-Optimized OS: driver 470 and torch 2.1.0+cu121", wheel)


def gke_cos_driver_470_near_miss() -> Reconstruction:
    """The same torch for CUDA 11.8."""
    wheel = TorchWheel("2.1.0+cu118", "11.8", SM_50_TO_90, tag="cp311-cp311-linux_x86_64")
    return _gke_pod("gke-cos-driver-470-near-miss", "GKE pod: driver 470 and torch 2.1.0+cu118, works", wheel)


def alpine_uv_image() -> Reconstruction:
    """A uv image of Alpine with a GPU given to it: no wheel for CUDA fits."""
    source = (
        f"{UV_9901} (ghcr.io/astral-sh/uv:python3.10-alpine; host CUDA 12.7; nvidia-cublas-cu12 can't be installed)"
    )
    machine = distro.start("alpine-uv-image", "Alpine container with a GPU: no CUDA wheel runs on musl", ALPINE_321,
                           kernel="6.8.0-49-generic", source=source)  # fmt: skip
    distro.in_container(machine)
    docker(machine, source=source)
    distro.packages(machine, ALPINE_321, {"musl": "1.2.5-r8", "busybox": "1.37.0-r12"}, source=SUPPOSED)
    distro.module(machine, "565.57.01", source=SUPPOSED)
    machine.file("/dev/nvidia0", "", source=SUPPOSED)
    distro.card(machine, RTX_3060, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    distro.nothing_installed(machine)
    for name in ("libcuda.so", "libnvidia-ml.so"):  # the runtime mounts the host's, which ask for glibc
        machine.file(f"/usr/lib64/{name}.565.57.01", "", source=SUPPOSED)
    machine.file("/usr/local/bin/python3.10", "", source=source)
    machine.file("/usr/local/bin/uv", "", source=source)
    machine.env(NVIDIA_VISIBLE_DEVICES="all", UV_PYTHON="/usr/local/bin/python3.10")
    return distro.done(machine, ALPINE_321)


def alpine_uv_image_near_miss() -> Reconstruction:
    """The same program on uv's Debian image."""
    source = f"{UV_9901}; the image python3.10-bookworm is supposed"
    machine = distro.start("alpine-uv-image-near-miss", "Debian container with a GPU and torch 2.6.0+cu124: works",
                           DEBIAN_12, kernel="6.8.0-49-generic", source=source)  # fmt: skip
    distro.in_container(machine)
    docker(machine, source=source)
    distro.works(machine, "565.57.01", (RTX_3060, "0000:01:00.0"), source=source)
    machine.env(NVIDIA_VISIBLE_DEVICES="all")
    distro.torch(machine, TORCH_26_CU124, python="3.10")
    return distro.done(machine, DEBIAN_12)


def wolfi_healthy() -> Reconstruction:
    """apk and no musl: Wolfi is built on glibc, and everything runs."""
    machine = distro.start("wolfi-healthy", "Wolfi container with an L4: apk, but glibc, and torch works", WOLFI,
                           kernel="6.8.0-1021-aws", source=WOLFI_PAGE)  # fmt: skip
    distro.in_container(machine)
    docker(machine, source=SUPPOSED)
    distro.packages(machine, WOLFI, {"glibc": "2.42-r3", "ld-linux": "2.42-r3", "python-3.12": "3.12.12-r0"},
                    source=WOLFI_PAGE)  # fmt: skip
    distro.works(machine, "580.95.05", (L4, "0000:31:00.0"), source=SUPPOSED)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, WOLFI, folder="/usr/lib64")


def wolfi_healthy_near_miss() -> Reconstruction:
    """The same wheel copied into an image of Alpine."""
    machine = distro.start("wolfi-healthy-near-miss", "Alpine container with an L4 and a torch wheel for glibc: cannot "
                           "start", ALPINE_321, kernel="6.8.0-1021-aws", source=SUPPOSED)  # fmt: skip
    distro.in_container(machine)
    docker(machine, source=SUPPOSED)
    distro.packages(machine, ALPINE_321, {"musl": "1.2.5-r8", "python3": "3.12.8-r1"}, source=SUPPOSED)
    distro.module(machine, "580.95.05", source=SUPPOSED)
    machine.file("/dev/nvidia0", "", source=SUPPOSED)
    distro.card(machine, L4, "0000:31:00.0", driver="nvidia", source=SUPPOSED)
    distro.nothing_installed(machine)
    distro.torch(machine, TORCH_211_CU130)
    return distro.done(machine, ALPINE_321)


MACHINES = (
    nixos_pip_torch_no_libcuda,
    nixos_26_pascal_driver_595,
    bazzite_mok_missing,
    silverblue_42_akmod_proprietary,
    talos_cache_without_driver,
    flatcar_sysexts_do_not_fit,
    gke_cos_driver_470,
    alpine_uv_image,
    wolfi_healthy,
)
NEAR_MISSES = (
    nixos_pip_torch_no_libcuda_near_miss,
    nixos_26_pascal_driver_595_near_miss,
    bazzite_mok_missing_near_miss,
    silverblue_42_akmod_proprietary_near_miss,
    talos_cache_without_driver_near_miss,
    flatcar_sysexts_do_not_fit_near_miss,
    gke_cos_driver_470_near_miss,
    alpine_uv_image_near_miss,
    wolfi_healthy_near_miss,
)
