"""MIG slices, WSL and Jetsons with a fault of their kind, from public threads: second half."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.driver_parts import SM_50_TO_90, TORCH_26_CU124, TORCH_211_CU130, log, torch_of
from tools.machines.guest_parts import (
    Placed,
    box,
    cuda_fails,
    cuda_works,
    firmware,
    gpus_at,
    package,
    renamed,
    ubuntu,
)
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.smi_text import smi_q
from tools.machines.special_parts import jetson, jetson_cache, jetson_cuda, slices, torch_of_board, wsl
from tools.machines.wheels import CU130_ARM, TorchWheel

A100_80 = GpuSpec("NVIDIA A100-SXM4-80GB", "8.0", 14, 79.2, "0x20b2")
A100_40 = GpuSpec("NVIDIA A100-SXM4-40GB", "8.0", 14, 39.6, "0x20b0")
GTX_1080_TI = GpuSpec("NVIDIA GeForce GTX 1080 Ti", "6.1", 5, 11.0, "0x1b06")
XAVIER_NX = GpuSpec("Xavier", "7.2", 0, 14.8)
THOR = GpuSpec("NVIDIA Thor", "11.0", 0, 122.8)
_TEGRA = "/usr/lib/aarch64-linux-gnu/tegra"
_TWO = (Placed(A100_80, "0000:07:00.0"), Placed(A100_80, "0000:0f:00.0"))
_FIRST, _SECOND = "MIG-2d9d5e2b-4d1b-5e31-9c3f-2b64f83d0a11", "MIG-8a1f9d77-60c5-5a8a-8b8e-95f6a2d41f02"


def mig_two_slices() -> Reconstruction:
    """Two slices on two GPUs: NVML counts two, a CUDA process sees one."""
    machine = box("mig-two-slices", "Pod with two 3g.40gb slices of A100s: torch counts two, CUDA opens one")
    source = "pytorch/pytorch#130181 (2 x A100-SXM4-80GB MIG 3g.40gb, 2.5.0.dev20240705+cu121, INTERNAL ASSERT FAILED)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    machine.env(KUBERNETES_SERVICE_HOST="set", NVIDIA_VISIBLE_DEVICES=f"{_FIRST},{_SECOND}")
    machine.without("/proc/1/comm", "/usr/bin/systemctl", f"/lib/modules/{machine.host.kernel_release}")
    gpus_at(machine, "550.54.15", *_TWO, source=f"{source}; the driver is supposed", kind="proprietary")
    slices(machine, 0, "3g.40gb", _FIRST, gib=39.5, source=source)
    slices(machine, 1, "3g.40gb", _SECOND, gib=39.5, source=source)
    cuda_works(machine, "550.54.15", GpuSpec("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "8.0", 14, 39.5))
    smi_q(machine)
    torch_of(machine, TorchWheel("2.5.0.dev20240705+cu121", "12.1", SM_50_TO_90), source=source)
    return parts.loader_cache(machine)


def mig_two_slices_near_miss() -> Reconstruction:
    """One slice is named: nobody is misled."""
    machine = renamed(mig_two_slices(), "The same pod with CUDA_VISIBLE_DEVICES naming the first slice: works")
    return machine.env(CUDA_VISIBLE_DEVICES=_FIRST)


def mig_left_on_one_gpu() -> Reconstruction:
    """MIG stayed on for the first of two GPUs and its slices are gone since the reboot."""
    machine = box("mig-left-on-one-gpu", "Two A100: gpu-0 has MIG on and no slice, gpu-1 works", root=0)
    source = "NVIDIA/k8s-device-plugin#225 (the mode stays over a reboot, the slices do not)"
    ubuntu(machine, "22.04", source=SUPPOSED)
    firmware(machine, "Supermicro", "AS -4124GO-NART", guest="", source=SUPPOSED)
    places = (Placed(A100_40, "0000:07:00.0"), Placed(A100_40, "0000:0f:00.0"))
    gpus_at(machine, "580.95.05", *places, source=f"{source}; two GPUs are supposed")
    slices(machine, 0, "1g.5gb", gib=4.75, source=source)
    cuda_works(machine, "580.95.05", A100_40)
    smi_q(machine)
    log(machine, source=SUPPOSED)
    torch_of(machine, TORCH_211_CU130)
    return parts.loader_cache(machine)


def mig_left_on_one_gpu_near_miss() -> Reconstruction:
    """MIG is off on both."""
    machine = renamed(mig_left_on_one_gpu(), "The same two A100 with MIG off: CUDA counts two")
    machine.without("/dev/nvidia-caps", "/proc/driver/nvidia/capabilities", "/proc/modules")
    places = (Placed(A100_40, "0000:07:00.0"), Placed(A100_40, "0000:0f:00.0"))
    gpus_at(machine, "580.95.05", *places, source=SUPPOSED)
    cuda_works(machine, "580.95.05", A100_40, A100_40)
    smi_q(machine)
    return parts.loader_cache(machine)


def wsl1_driver_inside() -> Reconstruction:
    """WSL 1 with Ubuntu's driver packages: there is no GPU in WSL 1, whatever is installed."""
    machine = box("wsl1-driver-inside", "WSL 1 with nvidia-driver-440 installed inside", root=0, python="3.10.12")
    source = "microsoft/WSL#5554 (4.4.0-19041-Microsoft, apt install nvidia-driver-440 nvidia-utils-440, 440.100)"
    ubuntu(machine, "20.04", source=f"{source} (Ubuntu-20.04)")
    kernel = "4.4.0-19041-Microsoft"
    machine.host = replace(machine.host, kernel_release=kernel)
    machine.file("/proc/sys/kernel/osrelease", f"{kernel}\n", source=source)
    machine.file("/proc/version", f"Linux version {kernel} (Microsoft@Microsoft.com) (gcc version 5.4.0 (GCC) )\n",
                 source=source)  # fmt: skip
    machine.without("/lib/modules", "/proc/1/comm", "/usr/bin/systemctl")
    machine.env(WSL_DISTRO_NAME="Ubuntu-20.04")
    parts.user_driver(machine, "440.100", source=source)
    for name in ("nvidia-driver-440", "nvidia-utils-440", "nvidia-dkms-440", "libnvidia-compute-440"):
        package(machine, name, "440.100-0ubuntu0.20.04.1", source=source)
    machine.file("/usr/bin/nvidia-smi", "", source=source)
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.440.100"
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"}, "library": library})
    machine.every_call_of("nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
                          "Make sure that the latest NVIDIA driver is installed and running.\n", status=9)  # fmt: skip
    cuda_fails(machine, "440.100", 100)
    site = wheels.python(machine, "/home/user-a/env", version="3.8", source=SUPPOSED)
    wheel = TorchWheel("2.0.1+cu118", "11.8", SM_50_TO_90, tag="cp38-cp38-linux_x86_64")
    wheels.torch(machine, site, wheel, source=SUPPOSED)
    return parts.loader_cache(machine)


def wsl1_driver_inside_near_miss() -> Reconstruction:
    """WSL 2, the driver in Windows alone."""
    machine = box("wsl1-driver-inside", "", root=0, python="3.10.12")
    renamed(machine, "The same distribution as WSL 2 with the driver in Windows alone: works")
    ubuntu(machine, "20.04", source=SUPPOSED)
    wsl(machine, GTX_1080_TI, "531.61", kernel="5.15.90.1-microsoft-standard-WSL2", cuda="12.1", source=SUPPOSED)
    site = wheels.python(machine, "/home/user-a/env", version="3.8", source=SUPPOSED)
    wheel = TorchWheel("2.0.1+cu118", "11.8", SM_50_TO_90, tag="cp38-cp38-linux_x86_64")
    wheels.torch(machine, site, wheel, source=SUPPOSED)
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def wsl2_cuda_metapackage() -> Reconstruction:
    """NVIDIA's package `cuda` brought a Linux driver into WSL 2: its libcuda is found first."""
    machine = box("wsl2-cuda-metapackage", "WSL 2 with the package cuda installed inside: a Linux libcuda 560 first",
                  root=0)  # fmt: skip
    source = "microsoft/WSL#6340 (apt-get -y install cuda in WSL 2, GTX 1080 Ti); releases supposed, as of 2024"
    ubuntu(machine, "22.04", source=SUPPOSED)
    wsl(machine, GTX_1080_TI, "560.94", kernel="5.15.153.1-microsoft-standard-WSL2", cuda="12.6", source=SUPPOSED)
    parts.user_driver(machine, "560.35.03", source=source)
    folder = "/usr/lib/x86_64-linux-gnu"
    for name in ("cuda", "cuda-drivers", "nvidia-driver-560-open"):
        package(machine, name, "560.35.03-0ubuntu1", source=source)
    files = (f"{folder}/libcuda.so.560.35.03", f"{folder}/libcuda.so.1")
    package(machine, "libnvidia-compute-560", "560.35.03-0ubuntu1", *files, source=source)
    library = f"{folder}/libnvidia-ml.so.560.35.03"
    machine.child("nvml", {"init": {"code": 9, "error": "Driver Not Loaded"}, "library": library})
    cuda_fails(machine, "560.35.03", 100)
    machine.sources["the libcuda child"] = "numba/numba#7106 (the wrong libcuda gives CUDA_ERROR_NO_DEVICE)"
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def wsl2_cuda_metapackage_near_miss() -> Reconstruction:
    """cuda-toolkit instead of cuda: no driver inside."""
    machine = box("wsl2-cuda-metapackage", "", root=0)
    renamed(machine, "The same WSL 2 with cuda-toolkit-12-6 alone: works")
    ubuntu(machine, "22.04", source=SUPPOSED)
    wsl(machine, GTX_1080_TI, "560.94", kernel="5.15.153.1-microsoft-standard-WSL2", cuda="12.6", source=SUPPOSED)
    package(machine, "cuda-toolkit-12-6", "12.6.3-1", source=SUPPOSED)
    torch_of(machine, TORCH_26_CU124)
    return parts.loader_cache(machine, "/usr/lib/wsl/lib/libcuda.so.1")


def _xavier_nx(name: str, about: str) -> Reconstruction:
    machine = box(name, about, arch="aarch64", root=0, python="3.8.10")
    source = "TJU-Aerial-Robotics/YOPO#79 (Xavier NX, JetPack 5.1.5, CUDA 11.4)"
    ubuntu(machine, "20.04", source=f"{source}; Ubuntu of JetPack 5")
    jetson(machine, "35.6.1", board="NVIDIA Jetson Xavier NX Developer Kit", chip="tegra194", kernel="5.10.216-tegra",
           date="Wed Feb 12 18:44:17 UTC 2025", source=source)  # fmt: skip
    return jetson_cuda(machine, XAVIER_NX, cuda="11.4", folder=_TEGRA, source=SUPPOSED)


def xavier_nx_cpu_torch() -> Reconstruction:
    """pip install torch==2.4.1 from the cu121 index gave a CPU build on a Xavier."""
    machine = _xavier_nx("xavier-nx-cpu-torch", "Jetson Xavier NX with JetPack 5.1.5 and torch 2.4.1 for CPU")
    site = wheels.python(machine, "/home/user-a/env", version="3.8", source=SUPPOSED)
    wheel = TorchWheel("2.4.1", "", tag="cp38-cp38-manylinux2014_aarch64")
    wheels.torch(machine, site, wheel, source="TJU-Aerial-Robotics/YOPO#79 (torch 2.4.1 of whl/cu121: a CPU build)")
    return jetson_cache(machine, cuda="11.4", folder=_TEGRA)


def xavier_nx_cpu_torch_near_miss() -> Reconstruction:
    """NVIDIA's last wheel for JetPack 5."""
    machine = _xavier_nx("xavier-nx-cpu-torch", "")
    renamed(machine, "The same Xavier NX with NVIDIA's torch 2.1.0a0 for JetPack 5: works")
    site = wheels.python(machine, "/home/user-a/env", version="3.8", source=SUPPOSED)
    wheel = TorchWheel("2.1.0a0+41361538.nv23.06", "11.4", ("sm_72", "sm_87"), tag="cp38-cp38-linux_aarch64")
    torch_of_board(machine, site, wheel, runtime="libcudart.so.11.0", source=SUPPOSED)
    return jetson_cache(machine, cuda="11.4", folder=_TEGRA)


def _thor(name: str, about: str, wheel: TorchWheel) -> Reconstruction:
    machine = box(name, about, arch="aarch64", root=0)
    source = "pollen-robotics/microduck_rl#38, #39 (AGX Thor, L4T R38, CUDA 13.0, driver 580, sm_110, 6.8.12-tegra)"
    ubuntu(machine, "24.04", source=SUPPOSED)
    jetson(machine, "38.4.0", board="NVIDIA Jetson AGX Thor Developer Kit", chip="tegra264", kernel="6.8.12-tegra",
           date="Thu Dec 25 10:00:00 UTC 2025", source=f"{source}; the revision is supposed")  # fmt: skip
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    jetson_cuda(machine, THOR, cuda="13.0", folder=folder, source=source)
    machine.file("/sys/module/nvidia/version", "580.00\n", source=source)
    machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.00  "
                 "Release Build\n", source=source)  # fmt: skip
    for node in ("nvidiactl", "nvidia0", "nvidia-uvm"):
        machine.file(f"/dev/{node}", "", source=SUPPOSED)
    site = wheels.python(machine, "/home/user-a/microduck_rl/.venv", source=source)
    wheels.torch(machine, site, wheel, source=source)
    return jetson_cache(machine, cuda="13.0", folder=folder)


def thor_torch_cu129() -> Reconstruction:
    """uv took the wheel for Arm servers with CUDA 12.9, which has no code for a Thor."""
    wheel = TorchWheel("2.9.1+cu129", "12.9", ("sm_80", "sm_90", "sm_100", "sm_120"),
                       tag="cp312-cp312-manylinux_2_28_aarch64")  # fmt: skip
    return _thor("thor-torch-cu129", "Jetson AGX Thor with torch 2.9.1+cu129, made for Arm servers", wheel)


def thor_torch_cu129_near_miss() -> Reconstruction:
    """The wheel of the same version for CUDA 13."""
    wheel = TorchWheel("2.9.1+cu130", "13.0", CU130_ARM, tag="cp312-cp312-manylinux_2_28_aarch64")
    machine = _thor("thor-torch-cu129", "", wheel)
    return renamed(machine, "The same Thor with torch 2.9.1+cu130, which has code for 11.0: works")


MACHINES = (mig_two_slices, mig_left_on_one_gpu, wsl1_driver_inside, wsl2_cuda_metapackage, xavier_nx_cpu_torch,
            thor_torch_cu129)  # fmt: skip
NEAR_MISSES = (mig_two_slices_near_miss, mig_left_on_one_gpu_near_miss, wsl1_driver_inside_near_miss,
               wsl2_cuda_metapackage_near_miss, xavier_nx_cpu_torch_near_miss, thor_torch_cu129_near_miss)  # fmt: skip
