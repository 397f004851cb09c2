"""MIG slices, WSL 2 and Jetsons with a fault of their kind, from public threads."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.driver_parts import SM_50_TO_90, TORCH_28_CU128, TORCH_211_CU130, docker, log, torch_of
from tools.machines.elf_writer import ElfSpec
from tools.machines.guest_parts import (
    Placed,
    box,
    cuda_fails,
    cuda_works,
    firmware,
    gpus_at,
    renamed,
    ubuntu,
)
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.special_parts import jetson, jetson_cache, jetson_cuda, slices, torch_of_board, wsl
from tools.machines.wheels import CU130_ARM, TorchWheel

A100_40 = GpuSpec("NVIDIA A100-SXM4-40GB", "8.0", 14, 39.6, "0x20b0")
RTX_3060 = GpuSpec("NVIDIA GeForce RTX 3060", "8.6", 5, 12.0, "0x2503")
RTX_3070 = GpuSpec("NVIDIA GeForce RTX 3070", "8.6", 5, 8.0, "0x2484")
ORIN = GpuSpec("Orin", "8.7", 0, 61.4)
XAVIER = GpuSpec("Xavier", "7.2", 0, 31.2)
THOR = GpuSpec("NVIDIA Thor", "11.0", 0, 122.8)
_TEGRA = "/usr/lib/aarch64-linux-gnu/tegra"
_NEW = tuple(f"MIG-{number}c1f7a52-0b1d-5a52-9d0e-6f0d3b0e1a0{number}" for number in range(1, 8))
_OLD_UUID = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"


def mig_uuid_gone() -> Reconstruction:
    """The slices were cut anew after a reboot; the variable still names one of before."""
    machine = box("mig-uuid-gone", "A100 with seven new 1g.5gb slices; CUDA_VISIBLE_DEVICES names an old one", root=0)
    source = "NVIDIA/k8s-device-plugin#225 (A100, 7 x 1g.5gb, gone after a reboot; its system, CentOS 7.8, is not used)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "Supermicro", "AS -4124GO-NART", guest="", source=SUPPOSED)
    gpus_at(machine, "570.133.20", Placed(A100_40, "0000:07:00.0"), source=SUPPOSED)
    slices(machine, 0, "1g.5gb", *_NEW, gib=4.75, source=source)
    cuda_fails(machine, "570.133.20", 100)
    machine.env(CUDA_VISIBLE_DEVICES=_OLD_UUID)
    machine.sources["CUDA_VISIBLE_DEVICES"] = (
        "flashinfer-ai/flashinfer#4901 (form and UUID from NVIDIA's MIG user guide); that it is stale is supposed"
    )
    smi_q(machine)
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def mig_uuid_gone_near_miss() -> Reconstruction:
    """The variable names the third slice that exists."""
    machine = renamed(mig_uuid_gone(), "The same A100 with CUDA_VISIBLE_DEVICES naming a slice that exists: works")
    machine.env(CUDA_VISIBLE_DEVICES=_NEW[2])
    cuda_works(machine, "570.133.20", GpuSpec("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0", 14, 4.75))
    return parts.loader_cache(machine)


def mig_20gb_slice() -> Reconstruction:
    """Half an A100: it works, and is smaller than what was to run in it."""
    machine = box("mig-20gb-slice", "Pod with a 3g.20gb slice of an A100: works, 22.6 GB were wanted")
    source = ("NVIDIA-AI-Blueprints/rag#51 (A100-SXM4-40GB, MIG 3g.20gb, Requested amount of GPU memory 22649242112 "
              "bytes could not be allocated)")  # fmt: skip
    ubuntu(machine, "22.04", source=SUPPOSED)
    gpus_at(machine, "570.133.20", Placed(A100_40, "0000:07:00.0"), source=source)
    slices(machine, 0, "3g.20gb", "MIG-7ec5b605-15c1-5e16-a4df-44642e0eaa8f", gib=19.62, source=source)
    cuda_works(machine, "570.133.20", GpuSpec("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "8.0", 14, 19.62))
    machine.env(KUBERNETES_SERVICE_HOST="set", NVIDIA_VISIBLE_DEVICES="MIG-7ec5b605-15c1-5e16-a4df-44642e0eaa8f")
    group = "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n"
    machine.file("/proc/1/cgroup", group, source=SUPPOSED)
    machine.without("/proc/1/comm", "/usr/bin/systemctl", f"/lib/modules/{machine.host.kernel_release}")
    smi_q(machine)
    torch_of(machine, TORCH_28_CU128)
    return parts.loader_cache(machine)


def mig_20gb_slice_near_miss() -> Reconstruction:
    """The whole GPU instead of a slice."""
    machine = renamed(mig_20gb_slice(), "The same pod with the whole A100 and MIG off: works")
    machine.without("/dev/nvidia-caps", "/proc/driver/nvidia/capabilities", "/proc/modules", "/sys/bus/pci/devices")
    gpus_at(machine, "570.133.20", Placed(A100_40, "0000:07:00.0"), source=SUPPOSED)
    cuda_works(machine, "570.133.20", A100_40)
    machine.env(NVIDIA_VISIBLE_DEVICES="GPU-00000000-0000-0000-0000-000000000000")
    smi_q(machine)
    return parts.loader_cache(machine)


def wsl2_windows_driver_531() -> Reconstruction:
    """WSL 2 on a Windows driver of CUDA 12.1 with a torch for CUDA 13."""
    about = "WSL 2 with Windows driver 531.61 (CUDA 12.1) and torch 2.11.0+cu130"
    machine = box("wsl2-windows-driver-531", about, root=0)
    source = "jax-ml/jax#16038 (NVIDIA-SMI 530.46, Driver Version: 531.61, CUDA Version: 12.1)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    wsl(machine, RTX_3060, "531.61", kernel="5.15.90.1-microsoft-standard-WSL2", cuda="12.1", source=source)
    torch_of(machine, TORCH_211_CU130, source="callummcdougall/ARENA_3.0#303 (2.11.0+cu130, driver too old, bare pip)")
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def wsl2_windows_driver_531_near_miss() -> Reconstruction:
    """Windows got driver 581.57."""
    machine = renamed(wsl2_windows_driver_531(), "The same WSL 2 with Windows driver 581.57 (CUDA 13.0): works")
    wsl(machine, RTX_3060, "581.57", kernel="5.15.90.1-microsoft-standard-WSL2", cuda="13.0", source=SUPPOSED)
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def wsl2_stubs_first() -> Reconstruction:
    """A container in WSL 2 whose LD_LIBRARY_PATH has the toolkit's stubs first."""
    machine = box("wsl2-stubs-first", "Container in WSL 2 with CUDA's stubs first in LD_LIBRARY_PATH: cuInit gives 34")
    source = "xmake-io/xmake#4686 (720ce3a659a2 5.15.90.1-microsoft-standard-WSL2, /usr/local/cuda/lib64/stubs)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    wsl(machine, RTX_3070, "546.01", kernel="5.15.90.1-microsoft-standard-WSL2", cuda="12.3", source=source)
    docker(machine, source=f"{source}; the host name is a container's")
    stubs = "/usr/local/cuda/lib64/stubs"
    machine.elf(f"{stubs}/libcuda.so", ElfSpec(soname="libcuda.so.1", needed=("libc.so.6",)), source=source)
    machine.link(f"{stubs}/libcuda.so.1", "libcuda.so", source="supposed: the link that many images add for the linker")
    machine.env(LD_LIBRARY_PATH=f"{stubs}:/usr/local/cuda/lib64")
    cuda_fails(machine, "550.54", 34, path=f"{stubs}/libcuda.so")
    machine.child("libcuda", {**machine.children["libcuda"].answer, "version_code": 34, "version": 0})
    torch_of(machine, TorchWheel("2.5.1+cu121", "12.1", SM_50_TO_90))
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def wsl2_stubs_first_near_miss() -> Reconstruction:
    """The stubs are out of the path."""
    machine = renamed(wsl2_stubs_first(), "The same container without the stubs in LD_LIBRARY_PATH: works")
    machine.env(LD_LIBRARY_PATH="/usr/local/cuda/lib64")
    parts.cuda_answers(machine, "/usr/lib/wsl/lib/libcuda.so.1.1", cuda="12.3", specs=(RTX_3070,))
    return machine


def _orin_r35(name: str, about: str) -> Reconstruction:
    machine = box(name, about, arch="aarch64", root=0, python="3.10.12")
    source = "pinokiocomputer/pinokio#1027 (AGX Orin, L4T R35.4.1, JetPack 5.1.2, Python 3.10 venv)"
    ubuntu(machine, "20.04", source=f"{source}; Ubuntu of JetPack 5")
    jetson(machine, "35.4.1", board="Jetson AGX Orin Developer Kit", chip="tegra234", kernel="5.10.120-tegra",
           date="Tue Aug  1 19:57:35 UTC 2023", source=source)  # fmt: skip
    jetson_cuda(machine, ORIN, cuda="11.4", folder=_TEGRA, source=SUPPOSED)
    machine.file("/usr/bin/python3.8", "", source=SUPPOSED)
    return machine


def orin_r35_pip_torch() -> Reconstruction:
    """JetPack 5 with pip's torch in a Python 3.10: NVIDIA's wheels for it are for Python 3.8."""
    machine = _orin_r35("orin-r35-pip-torch", "Jetson AGX Orin with L4T 35.4.1, Python 3.10 and PyPI's torch (CPU)")
    thread = "pinokiocomputer/pinokio#1027 (pip install torch: a generic manylinux version); its build is supposed"
    site = wheels.python(machine, "/home/user-a/env", version="3.10", source=thread)
    wheel = TorchWheel("2.9.1+cpu", "", recorded="2.9.1", tag="cp310-cp310-manylinux_2_28_aarch64")
    wheels.torch(machine, site, wheel, source=thread)
    return jetson_cache(machine, cuda="11.4", folder=_TEGRA)


def orin_r35_pip_torch_near_miss() -> Reconstruction:
    """NVIDIA's wheel for JetPack 5.1.2 in a Python 3.8."""
    machine = _orin_r35("orin-r35-pip-torch", "")
    renamed(machine, "The same Orin with NVIDIA's torch 2.1.0a0 for JetPack 5.1.2 in a Python 3.8: works")
    site = wheels.python(machine, "/home/user-a/env", version="3.8", source=SUPPOSED)
    wheel = TorchWheel("2.1.0a0+41361538.nv23.06", "11.4", ("sm_72", "sm_87"), tag="cp38-cp38-linux_aarch64")
    torch_of_board(machine, site, wheel, runtime="libcudart.so.11.0", source="docs.nvidia.com/deeplearning/frameworks/"
                   "install-pytorch-jetson-platform (JetPack 5.1.2)")  # fmt: skip
    machine.host = replace(machine.host, python_version="3.8.10")
    return jetson_cache(machine, cuda="11.4", folder=_TEGRA)


def _thor_container(name: str, about: str) -> Reconstruction:
    machine = box(name, about, arch="aarch64")
    ubuntu(machine, "24.04", source=SUPPOSED)
    machine.host = replace(machine.host, kernel_release="6.8.12-tegra")
    thread = "pollen-robotics/microduck_rl#39 (6.8.12-tegra on Thor)"
    machine.file("/proc/sys/kernel/osrelease", "6.8.12-tegra\n", source=thread)
    machine.without("/proc/1/comm", "/usr/bin/systemctl", "/lib/modules")
    docker(machine, source="flashrt-project/FlashRT#7 (docker run on Thor)")
    site = wheels.system_python(machine, source=SUPPOSED)
    wheel = TorchWheel("2.9.1+cu130", "13.0", CU130_ARM, tag="cp312-cp312-manylinux_2_28_aarch64")
    wheels.torch(machine, site, wheel, source=SUPPOSED)
    return machine


def thor_container_no_runtime() -> Reconstruction:
    """A container on a Thor started without --runtime=nvidia: no driver file was mounted."""
    about = "Docker on a Jetson Thor without --runtime=nvidia: no libcuda"
    machine = _thor_container("thor-container-no-runtime", about)
    return parts.loader_cache(machine)


def thor_container_no_runtime_near_miss() -> Reconstruction:
    """The same container with the runtime that mounts the board's files."""
    machine = _thor_container("thor-container-no-runtime", "")
    renamed(machine, "The same container started with --runtime=nvidia: works")
    source = "flashrt-project/FlashRT#8 (devices.csv and drivers.csv are mounted)"
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    jetson(machine, "38.2.0", board="NVIDIA Jetson AGX Thor Developer Kit", chip="tegra264", kernel="6.8.12-tegra",
           date="Fri Aug 22 00:55:42 UTC 2025", source=source)  # fmt: skip
    jetson_cuda(machine, THOR, cuda="13.0", folder=folder, source=source)
    machine.without("/proc/device-tree", "/var/lib/dpkg")
    for node in ("nvidiactl", "nvidia0", "nvidia-uvm"):
        machine.file(f"/dev/{node}", "", source=SUPPOSED)
    return jetson_cache(machine, cuda="13.0", folder=folder)


def xavier_no_libcuda_link() -> Reconstruction:
    """A minimal root file system: libcuda.so.1.1 is there, the name that programs ask for is not."""
    machine = box("xavier-no-libcuda-link", "Jetson AGX Xavier with L4T 32.7.2 and no libcuda.so.1", arch="aarch64",
                  root=0, python="3.10.12")  # fmt: skip
    source = "NVIDIA/nvidia-container-toolkit#231 (AGX Xavier, L4T r32.7.2, libcuda.so and libcuda.so.1.1, no .so.1)"
    ubuntu(machine, "18.04", source=SUPPOSED)
    jetson(machine, "32.7.2", board="Jetson-AGX", chip="tegra194", kernel="4.9.253-tegra",
           date="Sun Apr 17 09:53:50 UTC 2022", source=source)  # fmt: skip
    jetson_cuda(machine, XAVIER, cuda="10.2", folder=_TEGRA, source=source)
    machine.without(f"{_TEGRA}/libcuda.so.1")
    machine.child("libcuda", {"load_error": "libcuda.so.1: cannot open shared object file: No such file or directory"})
    site = wheels.python(machine, "/home/user-a/env", version="3.6", source=SUPPOSED)
    wheel = TorchWheel("1.10.0", "10.2", ("sm_53", "sm_62", "sm_72"), tag="cp36-cp36m-linux_aarch64")
    torch_of_board(machine, site, wheel, runtime="libcudart.so.10.2", source=SUPPOSED)
    runtime = "/usr/local/cuda-10.2/targets/aarch64-linux/lib/libcudart.so.10.2"
    machine.elf(runtime, ElfSpec(soname="libcudart.so.10.2"), source=SUPPOSED)
    return parts.loader_cache(machine, runtime)


def xavier_no_libcuda_link_near_miss() -> Reconstruction:
    """ldconfig made the link."""
    machine = renamed(xavier_no_libcuda_link(), "The same Xavier with the link libcuda.so.1: works")
    machine.link(f"{_TEGRA}/libcuda.so.1", "libcuda.so.1.1", source=SUPPOSED)
    parts.cuda_answers(machine, f"{_TEGRA}/libcuda.so.1.1", cuda="10.2", specs=(XAVIER,))
    return jetson_cache(machine, cuda="10.2", folder=_TEGRA)


MACHINES = (mig_uuid_gone, mig_20gb_slice, wsl2_windows_driver_531, wsl2_stubs_first, orin_r35_pip_torch,
            thor_container_no_runtime, xavier_no_libcuda_link)  # fmt: skip
NEAR_MISSES = (mig_uuid_gone_near_miss, mig_20gb_slice_near_miss, wsl2_windows_driver_531_near_miss,
               wsl2_stubs_first_near_miss, orin_r35_pip_torch_near_miss, thor_container_no_runtime_near_miss,
               xavier_no_libcuda_link_near_miss)  # fmt: skip
