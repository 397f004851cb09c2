"""More Ubuntu and Debian machines: an image with a driver of its own, a derivative, GPUs and wheels of other ages."""

from __future__ import annotations

from tools.machines import distro_parts as distro
from tools.machines import parts
from tools.machines.distro_gpus import GTX_1060, GTX_1650, RTX_3060, RTX_3070, RTX_4070, TORCH_27_CU126
from tools.machines.distro_releases import DEBIAN_12, DEBIAN_13, POP_22, UBUNTU_22
from tools.machines.driver_parts import TORCH_26_CU124, TORCH_211_CU130, docker, log
from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import TorchWheel

BIOP_27 = "BIOP/BIOP-desktop#27"
POP_2369 = "pop-os/pop#2369"
REPO_38 = "NVIDIA/cuda-repo-management#38"
PLUGIN_471 = "NVIDIA/k8s-device-plugin#471"
FOLDER = "/usr/lib/x86_64-linux-gnu"


def _desktop_image(name: str, about: str) -> Reconstruction:
    machine = distro.start(name, about, UBUNTU_22, kernel="6.8.0-52-generic", source=SUPPOSED)
    distro.in_container(machine)
    docker(machine, source=f"{BIOP_27} (after building base:0.2.0)")
    machine.env(NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="all")
    distro.card(machine, RTX_3070, "0000:01:00.0", driver="nvidia", source=SUPPOSED)
    return distro.torch(machine, TORCH_26_CU124)


def _mounted(machine: Reconstruction, version: str, *, mark: str = "") -> Reconstruction:
    """The host's libraries as the NVIDIA runtime mounts them, one line each."""
    lines = [
        f"9{index} 600 259:2 {FOLDER}/{name}.{version}{mark} {FOLDER}/{name}.{version} ro,nosuid,nodev - ext4 "
        "/dev/nvme0n1p2 rw\n"
        for index, name in enumerate(("libcuda.so", "libnvidia-ml.so"))
    ]
    root = "600 500 0:50 / / rw,relatime - overlay overlay rw\n"
    return machine.file("/proc/self/mountinfo", root + "".join(lines), source=SUPPOSED)


def ubuntu_image_with_own_driver() -> Reconstruction:
    """apt pulled a driver's libraries into the image; they are newer than the host's module and win."""
    machine = _desktop_image(
        "ubuntu-image-with-own-driver",
        "Container whose image has libnvidia-compute of its own: NVML and the host's module do not fit",
    )
    source = f"{BIOP_27} (NVML library version: 570.86; apt-get install nvidia-opencl-dev); the host's version supposed"
    distro.mismatched(machine, loaded="550.144.03", libraries="570.86.15", kind="proprietary", source=source)
    parts.user_driver(machine, "550.144.03", source=SUPPOSED)
    for name in ("libcuda.so", "libnvidia-ml.so"):  # the links lead to the image's newer ones
        machine.link(f"{FOLDER}/{name}.1", f"{name}.570.86.15", source=source)
    _mounted(machine, "550.144.03")
    listed = {"libnvidia-compute-570": "570.86.15-0ubuntu1", "nvidia-opencl-dev": "11.5.1-1ubuntu1"}
    distro.packages(machine, UBUNTU_22, listed, source=source)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        distro.owned(
            machine, UBUNTU_22, "libnvidia-compute-570:amd64", f"{FOLDER}/{name}.570.86.15", f"{FOLDER}/{name}.1"
        )
        machine.command(f"dpkg -S {FOLDER}/{name}.550.144.03", "", status=1,
                        stderr=f"dpkg-query: no path found matching pattern {FOLDER}/{name}.550.144.03\n")  # fmt: skip
    text = "".join(f"{FOLDER}/{name}.570.86.15\n{FOLDER}/{name}.1\n" for name in ("libcuda.so", "libnvidia-ml.so"))
    machine.file("/var/lib/dpkg/info/libnvidia-compute-570:amd64.list", text, source=source)
    return distro.done(machine, UBUNTU_22)


def ubuntu_image_with_own_driver_near_miss() -> Reconstruction:
    """No package owns the libraries: they are the host's of yesterday, mounted before its driver changed."""
    machine = _desktop_image(
        "ubuntu-image-with-own-driver-near-miss",
        "Container from before the host's driver changed: its mounted libraries are gone on the host",
    )
    distro.mismatched(machine, loaded="570.86.15", libraries="550.144.03", kind="proprietary", source=SUPPOSED)
    _mounted(machine, "550.144.03", mark="//deleted")
    distro.packages(machine, UBUNTU_22, {"libc6": "2.35-0ubuntu3.8"}, source=SUPPOSED)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        for path in (f"{FOLDER}/{name}.550.144.03", f"{FOLDER}/{name}.1"):
            machine.command(f"dpkg -S {path}", "", status=1,
                            stderr=f"dpkg-query: no path found matching pattern {path}\n")  # fmt: skip
    return distro.done(machine, UBUNTU_22)


def _pop(name: str, about: str) -> Reconstruction:
    source = f"{POP_2369} (Pop!_OS 22.04, 5.17.5-76051705-generic; 5.16.19 before)"
    machine = distro.start(name, about, POP_22, kernel="5.17.5-76051705-generic", source=source)
    machine.file("/usr/src/linux-headers-5.17.5-76051705-generic/Makefile", "", source=SUPPOSED)
    machine.file("/lib/modules/5.16.19-76051619-generic/updates/dkms/nvidia.ko", "", source=source)
    listed = ("nvidia-driver-510", "nvidia-dkms-510", "libnvidia-compute-510", "system76-driver-nvidia", "dkms")
    distro.packages(machine, POP_22, dict.fromkeys(listed, "510.68.02-1pop0~1652299280~22.04~9823d6b"), source=SUPPOSED)
    wheel = TorchWheel("1.12.1+cu116", "11.6", ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86"),
                       tag="cp310-cp310-linux_x86_64")  # fmt: skip
    return distro.torch(machine, wheel, python="3.10")


def pop_22_no_module_for_kernel() -> Reconstruction:
    """A derivative of Ubuntu with a kernel of its own, for which DKMS did not run."""
    machine = _pop("pop-22-no-module-for-kernel", "Pop!_OS 22.04 on kernel 5.17.5: DKMS built nothing for it")
    source = f"{POP_2369} (FATAL: Module nvidia not found in directory /lib/modules/5.17.5-76051705-generic)"
    distro.card(machine, RTX_3060, "0000:01:00.0", source=SUPPOSED)
    distro.unloaded(machine, "510.68.02", source=source)
    machine.command("dkms status", "nvidia/510.68.02, 5.16.19-76051619-generic, x86_64: installed\n")
    machine.command("modinfo nvidia", "", status=1, stderr="modinfo: ERROR: Module nvidia not found.\n")
    log(machine, source=SUPPOSED)
    return distro.done(machine, POP_22)


def pop_22_no_module_for_kernel_near_miss() -> Reconstruction:
    """DKMS ran."""
    machine = _pop("pop-22-no-module-for-kernel-near-miss", "Pop!_OS 22.04 on kernel 5.17.5 with its module: works")
    path = "/lib/modules/5.17.5-76051705-generic/updates/dkms/nvidia.ko"
    distro.module_file(machine, path, "510.68.02", licence="NVIDIA", source=SUPPOSED)
    distro.works(machine, "510.68.02", (RTX_3060, "0000:01:00.0"), kind="proprietary", source=POP_2369)
    return distro.done(machine, POP_22)


def _trixie_with_nvidias_repository(name: str, about: str) -> Reconstruction:
    machine = distro.start(name, about, DEBIAN_13, kernel="6.12.57+deb13-amd64", source=REPO_38)
    machine.file(
        "/etc/apt/sources.list.d/cuda-debian13-x86_64.list",
        "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] "
        "https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64/ /\n",
        source=REPO_38,
    )
    listed = ("nvidia-open", "nvidia-driver", "nvidia-kernel-open-dkms", "libcuda1", "libnvidia-ml1", "cuda-keyring")
    distro.packages(machine, DEBIAN_13, dict.fromkeys(listed, "595.71.05-1"), source=f"{REPO_38}; versions supposed")
    path = "/lib/modules/6.12.57+deb13-amd64/updates/dkms/nvidia.ko.xz"
    distro.module_file(machine, path, "595.71.05", source=SUPPOSED)
    return distro.torch(machine, TORCH_27_CU126)


def debian_13_pascal_driver_595() -> Reconstruction:
    """NVIDIA's repository for Debian 13 has no branch that knows Pascal."""
    machine = _trixie_with_nvidias_repository(
        "debian-13-pascal-driver-595", "Debian 13 with a GTX 1060 and driver 595.71.05 of NVIDIA's repository: ignored"
    )
    source = f"{REPO_38} (GTX 1060; the debian13 repository has no 580)"
    distro.card(machine, GTX_1060, "0000:01:00.0", source=source)
    distro.unloaded(machine, "595.71.05", source=source)
    log(
        machine,
        "[    5.100001] NVRM: The NVIDIA NVIDIA GeForce GTX 1060 6GB GPU installed in this system is",
        "NVRM:  supported through the NVIDIA 580.xx Legacy drivers. Please",
        "NVRM:  visit http://www.nvidia.com/object/unix.html for more",
        "NVRM:  information.  The 595.71.05 NVIDIA driver will ignore",
        "NVRM:  this GPU.  Continuing probe...",
        "NVRM: No NVIDIA GPU found.",
        source="NixOS/nixos-hardware#1880 (the same driver's lines), with this GPU's name",
    )
    return distro.done(machine, DEBIAN_13)


def debian_13_pascal_driver_595_near_miss() -> Reconstruction:
    """A GPU of the next generation."""
    machine = _trixie_with_nvidias_repository(
        "debian-13-pascal-driver-595-near-miss", "Debian 13 with a GTX 1650 and driver 595.71.05: works"
    )
    distro.works(machine, "595.71.05", (GTX_1650, "0000:01:00.0"), source=SUPPOSED)
    return distro.done(machine, DEBIAN_13)


def _bookworm_545(name: str, about: str, wheel: TorchWheel) -> Reconstruction:
    source = f"{PLUGIN_471} (Debian 12, nvidia-driver 545.23.08-1, nvidia-container-toolkit 1.14.3-1)"
    machine = distro.start(name, about, DEBIAN_12, kernel="6.1.0-13-amd64", source=source)
    listed = {"nvidia-driver": "545.23.08-1", "nvidia-kernel-dkms": "545.23.08-1", "libcuda1": "545.23.08-1",
              "nvidia-driver-bin": "545.23.08-1", "nvidia-container-toolkit": "1.14.3-1"}  # fmt: skip
    distro.packages(machine, DEBIAN_12, listed, source=source)
    machine.file(
        "/etc/apt/sources.list.d/cuda-debian12-x86_64.list",
        "deb https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/ /\n",
        source=SUPPOSED,
    )
    path = "/lib/modules/6.1.0-13-amd64/updates/dkms/nvidia-current.ko"
    distro.module_file(machine, path, "545.23.08", licence="NVIDIA", source=source)
    distro.works(machine, "545.23.08", (RTX_4070, "0000:01:00.0"), kind="proprietary", source=source)
    distro.torch(machine, wheel)
    return distro.done_debian(machine, DEBIAN_12)


def debian_12_driver_545_cu130() -> Reconstruction:
    """A plain pip install brought torch for CUDA 13."""
    return _bookworm_545(
        "debian-12-driver-545-cu130",
        "Debian 12 with driver 545.23.08 and torch 2.11.0+cu130: sees no GPU",
        TORCH_211_CU130,
    )


def debian_12_driver_545_cu130_near_miss() -> Reconstruction:
    """torch for CUDA 12.4 runs on it."""
    return _bookworm_545(
        "debian-12-driver-545-cu130-near-miss",
        "Debian 12 with driver 545.23.08 and torch 2.6.0+cu124: works",
        TORCH_26_CU124,
    )


MACHINES = (
    ubuntu_image_with_own_driver,
    pop_22_no_module_for_kernel,
    debian_13_pascal_driver_595,
    debian_12_driver_545_cu130,
)
NEAR_MISSES = (
    ubuntu_image_with_own_driver_near_miss,
    pop_22_no_module_for_kernel_near_miss,
    debian_13_pascal_driver_595_near_miss,
    debian_12_driver_545_cu130_near_miss,
)
