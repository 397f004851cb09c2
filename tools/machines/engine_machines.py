"""Machines inside Docker and Podman: libraries that the image brought itself, labels, owners, capabilities."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines.container_marks import bound
from tools.machines.driver_parts import log
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

RTX_4070 = GpuSpec("NVIDIA GeForce RTX 4070", "8.9", 5, 11.99, "0x2786")
RTX_3060 = GpuSpec("NVIDIA GeForce RTX 3060", "8.6", 5, 11.99, "0x2504")
RTX_3080 = GpuSpec("NVIDIA GeForce RTX 3080", "8.6", 5, 9.99, "0x2206")
P100 = GpuSpec("Tesla P100-PCIE-16GB", "6.0", 2, 15.9, "0x15f8")
V100 = GpuSpec("Tesla V100-PCIE-32GB", "7.0", 2, 31.7, "0x1db6")
_LIB = "/usr/lib/x86_64-linux-gnu"


def docker_image_brings_driver() -> Reconstruction:
    """An image into which Ollama's installer put NVIDIA's driver packages."""
    machine = _e4s("docker-image-brings-driver", "Ubuntu 24.04 image with driver 610.43.02, host has 580.95.05")
    thread = "E4S-Project/e4s#172 (NVML library version: 610.43; the Ollama installer put CUDA drivers into the image)"
    ours = [f"{_LIB}/lib{name}.so.610.43.02" for name in ("cuda", "nvidia-ml")]
    marks.dpkg_owns(machine, "libnvidia-compute", "610.43.02-1ubuntu1", *ours, source=f"{thread}; package supposed")
    marks.dpkg_owns(machine, "cuda-drivers", "610.43.02-1ubuntu1", source=thread)
    handed_in = (f"/dev/nvme0n1p2 {_LIB}/lib{name}.so.580.95.05 ext4 ro,nosuid,nodev,relatime"
                 for name in ("cuda", "nvidia-ml"))  # fmt: skip
    marks.docker(machine, *handed_in, source=thread, NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    inside.torch(machine, "2.8.0+cu128")
    return inside.cache(machine)


def docker_image_brings_driver_near_miss() -> Reconstruction:
    """The same two versions, but no package holds the newer one: it was handed in, and the host's driver changed."""
    machine = _e4s("docker-image-brings-driver-near-miss", "Container made under driver 610.43.02, host now 580.95.05")
    ours = [f"{_LIB}/lib{name}.so.610.43.02" for name in ("cuda", "nvidia-ml")]
    machine.without(*(path.replace("610.43.02", "580.95.05") for path in ours))
    marks.dpkg_knows_not(machine, *ours)
    handed_in = (f"/dev/nvme0n1p2 {path} ext4 ro,nosuid,nodev,relatime" for path in ours)
    marks.docker(machine, *handed_in, source=SUPPOSED, NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    inside.torch(machine, "2.8.0+cu128")
    return inside.cache(machine)


def _e4s(name: str, about: str) -> Reconstruction:
    thread = "E4S-Project/e4s#172 (NVML library version: 610.43, driver of the host differs)"
    machine = inside.start(name, about, "ubuntu-24.04", source=thread, kernel="6.8.0-60-generic")
    inside.module(machine, "580.95.05", source="supposed: an older driver on the host than in the image")
    inside.bus(machine, H100)
    inside.nodes(machine, 1, source=SUPPOSED)
    inside.libraries(machine, "580.95.05", source=SUPPOSED)
    # libnvidia-container#266: ldconfig at container creation links the newer library of the image
    inside.libraries(machine, "610.43.02", source="NVIDIA/libnvidia-container#266 (links lead to the newer library)")
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=thread,
                     library=f"{_LIB}/libnvidia-ml.so.610.43.02", more="NVML library version: 610.43\n")  # fmt: skip
    return inside.cuda_says(machine, "610.43.02", 803)


def docker_no_cgroups() -> Reconstruction:
    """A toolkit that was set up for rootless use, under a rootful Docker."""
    machine = _no_cgroups("docker-no-cgroups", "Fedora image under Docker, toolkit with no-cgroups = true on the host")
    thread = "NVIDIA/nvidia-container-toolkit#381 (no-cgroups = true with rootful Docker: Unknown Error)"
    inside.nvml_says(machine, 999, "Unknown Error", source=thread, library="/usr/lib64/libnvidia-ml.so.570.86.16")
    inside.cuda_says(machine, "570.86.16", 100)
    return inside.cache(machine)


def docker_no_cgroups_near_miss() -> Reconstruction:
    """The same with no-cgroups = false: it works."""
    machine = _no_cgroups("docker-no-cgroups-near-miss", "Fedora image under Docker with the GPU given as it should be")
    source = "NVIDIA/nvidia-container-toolkit#580 (no-cgroups = false: nvidia-smi prints 570.86.16)"
    inside.nvml_lists(machine, "570.86.16", RTX_4070, source=source, ecc_mode=0)
    inside.cuda_starts(machine, "570.86.16", RTX_4070)
    return inside.cache(machine)


def _no_cgroups(name: str, about: str) -> Reconstruction:
    source = "NVIDIA/nvidia-container-toolkit#580 (docker run --runtime=nvidia --gpus all: Unknown Error; 570.86.16)"
    machine = inside.start(name, about, "fedora-43", source=SUPPOSED, kernel="6.17.8-300.fc43.x86_64")
    inside.module(machine, "570.86.16", source=source)
    inside.bus(machine, RTX_4070)
    inside.nodes(machine, 1, source=source)
    inside.libraries(machine, "570.86.16", source=source)
    marks.docker(machine, *bound(machine), source=source, NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    return inside.torch(machine, "2.8.0+cu128", python="3.13")


def docker_utility_only() -> Reconstruction:
    """The runtime was asked for the tools alone: nvidia-smi works, libcuda was not handed in."""
    return _capabilities("docker-utility-only", "utility")


def docker_utility_only_near_miss() -> Reconstruction:
    """The same with compute: it works."""
    return _capabilities("docker-utility-only-near-miss", "compute,utility")


def _capabilities(name: str, wanted: str) -> Reconstruction:
    thread = ("AbdBarho/stable-diffusion-webui-docker#348 (Found no NVIDIA driver though nvidia-smi works; "
              "NVIDIA_DRIVER_CAPABILITIES=compute,utility cures it)")  # fmt: skip
    machine = inside.start(name, f"Debian 12 image under Docker with NVIDIA_DRIVER_CAPABILITIES={wanted}", "debian-12",
                           source=SUPPOSED, kernel="6.1.0-32-amd64")  # fmt: skip
    inside.module(machine, "535.216.01", source=SUPPOSED, kind="proprietary")
    inside.nodes(machine, 1, source=SUPPOSED)
    names = ("cuda", "nvidia-ml") if "compute" in wanted else ("nvidia-ml",)
    inside.libraries(machine, "535.216.01", source=thread, names=names)
    inside.nvml_lists(machine, "535.216.01", RTX_3060, source=thread, ecc_mode=0)
    machine.command("nvidia-smi -L", "GPU 0: NVIDIA GeForce RTX 3060 (UUID: GPU-00000000-0000-0000-0000-0)\n")
    if "compute" in wanted:
        inside.cuda_starts(machine, "535.216.01", RTX_3060)
    marks.docker(machine, *bound(machine), source=thread, NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES=wanted)  # fmt: skip
    inside.torch(machine, "2.4.1+cu121", python="3.11")
    return inside.cache(machine)


def podman_selinux() -> Reconstruction:
    """A rootful container on Fedora whose type may not open device nodes."""
    machine = _fedora_podman("podman-selinux", "system_u:system_r:container_t:s0:c164,c791")
    thread = ("NVIDIA/nvidia-container-toolkit#210 (Failed to initialize NVML: Insufficient Permissions; on Fedora 43 "
              "cured by setsebool -P container_use_devices true)")  # fmt: skip
    inside.nvml_says(machine, 4, "Insufficient Permissions", source=thread,
                     library="/usr/lib64/libnvidia-ml.so.580.105.08")  # fmt: skip
    inside.cuda_says(machine, "580.105.08", 100)
    return inside.cache(machine)


def podman_selinux_near_miss() -> Reconstruction:
    """The same container started with --security-opt=label=disable."""
    machine = _fedora_podman("podman-selinux-near-miss", "unconfined_u:system_r:spc_t:s0")
    inside.nvml_lists(machine, "580.105.08", RTX_3080, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "580.105.08", RTX_3080)
    return inside.cache(machine)


def _fedora_podman(name: str, label: str) -> Reconstruction:
    thread = "NVIDIA/nvidia-container-toolkit#210 (podman run --device nvidia.com/gpu=all; RTX 3080)"
    machine = inside.start(name, f"UBI 9 image under rootful Podman on Fedora 43, process label {label}", "ubi-9",
                           source=SUPPOSED, kernel="6.17.8-300.fc43.x86_64")  # fmt: skip
    inside.module(machine, "580.105.08", source=SUPPOSED)
    inside.bus(machine, RTX_3080)
    inside.nodes(machine, 1, source=thread)
    inside.libraries(machine, "580.105.08", source=SUPPOSED)
    machine.file("/proc/filesystems", "nodev\tselinuxfs\n", source=SUPPOSED)
    marks.podman(machine, *bound(machine), source=thread, rootless=0, label=label, NVIDIA_VISIBLE_DEVICES="void")
    return inside.torch(machine, "2.11.0+cu130")


def podman_root_p100() -> Reconstruction:
    """A rootful container with its GPU by CDI: works, and NVIDIA_VISIBLE_DEVICES=void is what CDI leaves."""
    machine = _p100("podman-root-p100", "Ubuntu 18.04 image under rootful Podman with a Tesla P100 by CDI: works")
    thread = "podman-container-tools/podman#17539 (sudo podman run --device=nvidia.com/gpu=0: Tesla P100-PCIE-16GB)"
    inside.given(machine, "525.85.12", P100, source=thread, kind="proprietary")
    marks.podman(machine, *bound(machine), source=thread, rootless=0, version="4.4.1", NVIDIA_VISIBLE_DEVICES="void")
    return inside.cache(machine)


def podman_root_p100_near_miss() -> Reconstruction:
    """The same without --device: nothing of the GPU is inside."""
    machine = _p100("podman-root-p100-near-miss", "Ubuntu 18.04 image under rootful Podman, started without --device")
    inside.module(machine, "525.85.12", source=SUPPOSED, kind="proprietary")
    inside.bus(machine, P100)
    inside.no_nvml(machine)
    marks.podman(machine, source=SUPPOSED, rootless=0, version="4.4.1")
    return inside.cache(machine)


def _p100(name: str, about: str) -> Reconstruction:
    thread = "podman-container-tools/podman#17539 (ubuntu:18.04, nvidia-container-toolkit v1.12.0)"
    machine = inside.start(name, about, "ubuntu-18.04", source=thread, kernel="5.15.0-60-generic")
    return inside.torch(machine, "2.4.1+cu121", python="3.8")


def podman_rootless_video_group() -> Reconstruction:
    """Nodes that only the group video may open, and a user namespace in which that group is nobody."""
    machine = _video_group("podman-rootless-video-group", mode=0o660)
    thread = ("NVIDIA/nvidia-docker#1608 (rootless Podman: Insufficient Permissions; crw-rw---- root video), "
              "NVIDIA/nvidia-container-toolkit#210 (--group-add keep-groups with crun cures it)")  # fmt: skip
    library = "/usr/lib64/libnvidia-ml.so.570.153.02"
    inside.nvml_says(machine, 4, "Insufficient Permissions", source=thread, library=library)
    inside.cuda_says(machine, "570.153.02", 100)
    return inside.cache(machine)


def podman_rootless_video_group_near_miss() -> Reconstruction:
    """The same with nodes that everybody may open."""
    machine = _video_group("podman-rootless-video-group-near-miss", mode=0o666)
    inside.nvml_lists(machine, "570.153.02", RTX_3080, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "570.153.02", RTX_3080)
    return inside.cache(machine)


def _video_group(name: str, *, mode: int) -> Reconstruction:
    thread = "NVIDIA/nvidia-docker#1608 (openSUSE Tumbleweed, rootless, crw-rw---- 1 root video 195, 0 /dev/nvidia0)"
    machine = inside.start(name, f"Tumbleweed image under rootless Podman, nodes of mode {mode:o}", "tumbleweed",
                           source=thread, kernel="6.15.2-1-default")  # fmt: skip
    inside.module(machine, "570.153.02", source="supposed: the thread's 470.103.01, with a driver of today")
    inside.bus(machine, RTX_3080)
    inside.nodes(machine, 1, source=thread)
    for node in ("nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-uvm-tools"):
        machine.owned(f"/dev/{node}", mode=0o20000 | mode, owner=65534)
    inside.libraries(machine, "570.153.02", source=SUPPOSED)
    marks.podman(machine, *bound(machine), source=thread, rootless=1, NVIDIA_VISIBLE_DEVICES="void")
    return inside.torch(machine, "2.8.0+cu128", python="3.11")


def podman_rootless_one_id() -> Reconstruction:
    """A user without subordinate ids: one id is mapped, and that is enough for the GPU."""
    machine = _one_id("podman-rootless-one-id", "CentOS 8 image under rootless Podman, one id mapped, V100: works")
    thread = "NVIDIA/nvidia-container-runtime#145 (no subuid, Tesla V100-PCIE-32GB, 470.42.01, CentOS 8.4)"
    inside.given(machine, "470.42.01", V100, source=thread, kind="proprietary")
    marks.podman(machine, *bound(machine), source=thread, rootless=1, version="3.0.2-dev",
                 ids="         0       1000          1\n", NVIDIA_VISIBLE_DEVICES="all")  # fmt: skip
    return inside.cache(machine)


def podman_rootless_one_id_near_miss() -> Reconstruction:
    """The same, but nobody loaded nvidia-uvm on the host: its node is missing."""
    machine = _one_id("podman-rootless-one-id-near-miss", "CentOS 8 image, rootless Podman, no /dev/nvidia-uvm")
    inside.given(machine, "470.42.01", V100, source=SUPPOSED, kind="proprietary")
    machine.without("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/sys/module/nvidia_uvm")
    inside.cuda_says(machine, "470.42.01", 999)
    log(machine, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  470.42.01", source=SUPPOSED)
    marks.podman(machine, *bound(machine), source=SUPPOSED, rootless=1, version="3.0.2-dev",
                 ids="         0       1000          1\n", NVIDIA_VISIBLE_DEVICES="all")  # fmt: skip
    return inside.cache(machine)


def _one_id(name: str, about: str) -> Reconstruction:
    thread = "NVIDIA/nvidia-container-runtime#145 (CentOS Linux release 8.4.2105, 4.18.0-305.7.1.el8_4.x86_64)"
    machine = inside.start(name, about, "centos-8", source=thread, kernel="4.18.0-305.7.1.el8_4.x86_64")
    archs = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86")
    return inside.torch(machine, "1.13.1+cu117", python="3.9", archs=archs)


MACHINES = (
    docker_image_brings_driver,
    docker_no_cgroups,
    docker_utility_only,
    podman_selinux,
    podman_root_p100,
    podman_rootless_video_group,
    podman_rootless_one_id,
)
NEAR_MISSES = (
    docker_image_brings_driver_near_miss,
    docker_no_cgroups_near_miss,
    docker_utility_only_near_miss,
    podman_selinux_near_miss,
    podman_root_p100_near_miss,
    podman_rootless_video_group_near_miss,
    podman_rootless_one_id_near_miss,
)
