"""More machines inside Docker and Podman, and hosts whose toolkit or device specification is the point."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines.container_marks import bound
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

GTX_1080_TI = GpuSpec("NVIDIA GeForce GTX 1080 Ti", "6.1", 5, 11.0, "0x1b06")
RTX_3050 = GpuSpec("NVIDIA GeForce RTX 3050", "8.6", 5, 7.99, "0x2507")
RTX_2060 = GpuSpec("NVIDIA GeForce RTX 2060", "7.5", 5, 5.99, "0x1f08")
RTX_4060 = GpuSpec("NVIDIA GeForce RTX 4060", "8.9", 5, 7.99, "0x2882")
T4 = GpuSpec("Tesla T4", "7.5", 2, 14.7, "0x1eb8")
_PAIR = ("cuda", "nvidia-ml")
_BY_HAND = ("NVIDIA/nvidia-docker#1608 (klueska: without the toolkit one passes the devices on the command "
            "line oneself); that the libraries are then missing is supposed, from NVIDIA's CDI page")  # fmt: skip


def docker_rpm_in_image() -> Reconstruction:
    """A Fedora image in which the CUDA package pulled in an older driver by rpm."""
    machine = _fedora_25("docker-rpm-in-image", "Fedora 25 image with driver 384.81 by rpm, host with 384.90")
    thread = "NVIDIA/nvidia-docker#528 (kernel version 384.90.0 does not match DSO version 384.81.0)"
    inside.libraries(machine, "384.81", source=thread)
    ours = [f"/usr/lib64/lib{name}.so.384.81" for name in _PAIR]
    marks.rpm_owns(machine, "xorg-x11-drv-nvidia-libs-384.81-1.fc25.x86_64", *ours, source=f"{thread}; name supposed")
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=thread,
                     library="/usr/lib64/libnvidia-ml.so.384.81")  # fmt: skip
    inside.cuda_says(machine, "384.81", 100)
    marks.docker(machine, source=thread, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")
    return inside.cache(machine)


def docker_rpm_in_image_near_miss() -> Reconstruction:
    """The same image without the rpm: the host's libraries are handed in, and it works."""
    machine = _fedora_25("docker-rpm-in-image-near-miss", "Fedora 25 image without a driver of its own, host 384.90")
    inside.libraries(machine, "384.90", source=SUPPOSED)
    marks.rpm_knows_not(machine, *(f"/usr/lib64/lib{name}.so.384.90" for name in _PAIR))
    inside.nvml_lists(machine, "384.90", GTX_1080_TI, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "384.90", GTX_1080_TI)
    marks.docker(machine, *bound(machine), source=SUPPOSED, NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    return inside.cache(machine)


def _fedora_25(name: str, about: str) -> Reconstruction:
    thread = "NVIDIA/nvidia-docker#528 (Fedora25 container, Ubuntu16.04 host, driver 384.90)"
    machine = inside.start(name, about, "fedora-25", source=thread, kernel="4.4.0-98-generic")
    inside.module(machine, "384.90", source=thread, kind="proprietary")
    inside.bus(machine, GTX_1080_TI)
    inside.nodes(machine, 1, source=thread)
    archs = ("sm_35", "sm_50", "sm_60", "sm_61", "sm_70")
    return inside.torch(machine, "1.0.0+cu90", python="3.6", archs=archs)


def docker_host_no_cgroups() -> Reconstruction:
    """A host that works by itself and whose toolkit keeps rootful containers from their GPU."""
    return _docker_host("docker-host-no-cgroups", "true")


def docker_host_no_cgroups_near_miss() -> Reconstruction:
    """The same with the setting that rootful Docker wants."""
    return _docker_host("docker-host-no-cgroups-near-miss", "false")


def _docker_host(name: str, setting: str) -> Reconstruction:
    thread = "NVIDIA/nvidia-container-toolkit#381 (Ubuntu 20.04.6 LTS, Docker 25.0.4, no-cgroups in config.toml)"
    machine = inside.start(name, f"Ubuntu 20.04 host with Docker and no-cgroups = {setting}", "ubuntu-20.04",
                           source=thread, kernel="5.15.0-97-generic", user="user-a")  # fmt: skip
    inside.given(machine, "535.161.07", RTX_2060, source=SUPPOSED, kind="proprietary", ecc_mode=0)
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    marks.mounts(machine, "/dev/nvme0n1p2 / ext4 rw,relatime", "udev /dev devtmpfs rw,nosuid,relatime")
    machine.socket("/var/run/docker.sock", source=thread)
    machine.file("/etc/docker/daemon.json",
                 '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}\n', source=thread)  # fmt: skip
    machine.file("/etc/nvidia-container-runtime/config.toml", "disable-require = false\n\n[nvidia-container-cli]\n"
                 f'load-kmods = true\nno-cgroups = {setting}\nldconfig = "@/sbin/ldconfig.real"\n\n'
                 '[nvidia-container-runtime]\nmode = "auto"\n', source=thread)  # fmt: skip
    machine.file("/usr/bin/nvidia-ctk", "#!", source=thread)
    machine.command("/usr/bin/nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.14.5\n")
    inside.torch(machine, "2.4.1+cu121", python="3.10", prefix="/home/user-a/venv")
    return inside.cache(machine)


def docker_arch_image() -> Reconstruction:
    """An Arch image that carries nvidia-utils, on a host with an older driver."""
    machine = _arch_image("docker-arch-image", "Arch image with nvidia-utils 565.57.01, host driver 535.183.01")
    thread = "k4yt3x/video2x#1226 (Docker image, NVML library version: 565.57, host driver 535)"
    inside.libraries(machine, "565.57.01", source=thread)
    owned = "".join(f"usr/lib/lib{name}.so.565.57.01\n" for name in _PAIR)
    record = "/var/lib/pacman/local/nvidia-utils-565.57.01-1"
    machine.file(f"{record}/files", f"%FILES%\n{owned}", source=f"{thread}; supposed")
    machine.file(f"{record}/desc", "%NAME%\nnvidia-utils\n\n%VERSION%\n565.57.01-1\n", source=f"{thread}; supposed")
    for name in _PAIR:
        path = f"/usr/lib/lib{name}.so.565.57.01"
        machine.command(f"pacman -Qo {path}", f"{path} is owned by nvidia-utils 565.57.01-1\n")
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=thread,
                     library="/usr/lib/libnvidia-ml.so.565.57.01", more="NVML library version: 565.57\n")  # fmt: skip
    inside.cuda_says(machine, "565.57.01", 803)
    marks.docker(machine, source=thread, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="all")
    return inside.cache(machine)


def docker_arch_image_near_miss() -> Reconstruction:
    """The same image with nvidia-utils of exactly the host's version: it works, until the host changes."""
    machine = _arch_image("docker-arch-image-near-miss", "Arch image whose nvidia-utils are the host's 535.183.01")
    inside.libraries(machine, "535.183.01", source=SUPPOSED)
    owned = "".join(f"usr/lib/lib{name}.so.535.183.01\n" for name in _PAIR)
    machine.file("/var/lib/pacman/local/nvidia-535xx-utils-535.183.01-1/files", f"%FILES%\n{owned}", source=SUPPOSED)
    for name in _PAIR:
        path = f"/usr/lib/lib{name}.so.535.183.01"
        machine.command(f"pacman -Qo {path}", f"{path} is owned by nvidia-535xx-utils 535.183.01-1\n")
    inside.nvml_lists(machine, "535.183.01", RTX_4060, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "535.183.01", RTX_4060)
    marks.docker(machine, source=SUPPOSED, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="all")
    return inside.cache(machine)


def _arch_image(name: str, about: str) -> Reconstruction:
    machine = inside.start(name, about, "arch", source="k4yt3x/video2x#1226; that the image is Arch's is supposed",
                           kernel="5.15.0-126-generic")  # fmt: skip
    inside.module(machine, "535.183.01", source="k4yt3x/video2x#1226 (Linux Mint host, driver 535; the rest supposed)",
                  kind="proprietary")  # fmt: skip
    inside.bus(machine, RTX_4060)
    inside.nodes(machine, 1, source=SUPPOSED)
    return inside.torch(machine, "2.5.1+cu121", python="3.12")


def podman_host_stale_cdi() -> Reconstruction:
    """A host whose driver was updated after its device specification was written."""
    return _stale("podman-host-stale-cdi", "570.86.15")


def podman_host_stale_cdi_near_miss() -> Reconstruction:
    """The same with a specification of the driver that is there."""
    return _stale("podman-host-stale-cdi-near-miss", "570.133.07")


def _stale(name: str, written: str) -> Reconstruction:
    thread = ("podman-container-tools/podman#26233 (Ubuntu 25.04, RTX 3050, 570-server; nvidia-ctk cdi generate "
              "each time), Igalia/webkit-container-sdk#23 (a library of the old version is not found)")  # fmt: skip
    machine = inside.start(name, f"Ubuntu 25.04 host with Podman and /etc/cdi/nvidia.yaml of driver {written}",
                           "ubuntu-25.04", source=thread, kernel="6.14.0-15-generic", user="user-a")  # fmt: skip
    inside.given(machine, "570.133.07", RTX_3050, source=f"{thread}; versions supposed", ecc_mode=0)
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    marks.mounts(machine, "/dev/nvme0n1p2 / ext4 rw,relatime", "udev /dev devtmpfs rw,nosuid,relatime")
    path = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{written}"
    machine.file(
        "/etc/cdi/nvidia.yaml",
        "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits:\n    deviceNodes:\n"
        "    - path: /dev/nvidia0\n- name: all\ncontainerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\n"
        f"  - path: /dev/nvidia-uvm\n  mounts:\n  - containerPath: {path}\n    hostPath: {path}\n",
        source=thread,
    )  # fmt: skip
    for program in ("podman", "nvidia-ctk", "crun"):
        machine.file(f"/usr/bin/{program}", "#!", source=thread)
    machine.command("/usr/bin/nvidia-ctk --version", "NVIDIA Container Toolkit CLI version 1.17.7\n")
    machine.command("podman --version", "podman version 5.4.1\n")
    inside.torch(machine, "2.8.0+cu128", python="3.13", prefix="/home/user-a/venv")
    return inside.cache(machine)


def podman_nodes_by_hand() -> Reconstruction:
    """A rootful container started with --device /dev/nvidia0 and the rest by hand: nodes, and no library."""
    machine = _by_hand("podman-nodes-by-hand", "Amazon Linux image, rootful Podman, nodes by hand")
    inside.no_nvml(machine, source=_BY_HAND)
    marks.podman(machine, *bound(machine)[1:], source=_BY_HAND, rootless=0)
    return inside.cache(machine)


def podman_nodes_by_hand_near_miss() -> Reconstruction:
    """The same with --device nvidia.com/gpu=all."""
    machine = _by_hand("podman-nodes-by-hand-near-miss", "Amazon Linux image under rootful Podman with the GPU by CDI")
    inside.given(machine, "550.163.01", T4, source=SUPPOSED)
    marks.podman(machine, *bound(machine), source=SUPPOSED, rootless=0, NVIDIA_VISIBLE_DEVICES="void")
    return inside.cache(machine)


def _by_hand(name: str, about: str) -> Reconstruction:
    machine = inside.start(name, about, "amazon-2023", source=SUPPOSED, kernel="6.1.132-147.221.amzn2023.x86_64")
    inside.module(machine, "550.163.01", source=SUPPOSED)
    inside.bus(machine, T4)
    inside.nodes(machine, 1, source=_BY_HAND)
    machine.file("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n", source=SUPPOSED)
    return inside.torch(machine, "2.6.0+cu124", python="3.11")


def podman_rootless_no_device() -> Reconstruction:
    """A rootless container into which nobody asked for a GPU."""
    machine = _rootless_debian("podman-rootless-no-device", "Debian 12 image under rootless Podman without --device")
    thread = ("mmartial/ComfyUI-Nvidia-Docker#33 (podman, Found no NVIDIA driver; another container sees "
              "the GPU), podman-container-tools/podman#17539 (rootless: unresolvable CDI devices)")  # fmt: skip
    inside.no_nvml(machine, source=thread)
    marks.podman(machine, source=thread, rootless=1, version="4.3.1")
    return inside.cache(machine)


def podman_rootless_no_device_near_miss() -> Reconstruction:
    """The same with --device nvidia.com/gpu=all."""
    machine = _rootless_debian("podman-rootless-no-device-near-miss", "Debian 12 image, rootless Podman with a GPU")
    inside.given(machine, "535.129.03", RTX_2060, source="NVIDIA/nvidia-container-toolkit#146 (RTX 2060, 535.129.03)",
                 kind="proprietary", ecc_mode=0)  # fmt: skip
    marks.podman(machine, *bound(machine), source=SUPPOSED, rootless=1, version="4.3.1", NVIDIA_VISIBLE_DEVICES="void")
    return inside.cache(machine)


def _rootless_debian(name: str, about: str) -> Reconstruction:
    machine = inside.start(name, about, "debian-12", source=SUPPOSED, kernel="5.15.0-88-generic")
    inside.module(machine, "535.129.03", source="NVIDIA/nvidia-container-toolkit#146 (535.129.03)", kind="proprietary")
    inside.bus(machine, RTX_2060)
    return inside.torch(machine, "2.4.1+cu121", python="3.11")


def podman_distrobox_driver() -> Reconstruction:
    """A distrobox into which somebody installed a driver of another point version."""
    machine = _box("podman-distrobox-driver", "Rocky 8.6 distrobox with driver 520.61.05 by rpm, host with 520.56.06")
    thread = "89luca89/distrobox#477 (Rocky Linux 8.6 box, rhel repository has 520.61, Ubuntu host 520.56: mismatch)"
    inside.libraries(machine, "520.61.05", source=thread)
    ours = [f"/usr/lib64/lib{name}.so.520.61.05" for name in _PAIR]
    package = "nvidia-driver-cuda-libs-520.61.05-1.el8.x86_64"
    marks.rpm_owns(machine, package, *ours, source=f"{thread}; the package's name is supposed")
    inside.nvml_says(machine, 18, "Driver/library version mismatch", source=thread,
                     library="/usr/lib64/libnvidia-ml.so.520.61.05")  # fmt: skip
    inside.cuda_says(machine, "520.61.05", 803)
    return inside.cache(machine)


def podman_distrobox_driver_near_miss() -> Reconstruction:
    """A box made with --nvidia: the host's own files are bound in, and it works."""
    machine = _box("podman-distrobox-driver-near-miss", "Rocky 8.6 distrobox made with --nvidia, host with 520.56.06")
    inside.libraries(machine, "520.56.06", source="89luca89/distrobox#658 (init: add nvidia integration)")
    marks.rpm_knows_not(machine, *(f"/usr/lib64/lib{name}.so.520.56.06" for name in _PAIR))
    inside.nvml_lists(machine, "520.56.06", RTX_2060, source=SUPPOSED, ecc_mode=0)
    inside.cuda_starts(machine, "520.56.06", RTX_2060)
    return inside.cache(machine)


def _box(name: str, about: str) -> Reconstruction:
    thread = "89luca89/distrobox#477 (Ubuntu host 520.56, Rocky Linux 8.6 box, podman)"
    machine = inside.start(name, about, "rocky-8", source=thread, kernel="5.15.0-52-generic", user="user-a")
    inside.module(machine, "520.56.06", source=thread, kind="proprietary")
    inside.bus(machine, RTX_2060)
    inside.nodes(machine, 1, source=SUPPOSED)
    machine.file("/run/.toolboxenv", "", source=SUPPOSED)
    machine.file("/run/host/etc/os-release", 'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\n', source=thread)
    marks.podman(machine, source=thread, rootless=1, version="4.5.1",
                 ids="         0          1       1000\n      1000          0          1\n",
                 CONTAINER_ID="rocky")  # fmt: skip
    return inside.torch(machine, "2.0.1+cu118", python="3.9", prefix="/home/user-a/venv")


MACHINES = (
    docker_rpm_in_image,
    docker_host_no_cgroups,
    docker_arch_image,
    podman_host_stale_cdi,
    podman_nodes_by_hand,
    podman_rootless_no_device,
    podman_distrobox_driver,
)
NEAR_MISSES = (
    docker_rpm_in_image_near_miss,
    docker_host_no_cgroups_near_miss,
    docker_arch_image_near_miss,
    podman_host_stale_cdi_near_miss,
    podman_nodes_by_hand_near_miss,
    podman_rootless_no_device_near_miss,
    podman_distrobox_driver_near_miss,
)
