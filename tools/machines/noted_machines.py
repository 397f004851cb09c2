"""Machines written down as notes, with their answers, before their writer read any of this code."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines import distro_parts as distro
from tools.machines import parts, wheels
from tools.machines.container_marks import bound
from tools.machines.distro_releases import ARCH, DEBIAN_12, ROCKY_9, TUMBLEWEED, UBUNTU_24, fedora
from tools.machines.driver_parts import SM_50_TO_90, init_fails
from tools.machines.elf_writer import ElfSpec
from tools.machines.fleet_parts import fabric_manager, hgx
from tools.machines.guest_parts import box, package, torch_for, ubuntu
from tools.machines.parts import H100, RTX_5090, SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.torch_machines import jetson
from tools.machines.wheels import CU128, CU130, TorchWheel

NOTED = "as the notes of a stranger to this code say"
GTX_1080_TI = GpuSpec("NVIDIA GeForce GTX 1080 Ti", "6.1", 5, 10.9, "0x1b06")
RTX_3090 = GpuSpec("NVIDIA GeForce RTX 3090", "8.6", 5, 23.6, "0x2204")
RTX_4070 = GpuSpec("NVIDIA GeForce RTX 4070", "8.9", 5, 11.6, "0x2786")
RTX_4060 = GpuSpec("NVIDIA GeForce RTX 4060 Laptop GPU", "8.9", 5, 7.99, "0x28e0")
RTX_3060 = GpuSpec("NVIDIA GeForce RTX 3060", "8.6", 5, 11.6, "0x2504")
RTX_3080 = GpuSpec("NVIDIA GeForce RTX 3080", "8.6", 5, 9.8, "0x2206")
RTX_4080 = GpuSpec("NVIDIA GeForce RTX 4080", "8.9", 5, 15.6, "0x2704")
RTX_4090 = GpuSpec("NVIDIA GeForce RTX 4090", "8.9", 5, 23.6, "0x2684")
RTX_A5000 = GpuSpec("NVIDIA RTX A5000", "8.6", 13, 23.9, "0x2231")
A100_40 = GpuSpec("NVIDIA A100-SXM4-40GB", "8.0", 14, 39.4, "0x20b0")
A100_PCIE = GpuSpec("NVIDIA A100 80GB PCIe", "8.0", 14, 79.3, "0x20b5")
T4 = GpuSpec("Tesla T4", "7.5", 2, 14.6, "0x1eb8")
L4 = GpuSpec("NVIDIA L4", "8.9", 14, 22.5, "0x27b8")
L40S = GpuSpec("NVIDIA L40S", "8.9", 14, 44.5, "0x26b9")
ORIN_NANO = GpuSpec("Orin", "8.7", 0, 7.4)
CU126 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
ROCKY_8 = replace(ROCKY_9, glibc=28, text='NAME="Rocky Linux"\nVERSION="8.10 (Green Obsidian)"\nID="rocky"\n'
                  'ID_LIKE="rhel centos fedora"\nVERSION_ID="8.10"\nPLATFORM_ID="platform:el8"\n'
                  'PRETTY_NAME="Rocky Linux 8.10 (Green Obsidian)"\n')  # fmt: skip


def _companions(machine: Reconstruction, site: str, torch: str, **versions: str) -> None:
    for name, version in versions.items():
        wheels.distribution(machine, site, name, version, requires=(f"torch=={torch}",), source=NOTED)


def _uv_venv(machine: Reconstruction, prefix: str, python: str) -> str:
    site = wheels.python(machine, prefix, version=python, source=NOTED)
    machine.file(f"{prefix}/pyvenv.cfg", f"home = /usr/bin\nuv = 0.13.7\nversion_info = {python}.3\n", source=NOTED)
    return site


def _admin(machine: Reconstruction, group: str = "sudo", number: int = 27) -> Reconstruction:
    """The user may use sudo by an admin group."""
    machine.file("/usr/bin/sudo", "", source=NOTED)
    machine.file("/etc/group", f"root:x:0:\n{group}:x:{number}:user-a\n", source=NOTED)
    return machine.file("/proc/self/status", f"Name:\tpython3\nGid:\t1000\t1000\t1000\t1000\nGroups:\t{number} 1000 \n",
                        source=NOTED)  # fmt: skip


def mixed_gtx1080ti_rtx3090() -> Reconstruction:
    kernel = "6.8.0-85-generic"
    machine = distro.start("noted-mixed-gtx1080ti-rtx3090", NOTED, UBUNTU_24, kernel=kernel, source=NOTED)
    distro.packages(machine, UBUNTU_24, {"nvidia-driver-580": "580.95.05-0ubuntu0.24.04.2"}, source=NOTED)
    distro.works(machine, "580.95.05", (GTX_1080_TI, "0000:01:00.0"), (RTX_3090, "0000:02:00.0"), kind="proprietary",
                 source=NOTED)  # fmt: skip
    machine.file("/home/user-a/.bashrc", "# ~/.bashrc\nexport CUDA_HOME=/usr/local/cuda-11.8\n"
                 "export LD_LIBRARY_PATH=/usr/local/cuda-11.8/lib64\n", source=NOTED)  # fmt: skip
    machine.env(CUDA_HOME="/usr/local/cuda-11.8", LD_LIBRARY_PATH="/usr/local/cuda-11.8/lib64")
    site = wheels.python(machine, "/home/user-a/ml/.venv", source=NOTED)
    wheels.torch(machine, site, TorchWheel("2.9.1+cu130", "13.0", CU130), source=NOTED)
    wheels.distribution(machine, site, "pip", "25.2", source=SUPPOSED)
    _companions(machine, site, "2.9.1", torchvision="0.24.1+cu130")
    _admin(machine)
    return distro.done(machine, UBUNTU_24)


def pod_rtx5090_torch25() -> Reconstruction:
    machine = inside.start("noted-pod-rtx5090-torch25", NOTED, "ubuntu-22.04", source=NOTED, kernel="6.8.0-60-generic")
    inside.bus(machine, RTX_5090)
    inside.given(machine, "570.144", RTX_5090, source=NOTED)
    marks.docker(machine, *bound(machine), source=NOTED, NVIDIA_VISIBLE_DEVICES="all", RUNPOD_POD_ID="pod-a",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    machine.host = replace(machine.host, python_version="3.10.12", python_prefix="/usr",
                           python_executable="/usr/bin/python3")  # fmt: skip
    site = "/usr/local/lib/python3.10/dist-packages"
    wheel = TorchWheel("2.5.1+cu124", "12.4", SM_50_TO_90, tag="cp310-cp310-linux_x86_64")
    wheels.torch(machine, site, wheel, source=NOTED)
    wheels.distribution(machine, site, "pip", "24.2", source=SUPPOSED)
    _companions(machine, site, "2.5.1", torchvision="0.20.1+cu124", torchaudio="2.5.1+cu124")
    return inside.cache(machine)


def arch_kernel_replaced() -> Reconstruction:
    new = "6.17.6-arch1-1"
    machine = distro.start("noted-arch-kernel-replaced", NOTED, ARCH, kernel="6.17.5-arch1-1", source=NOTED)
    machine.without("/lib/modules")
    machine.file(f"/lib/modules/{new}/modules.dep", "", source=NOTED)
    machine.file(f"/lib/modules/{new}/extramodules/nvidia.ko.zst", "", source=NOTED)
    machine.file(f"/lib/modules/{new}/pkgbase", "linux\n", source=SUPPOSED)
    listed = {"linux": "6.17.6.arch1-1", "nvidia-open": "580.105.08-3", "nvidia-utils": "580.105.08-3"}
    distro.packages(machine, ARCH, listed, source=NOTED)
    distro.card(machine, RTX_4070, "0000:01:00.0", source=NOTED)
    distro.unloaded(machine, "580.105.08", source=NOTED)
    site = wheels.python(machine, "/home/user-a/w/.venv", version="3.13", source=NOTED)
    wheels.torch(machine, site, TorchWheel("2.9.1+cu128", "12.8", CU128, tag="cp313-cp313-manylinux_2_28_x86_64"),
                 source=NOTED)  # fmt: skip
    _admin(machine, "wheel", 998)
    return distro.done(machine, ARCH)


def fedora_secureboot_akmod() -> Reconstruction:
    kernel, release = "6.17.7-300.fc43.x86_64", fedora(43, 42)
    machine = distro.start("noted-fedora-secureboot-akmod", NOTED, release, kernel=kernel, source=NOTED)
    distro.card(machine, RTX_4060, "0000:01:00.0", source=NOTED)
    distro.module_file(machine, f"/lib/modules/{kernel}/extra/nvidia/nvidia.ko.xz", "580.95.05",
                       signer="localhost-live-20f1", licence="NVIDIA", source=NOTED)  # fmt: skip
    listed = dict.fromkeys(("akmod-nvidia", "xorg-x11-drv-nvidia-cuda", f"kmod-nvidia-{kernel}"), "580.95.05-1.fc43")
    distro.packages(machine, release, listed, source=NOTED)
    machine.file("/etc/pki/akmods/certs/public_key.der", "", source=NOTED)
    distro.secure_boot(machine, "Fedora Secure Boot CA", source=NOTED)
    distro.unloaded(machine, "580.95.05", source=NOTED)
    distro.rejected(machine, source=NOTED)
    site = _uv_venv(machine, "/home/user-a/p/.venv", "3.13")
    wheels.torch(machine, site, TorchWheel("2.9.1+cu130", "13.0", CU130, tag="cp313-cp313-manylinux_2_28_x86_64"),
                 source=NOTED)  # fmt: skip
    _admin(machine, "wheel", 10)
    return distro.done(machine, release)


def tumbleweed_half_upgraded() -> Reconstruction:
    machine = distro.start("noted-tumbleweed-half-upgraded", NOTED, TUMBLEWEED, kernel="6.17.7-1-default", source=NOTED)
    distro.card(machine, RTX_3060, "0000:01:00.0", source=NOTED, driver="nvidia")
    listed = {"nvidia-open-driver-G06-signed-kmp-default": "580.105.08_k6.17.7_1-1.1",
              "nvidia-compute-G06": "580.105.08-1.1"}  # fmt: skip
    distro.packages(machine, TUMBLEWEED, listed, source=NOTED)
    distro.mismatched(machine, loaded="580.95.05", libraries="580.105.08", source=NOTED)
    distro.torch(machine, TorchWheel("2.10.0+cu128", "12.8", CU128), source=NOTED)
    _admin(machine, "wheel", 498)
    return distro.done(machine, TUMBLEWEED)


def jetson_orin_nano_cpu() -> Reconstruction:
    host = replace(HOST, arch="aarch64", kernel_release="5.15.148-tegra", python_version="3.10.12", user="user-a",
                   home="/home/user-a", cwd="/home/user-a", uid=1000)  # fmt: skip
    machine = Reconstruction("noted-jetson-orin-nano-cpu", NOTED, host=host)
    parts.ubuntu(machine, "22.04", source=NOTED)
    jetson(machine, "36.4.3", board="NVIDIA Jetson Orin Nano Developer Kit", chip="tegra234", source=NOTED)
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    machine.elf(f"{folder}/libcuda.so.1.1", ElfSpec(soname="libcuda.so.1", needed=("libc.so.6",)), source=SUPPOSED)
    machine.link(f"{folder}/libcuda.so.1", "libcuda.so.1.1", source=SUPPOSED)
    machine.file("/sys/module/nvidia/version", "540.4.0\n", source=NOTED)
    machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  "
                 "Release Build\n", source=NOTED)  # fmt: skip
    for node in ("nvidiactl", "nvidia0"):
        machine.file(f"/dev/{node}", "", source=SUPPOSED)
    parts.cuda_answers(machine, f"{folder}/libcuda.so.1.1", cuda="12.6", specs=(ORIN_NANO,))
    site = wheels.python(machine, "/home/user-a/env", version="3.10", source=NOTED)
    tag = "cp310-cp310-manylinux_2_28_aarch64"
    wheels.torch(machine, site, TorchWheel("2.9.1+cpu", "", recorded="2.9.1", tag=tag), source=NOTED)
    wheels.distribution(machine, site, "pip", "25.2", source=SUPPOSED)
    _admin(machine)
    return parts.loader_cache(machine, f"{folder}/libcuda.so.1")


def wsl2_linux_driver_inside() -> Reconstruction:
    host = replace(HOST, user="user-a", home="/home/user-a", cwd="/home/user-a", uid=1000,
                   kernel_release="6.6.87.2-microsoft-standard-WSL2")  # fmt: skip
    machine = Reconstruction("noted-wsl2-linux-driver-inside", NOTED, host=host)
    parts.ubuntu(machine, "24.04", source=NOTED)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        machine.elf(f"/usr/lib/wsl/lib/{name}.1.1", ElfSpec(soname=f"{name}.1", needed=("libc.so.6",)), source=NOTED)
        machine.link(f"/usr/lib/wsl/lib/{name}.1", f"{name}.1.1", source=NOTED)
    machine.file("/etc/ld.so.conf.d/ld.wsl.conf", "/usr/lib/wsl/lib\n", source=NOTED)
    machine.file("/dev/dxg", "", source=NOTED)
    parts.gpus(machine, "581.57", RTX_3080, source=NOTED, ecc_mode=0)
    machine.without("/sys/bus/pci/devices", "/sys/bus/pci/drivers")
    machine.child("nvml", {**machine.children["nvml"].answer, "library": "/usr/lib/wsl/lib/libnvidia-ml.so.1.1"})
    for program in ("/usr/bin/apt-get", "/usr/bin/dpkg"):
        machine.file(program, "", source=SUPPOSED)
    parts.user_driver(machine, "550.163.01", source=NOTED)
    paths = [f"/usr/lib/x86_64-linux-gnu/lib{name}.so.550.163.01" for name in ("cuda", "nvidia-ml")]
    package(machine, "libnvidia-compute-550", "550.163.01-0ubuntu0.24.04.1", *paths, source=NOTED)
    package(machine, "nvidia-driver-550", "550.163.01-0ubuntu0.24.04.1", source=NOTED)
    init_fails(machine, "550.163.01", code=100)
    site = wheels.python(machine, "/home/user-a/venv", source=NOTED)
    wheels.torch(machine, site, TorchWheel("2.9.1+cu128", "12.8", CU128), source=NOTED)
    _admin(machine)
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def rocky8_hpc_no_root() -> Reconstruction:
    kernel = "4.18.0-553.75.1.el8_10.x86_64"
    machine = distro.start("noted-rocky8-hpc-no-root", NOTED, ROCKY_8, kernel=kernel, source=NOTED)
    cards = [(A100_40, f"0000:{number:02x}:00.0") for number in (0x01, 0x41, 0x81, 0xC1)]
    distro.works(machine, "535.183.06", *cards, kind="proprietary", source=NOTED)
    root = "/cm/shared/apps/cuda11.8/toolkit/11.8.0"
    machine.file(f"{root}/bin/nvcc", "", source=NOTED)
    machine.command(f"{root}/bin/nvcc --version", "Cuda compilation tools, release 11.8, V11.8.89\n")
    machine.elf(f"{root}/lib64/libcudart.so.11.0", ElfSpec(soname="libcudart.so.11.0"), source=NOTED)
    machine.elf("/cm/shared/apps/cudnn8.6-cuda11.8/lib64/libcudnn.so.8", ElfSpec(soname="libcudnn.so.8"), source=NOTED)
    machine.env(CUDA_HOME=root, LD_LIBRARY_PATH=f"{root}/lib64:/cm/shared/apps/cudnn8.6-cuda11.8/lib64",
                SLURM_JOB_ID="123", HTTPS_PROXY="http://proxy.cluster:3128", LMOD_CMD="/usr/share/lmod/libexec/lmod",
                LOADEDMODULES="cuda11.8/toolkit/11.8.0:cudnn8.6-cuda11.8")  # fmt: skip
    prefix = "/home/user-a/miniforge3/envs/llm"
    machine.env(CONDA_PREFIX=prefix, CONDA_DEFAULT_ENV="llm")
    inside.conda(machine, prefix, "2.11.0+cu130", python="3.11", source=NOTED)
    wheels.distribution(machine, f"{prefix}/lib/python3.11/site-packages", "pip", "25.2", source=SUPPOSED)
    return distro.done(machine, ROCKY_8)


def conda_user_site_cpu() -> Reconstruction:
    machine = distro.start("noted-conda-user-site-cpu", NOTED, DEBIAN_12, kernel="6.1.0-40-amd64", source=NOTED)
    distro.works(machine, "570.172.08", (RTX_A5000, "0000:17:00.0"), source=NOTED)
    prefix = "/home/user-a/miniforge3/envs/ml"
    machine.env(CONDA_PREFIX=prefix, CONDA_DEFAULT_ENV="ml")
    inside.conda(machine, prefix, "2.8.0+cu128", python="3.12", source=NOTED)
    wheels.distribution(machine, f"{prefix}/lib/python3.12/site-packages", "pip", "25.2", source=SUPPOSED)
    user = "/home/user-a/.local/lib/python3.12/site-packages"
    wheels.torch(machine, user, TorchWheel("2.9.1+cpu", ""), source=NOTED)
    return distro.done(machine, DEBIAN_12)


_CPU_PROJECT = """[project]
name = "app"
version = "0.1.0"
requires-python = ">=3.12"
dependencies = ["torch>=2.9"]

[tool.uv.sources]
torch = { index = "pytorch-cpu" }

[[tool.uv.index]]
name = "pytorch-cpu"
url = "https://download.pytorch.org/whl/cpu"
explicit = true
"""


def uv_project_cpu_index() -> Reconstruction:
    machine = distro.start("noted-uv-project-cpu-index", NOTED, UBUNTU_24, kernel="6.14.0-1017-aws", source=NOTED)
    distro.works(machine, "580.105.08", (L40S, "0000:31:00.0"), source=NOTED)
    project = "/home/user-a/app"
    machine.host = replace(machine.host, cwd=project)
    machine.file(f"{project}/pyproject.toml", _CPU_PROJECT, source=NOTED)
    registry = "https://download.pytorch.org/whl/cpu"
    lock = f'[[package]]\nname = "torch"\nversion = "2.9.1+cpu"\nsource = {{ registry = "{registry}" }}\n'
    machine.file(f"{project}/uv.lock", f"version = 1\nrevision = 3\n\n{lock}", source=NOTED)
    site = _uv_venv(machine, f"{project}/.venv", "3.12")
    wheels.torch(machine, site, TorchWheel("2.9.1+cpu", ""), source=NOTED)
    _admin(machine)
    return distro.done(machine, UBUNTU_24)


def debian12_old_kernel() -> Reconstruction:
    machine = distro.start("noted-debian12-old-kernel", NOTED, DEBIAN_12, kernel="6.1.0-28-amd64", source=NOTED)
    machine.host = replace(HOST, kernel_release="6.1.0-28-amd64")
    new = "6.1.0-40-amd64"
    machine.file(f"/lib/modules/{new}/modules.dep", "", source=NOTED)
    machine.file(f"/lib/modules/{new}/updates/dkms/nvidia-current.ko", "", source=NOTED)
    machine.file(f"/usr/src/linux-headers-{new}/Makefile", "", source=NOTED)
    machine.link(f"/lib/modules/{new}/build", f"/usr/src/linux-headers-{new}", source=NOTED)
    machine.file("/usr/src/nvidia-current-535.247.01/dkms.conf", 'PACKAGE_NAME="nvidia-current"\n', source=NOTED)
    machine.command("dkms status", f"nvidia-current/535.247.01, {new}, x86_64: installed\n")
    machine.file("/usr/sbin/dkms", "", source=SUPPOSED)
    listed = dict.fromkeys(("nvidia-driver", "nvidia-kernel-dkms", "libcuda1"), "535.247.01-1~deb12u1")
    listed |= {f"linux-headers-{new}": "6.1.153-1", f"linux-image-{new}": "6.1.153-1",
               "linux-image-6.1.0-28-amd64": "6.1.119-1"}  # fmt: skip
    distro.packages(machine, DEBIAN_12, listed, source=NOTED)
    distro.card(machine, T4, "0000:00:1e.0", source=NOTED)
    distro.unloaded(machine, "535.247.01", source=NOTED)
    distro.torch(machine, TorchWheel("2.7.1+cu126", "12.6", CU126), python="3.11")
    return distro.done_debian(machine, DEBIAN_12)


def hgx_h100_other_fabric_manager() -> Reconstruction:
    machine = ubuntu(box("noted-hgx-h100-other-fabric-manager", NOTED, python="3.10.12"), "22.04",
                     kernel="5.15.0-161-generic", source=NOTED)  # fmt: skip
    hgx(machine, "570.172.08", H100, state=2, source=NOTED, code=802)
    said = ("fabric manager NVIDIA GPU driver interface version 570.158.01 don't match with driver version 570.172.08. "
            "Please update with matching NVIDIA driver package.")  # fmt: skip
    fabric_manager(machine, "570.158.01", source=NOTED, log=(said,), failed=1)
    package(machine, "nvidia-driver-570-server-open", "570.172.08-0ubuntu0.22.04.1", source=NOTED)
    package(machine, "nvidia-fabricmanager-570", "570.158.01-0ubuntu0.22.04.1", source=NOTED)
    machine.env(http_proxy="http://proxy.example:3128", https_proxy="http://proxy.example:3128")
    machine.file("/etc/apt/apt.conf.d/95proxy", 'Acquire::http::Proxy "http://proxy.example:3128";\n', source=NOTED)
    torch_for(machine, TorchWheel("2.9.1+cu128", "12.8", CU128), python="3.10", source=NOTED)
    return parts.loader_cache(machine)


def pod_full_disk() -> Reconstruction:
    machine = inside.start("noted-pod-full-disk", NOTED, "ubuntu-22.04", source=NOTED, kernel="6.8.0-60-generic")
    inside.bus(machine, A100_PCIE)
    inside.given(machine, "565.57.01", A100_PCIE, source=NOTED)
    marks.docker(machine, *bound(machine), "/dev/sdb /workspace ext4 rw,relatime", source=NOTED,
                 NVIDIA_VISIBLE_DEVICES="all", RUNPOD_POD_ID="pod-a")  # fmt: skip
    machine.file("/workspace/keep", "", source=NOTED)
    machine.space("/", total_gib=20, free_gib=0.5)
    machine.space("/workspace", total_gib=200, free_gib=180)
    return inside.cache(machine)


def docker_l4_old_compat() -> Reconstruction:
    machine = inside.start("noted-docker-l4-old-compat", NOTED, "ubuntu-22.04", source=NOTED, kernel="6.8.0-1031-gcp")
    inside.bus(machine, L4)
    inside.given(machine, "580.126.16", L4, source=NOTED)
    parts.compat(machine, "12.9", "575.57.08", source=NOTED)
    machine.link("/usr/local/cuda", "/usr/local/cuda-12.9", source=NOTED)
    marks.docker(machine, *bound(machine), source=NOTED, NVIDIA_VISIBLE_DEVICES="all", CUDA_VERSION="12.9.1",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility",
                 LD_LIBRARY_PATH="/usr/local/cuda/compat:/usr/local/cuda/lib64")  # fmt: skip
    parts.cuda_fails(machine, "/usr/local/cuda-12.9/compat/libcuda.so.575.57.08", cuda="12.9", code=803,
                     name="CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
                     text="system has unsupported display driver / cuda driver combination")  # fmt: skip
    inside.torch(machine, "2.8.0+cu128", python="3.11")
    return inside.cache(machine)


def cudnn_of_the_system() -> Reconstruction:
    machine = distro.start("noted-cudnn-of-the-system", NOTED, UBUNTU_24, kernel="6.14.0-35-generic", source=NOTED)
    distro.works(machine, "595.58.03", (RTX_4080, "0000:01:00.0"), source=NOTED)
    site = wheels.python(machine, "/home/user-a/venv", source=NOTED)
    pins = ('nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',)
    wheels.torch(machine, site, TorchWheel("2.12.1+cu130", "13.0", CU130, requires=pins), source=NOTED)
    wheels.distribution(machine, site, "nvidia-cudnn-cu13", "9.20.0.48", source=NOTED)
    for name in ("libcudnn", "libcudnn_graph", "libcudnn_engines_precompiled"):
        machine.elf(f"{site}/nvidia/cudnn/lib/{name}.so.9", ElfSpec(soname=f"{name}.so.9", runpath="$ORIGIN"),
                    source=NOTED)  # fmt: skip
    libraries = "/usr/lib/x86_64-linux-gnu"
    for name in ("libcudnn", "libcudnn_graph", "libcudnn_engines_tensor_ir"):
        machine.elf(f"{libraries}/{name}.so.9.23.0", ElfSpec(soname=f"{name}.so.9"), source=NOTED)
        machine.link(f"{libraries}/{name}.so.9", f"{name}.so.9.23.0", source=NOTED)
    distro.packages(machine, UBUNTU_24, {"libcudnn9-cuda-13": "9.23.0.39-1"}, source=NOTED)
    distro.owned(machine, UBUNTU_24, "libcudnn9-cuda-13:amd64",
                 *(f"{libraries}/{name}.so.9{more}" for name in ("libcudnn", "libcudnn_engines_tensor_ir")
                   for more in ("", ".23.0")))  # fmt: skip
    _admin(machine)
    return distro.done(machine, UBUNTU_24)


def fedora_rocm_wheel() -> Reconstruction:
    release = fedora(42, 41)
    machine = distro.start("noted-fedora-rocm-wheel", NOTED, release, kernel="6.16.10-200.fc42.x86_64", source=NOTED)
    distro.works(machine, "580.95.05", (RTX_4090, "0000:01:00.0"), kind="proprietary", source=NOTED)
    site = _uv_venv(machine, "/home/user-a/p/.venv", "3.12")
    wheels.torch(machine, site, TorchWheel("2.9.1+rocm6.4", ""), source=NOTED)
    text = (
        "__version__ = '2.9.1+rocm6.4'\ndebug = False\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.43484'\n"
    )
    machine.file(f"{site}/torch/version.py", text, source=NOTED)
    _companions(machine, site, "2.9.1", torchvision="0.24.1+rocm6.4")
    wheels.distribution(machine, site, "pytorch-triton-rocm", "3.5.1", source=NOTED)
    _admin(machine, "wheel", 10)
    return distro.done(machine, release)


MACHINES = (mixed_gtx1080ti_rtx3090, pod_rtx5090_torch25, arch_kernel_replaced, fedora_secureboot_akmod,
            tumbleweed_half_upgraded, jetson_orin_nano_cpu, wsl2_linux_driver_inside, rocky8_hpc_no_root,
            conda_user_site_cpu, uv_project_cpu_index, debian12_old_kernel, hgx_h100_other_fabric_manager,
            pod_full_disk, docker_l4_old_compat, cudnn_of_the_system, fedora_rocm_wheel)  # fmt: skip
# Those that taught something; they are replayed with all others.
TAUGHT = (arch_kernel_replaced, pod_full_disk, docker_l4_old_compat, fedora_rocm_wheel, pod_rtx5090_torch25)
