"""Machines where the torch wheel is the matter: built for no GPU, for others, not there, or not the one imported."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import companion_machines, parts, wheels
from tools.machines.compat_machines import H200, gpu_box
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import H100, RTX_5090, SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.wheels import CU130, CU130_ARM, TorchWheel

V100 = GpuSpec("Tesla V100-PCIE-16GB", "7.0", 2, 16.0, "0x1db4")
GB10 = GpuSpec("NVIDIA GB10", "12.1", 14, 119.7, "0x2e12")
GH200 = GpuSpec("NVIDIA GH200 480GB", "9.0", 14, 95.6, "0x2342")
RTX_3090 = GpuSpec("NVIDIA GeForce RTX 3090", "8.6", 5, 24.0, "0x2204")
THOR = GpuSpec("NVIDIA Thor", "11.0", 0, 122.8)
ORIN = GpuSpec("Orin", "8.7", 0, 61.4)
_ARM_TAG = "cp312-cp312-manylinux_2_28_aarch64"


def arm_box(name: str, about: str, *, driver: str, gpu: GpuSpec, cuda: str, source: str) -> Reconstruction:
    """An Arm server or desktop with one GPU and a driver that works."""
    machine = Reconstruction(name, about, host=replace(HOST, arch="aarch64", kernel_release="6.14.0-1013-nvidia"))
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    parts.driver(machine, driver, source=source)
    parts.gpus(machine, driver, gpu, source=source)
    library = f"/usr/lib/aarch64-linux-gnu/libcuda.so.{driver}"
    return parts.cuda_answers(machine, library, cuda=cuda, specs=(gpu,))


def jetson(machine: Reconstruction, l4t: str, *, board: str, chip: str, source: str) -> Reconstruction:
    """What names a Jetson: its release file, the device tree, and device nodes that no discrete GPU has."""
    major, minor = l4t.split(".", 1)
    text = f"# R{major} (release), REVISION: {minor}, GCID: 1, BOARD: generic, EABI: aarch64, DATE: x\n"
    machine.file("/etc/nv_tegra_release", text, source=source)
    machine.file("/proc/device-tree/model", f"{board}\0", source=source)
    machine.file("/proc/device-tree/compatible", f"nvidia,{chip}\0", source=source)
    machine.file("/dev/nvmap", "", source=SUPPOSED)
    return machine


def v100_torch_cu130() -> Reconstruction:
    """A cu130 wheel has no code for Volta."""
    thread = (
        "vllm-project/vllm#19185 (Tesla V100-PCIE-16GB, capability 7.0, minimum 7.5), Comfy-Org/ComfyUI#16438 (cu130)"
    )
    machine = gpu_box(
        "v100-torch-cu130",
        "V100 with driver 580.95.05 and torch 2.9.0+cu130, which starts at capability 7.5",
        driver="580.95.05",
        gpu=V100,
        cuda="13.0",
        source=f"{thread}; the driver is supposed",
    )
    parts.driver(machine, "580.95.05", kind="proprietary", source=SUPPOSED)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.9.0+cu130", "13.0", CU130), source=thread)
    wheels.distribution(machine, site, "triton", "3.5.0", source=SUPPOSED)
    return parts.loader_cache(machine)


def t4_driver_418_cu102() -> Reconstruction:
    """Before CUDA 11 no driver runs a later release than its own, of the same major or not."""
    thread = "daniilidis-group/neural_renderer#121 (torch 1.7.1 for CUDA 10.2, found version 10010)"
    machine = gpu_box(
        "t4-driver-418-cu102",
        "T4 with driver 418.226.00, whose CUDA is 10.1, and torch 1.7.1 for CUDA 10.2: driver too old",
        driver="418.226.00",
        gpu=GpuSpec("Tesla T4", "7.5", 2, 14.7, "0x1eb8"),
        cuda="10.1",
        source=f"{thread}; GPU and driver are supposed, the driver's CUDA is told",
    )
    parts.driver(machine, "418.226.00", kind="proprietary", source=SUPPOSED)
    site = wheels.python(machine, "/opt/venv", version="3.8", source=SUPPOSED)
    archs = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75")
    wheel = TorchWheel("1.7.1", "10.2", archs, tag="cp38-cp38-linux_x86_64")
    wheels.torch(machine, site, wheel, source=f"{thread}; what it is compiled for is supposed")
    return parts.loader_cache(machine)


def gb10_torch_cu130() -> Reconstruction:
    """torch 2.10 warns about capability 12.1 and runs all the same: code for 12.0 runs on it."""
    thread = "pytorch/pytorch#172629, pytorch/pytorch#164590 (the warning is incorrect: 12.0 code runs on 12.1)"
    machine = arm_box(
        "gb10-torch-cu130",
        "DGX Spark (GB10) with torch 2.10.0+cu130: warns that 12.1 is above 12.0, and works",
        driver="580.95.05",
        gpu=GB10,
        cuda="13.0",
        source=thread,
    )
    site = wheels.python(machine, "/home/user/.venv", source=SUPPOSED)
    archs = ("sm_80", "sm_90", "sm_100", "sm_110", "sm_120")
    wheel = TorchWheel("2.10.0+cu130", "13.0", archs, requires=("triton==3.6.0",), tag=_ARM_TAG)
    wheels.torch(machine, site, wheel, source=f"{thread}; sm_110 in the list is supposed")
    wheels.distribution(machine, site, "triton", "3.6.0", source="supposed: the Triton that torch 2.10.0 pins")
    return parts.loader_cache(machine)


def gb10_triton_3_5() -> Reconstruction:
    """The ptxas in Triton 3.5 does not know sm_121a; the toolkit's does."""
    thread = "triton-lang/triton#8539 (DGX Spark, torch 2.10.0.dev20251024+cu130, pytorch-triton 3.5.0+git7416ffcb)"
    machine = arm_box(
        "gb10-triton-3-5",
        "DGX Spark (GB10) with a nightly whose Triton 3.5 cannot compile for sm_121a",
        driver="580.95.05",
        gpu=GB10,
        cuda="13.0",
        source=f"{thread}; the driver is supposed",
    )
    parts.toolkit(machine, "13.0.88", source=f"{thread} (/usr/local/cuda/bin/ptxas is there)")
    site = wheels.python(machine, "/home/user/miniforge3/envs/pt10", version="3.10", source=thread)
    pins = ("pytorch-triton==3.5.0+git7416ffcb",)
    wheel = TorchWheel("2.10.0.dev20251024+cu130", "13.0", CU130_ARM, requires=pins, tag=_ARM_TAG)
    wheels.torch(machine, site, wheel, source=thread)
    wheels.distribution(machine, site, "pytorch-triton", "3.5.0+git7416ffcb", source=thread)
    return parts.loader_cache(machine)


def thor_torch_cu128() -> Reconstruction:
    """cu128 for Arm has code for servers and no PTX: not one operation runs on a Thor."""
    thread = "OpenRAL/openral#167 (torch 2.9.1+cu128: sm_80, sm_90, sm_100, sm_120; L4T R38.4, CUDA 13.0)"
    machine = arm_box(
        "thor-torch-cu128",
        "Jetson AGX Thor with torch 2.9.1+cu128, whose code starts on no Thor",
        driver="580.00",
        gpu=THOR,
        cuda="13.0",
        source=thread,
    )
    machine.host = replace(machine.host, kernel_release="6.8.12-tegra")
    jetson(machine, "38.4.0", board="NVIDIA Jetson AGX Thor Developer Kit", chip="tegra264", source=thread)
    site = wheels.python(machine, "/home/user/openral/.venv", source=SUPPOSED)
    archs = ("sm_80", "sm_90", "sm_100", "sm_120")
    wheels.torch(machine, site, TorchWheel("2.9.1+cu128", "12.8", archs, tag=_ARM_TAG), source=thread)
    return parts.loader_cache(machine)


def orin_torch_pypi() -> Reconstruction:
    """pip install torch on an Orin brings PyPI's CPU wheel; no official wheel has code for capability 8.7."""
    thread = "nvidia-cosmos/cosmos-reason2#45 (AGX Orin, JetPack 6.2, L4T R36.4, CUDA 12.6, Jetson AI Lab index)"
    issue = "pinokiocomputer/pinokio#1027 (pip install torch installs a generic manylinux version without CUDA)"
    machine = Reconstruction(
        "orin-torch-pypi",
        "Jetson AGX Orin with JetPack 6.2 and PyPI's torch 2.9.0, which has no CUDA",
        host=replace(HOST, arch="aarch64", kernel_release="5.15.148-tegra", python_version="3.10.12"),
    )
    parts.ubuntu(machine, "22.04", source=thread)
    jetson(machine, "36.4.3", board="NVIDIA Jetson AGX Orin Developer Kit", chip="tegra234", source=thread)
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    machine.elf(f"{folder}/libcuda.so.1.1", ElfSpec(soname="libcuda.so.1", needed=("libc.so.6",)), source=SUPPOSED)
    machine.link(f"{folder}/libcuda.so.1", "libcuda.so.1.1", source=SUPPOSED)
    machine.file("/sys/module/nvidia/version", "540.4.0\n", source="supposed: the module of L4T R36.4")
    machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  "
                 "Release Build\n", source="supposed: the module of L4T R36.4")  # fmt: skip
    for node in ("nvidiactl", "nvidia0"):
        machine.file(f"/dev/{node}", "", source=SUPPOSED)
    parts.cuda_answers(machine, f"{folder}/libcuda.so.1.1", cuda="12.6", specs=(ORIN,))
    site = wheels.python(machine, "/home/user/venv", version="3.10", source=issue)
    tag = "cp310-cp310-manylinux_2_28_aarch64"
    wheels.torch(machine, site, TorchWheel("2.9.0+cpu", "", recorded="2.9.0", tag=tag), source=issue)
    return parts.loader_cache(machine, f"{folder}/libcuda.so.1")


def gh200_torch_pypi() -> Reconstruction:
    """PyPI's torch 2.9.0 for Arm has no CUDA: the server's GPU stays idle."""
    thread = "pytorch/pytorch#160162 (GH200: pip install torch gives the CPU wheel), pytorch/pytorch#168065"
    machine = arm_box(
        "gh200-torch-pypi",
        "GH200 server with PyPI's torch 2.9.0 for aarch64, which has no CUDA",
        driver="580.95.05",
        gpu=GH200,
        cuda="13.0",
        source=f"{thread}; the driver is supposed",
    )
    site = wheels.python(machine, "/home/user/venv", source=SUPPOSED)
    wheel = TorchWheel("2.9.0+cpu", "", recorded="2.9.0", tag=_ARM_TAG)
    wheels.torch(machine, site, wheel, source="version.py and METADATA of the PyPI wheel torch 2.9.0 for aarch64")
    return parts.loader_cache(machine)


def gpu_box_cpu_wheel() -> Reconstruction:
    """A wheel from the CPU index on a machine with a GPU, beside an xFormers built for the CUDA one."""
    thread = "facebookresearch/xformers#982 (PyTorch 2.2.0+cu121 with CUDA 1201, you have 2.2.0+cpu)"
    machine = gpu_box(
        "gpu-box-cpu-wheel",
        "RTX 3090 with torch 2.2.0+cpu: nvidia-smi works, torch sees nothing",
        driver="550.54.15",
        gpu=RTX_3090,
        cuda="12.4",
        source=f"{thread}; GPU and driver are supposed",
    )
    site = wheels.python(machine, "/opt/venv", version="3.11", source=thread)
    wheels.torch(machine, site, TorchWheel("2.2.0+cpu", ""), source=thread)
    wheels.distribution(machine, site, "xformers", "0.0.25.dev741", requires=("torch",), source=thread)
    machine.file(f"{site}/xformers/cpp_lib.json", '{"version": {"cuda": 1201, "torch": "2.2.0+cu121"}}', source=thread)
    return parts.loader_cache(machine)


def rocm_torch_on_nvidia() -> Reconstruction:
    """A ROCm build on a machine whose GPU is NVIDIA's: a requirements file from another machine."""
    thread = "pytorch/pytorch#70036 (No HIP GPUs are available); that it happens on an NVIDIA machine is supposed"
    machine = gpu_box(
        "rocm-torch-on-nvidia",
        "H100 with torch 2.9.0+rocm6.4: looks for AMD GPUs",
        driver="580.95.05",
        gpu=H100,
        cuda="13.0",
        source=SUPPOSED,
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.9.0+rocm6.4", ""), source=thread)
    machine.file(
        f"{site}/torch/version.py",
        "__version__ = '2.9.0+rocm6.4'\ndebug = False\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.43484'\n",
        source=thread,
    )
    return parts.loader_cache(machine)


def h200_no_torch() -> Reconstruction:
    """A plain CUDA image on a machine that works: torch is still to be installed."""
    machine = gpu_box(
        "h200-no-torch",
        "H200 with driver 580.159.04 and a fresh venv: nothing wrong, torch is not there yet",
        driver="580.159.04",
        gpu=H200,
        cuda="13.0",
        source=SUPPOSED,
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.distribution(machine, site, "setuptools", "80.9.0", source=SUPPOSED)
    return parts.loader_cache(machine)


def pytorch_checkout_shadows() -> Reconstruction:
    """Python started in the root of a PyTorch checkout imports the folder `torch` there."""
    thread = "pytorch/pytorch#574 (a folder called torch in the same directory is picked up), pytorch/pytorch#4622"
    machine = gpu_box(
        "pytorch-checkout-shadows",
        "H100 with torch 2.9.0+cu130 installed, and the current folder is a PyTorch checkout",
        driver="580.95.05",
        gpu=H100,
        cuda="13.0",
        source=SUPPOSED,
    )
    machine.host = replace(HOST, cwd="/root/pytorch")
    machine.file("/root/pytorch/torch/__init__.py", "", source=thread)
    machine.file("/root/pytorch/.git/HEAD", "ref: refs/heads/main\n", source=thread)
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.9.0+cu130", "13.0", CU130), source=SUPPOSED)
    return parts.loader_cache(machine)


def rtx5090_source_build() -> Reconstruction:
    """Field report 004: two RTX 5090 with a torch of their own, built with CUDA 12.8 for sm_120 alone. It works."""
    report = "field report 004"
    machine = Reconstruction(
        "rtx5090-source-build", "two RTX 5090 with driver 580.95.05 and torch 2.12.0a0 built from source for sm_120"
    )
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    parts.driver(machine, "580.95.05", source=f"{report}, line 215 (Driver 580.95.05)")
    machine.file("/dev/nvidia1", "", source=SUPPOSED)
    parts.gpus(machine, "580.95.05", RTX_5090, RTX_5090, source=f"{report}, line 214 (2x NVIDIA GeForce RTX 5090)")
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    parts.cuda_answers(machine, library, cuda="13.0", specs=(RTX_5090, RTX_5090))
    parts.toolkit(machine, "12.8.93", source=f"{report}, line 216 (CUDA 12.8)", gcc_max=14)
    machine.env(CUDA_HOME="/usr/local/cuda-12.8", TORCH_CUDA_ARCH_LIST="12.0")
    machine.environ["PATH"] = f"/usr/local/cuda-12.8/bin:{machine.environ['PATH']}"
    site = wheels.python(machine, "/root/venv", source=SUPPOSED)
    wheel = TorchWheel("2.12.0a0+gita58677f", "12.8", ("sm_120",))
    wheels.torch(machine, site, wheel, source=f"{report}, lines 221 (PyTorch) and 223 (sm_120, single target)")
    wheels.distribution(machine, site, "triton", "3.6.0", source=f"{report}, line 222 (Triton 3.6.0)")
    return parts.loader_cache(machine)


def h100_cudnn_off_pin() -> Reconstruction:
    """JAX asks for a newer cuDNN than torch pins; pip installed it and said so once."""
    thread = "rdyro/torch2jax#29 (jax 0.6.0 requires cuDNN 9.8, torch 2.6.0 pins nvidia-cudnn-cu12==9.1.0.70)"
    machine = gpu_box(
        "h100-cudnn-off-pin",
        "H100 with torch 2.6.0+cu124 and the cuDNN 9.8 that JAX brought",
        driver="550.54.15",
        gpu=H100,
        cuda="12.4",
        source=SUPPOSED,
    )
    site = wheels.python(machine, "/opt/venv", source=thread)
    pins = (
        'nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux" and platform_machine == "x86_64"',
        'nvidia-nccl-cu12==2.21.5; platform_system == "Linux" and platform_machine == "x86_64"',
    )
    archs = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    wheel = TorchWheel("2.6.0+cu124", "12.4", archs, requires=pins, recorded="2.6.0")
    wheels.torch(machine, site, wheel, source=f"{thread}; METADATA of the PyPI wheel torch 2.6.0")
    wheels.distribution(machine, site, "nvidia-cudnn-cu12", "9.8.0.87", source=f"{thread}; the build is supposed")
    wheels.distribution(machine, site, "nvidia-nccl-cu12", "2.21.5", source=SUPPOSED)
    return parts.loader_cache(machine)


MACHINES = (
    v100_torch_cu130,
    t4_driver_418_cu102,
    gb10_torch_cu130,
    gb10_triton_3_5,
    thor_torch_cu128,
    orin_torch_pypi,
    gh200_torch_pypi,
    gpu_box_cpu_wheel,
    rocm_torch_on_nvidia,
    h200_no_torch,
    pytorch_checkout_shadows,
    rtx5090_source_build,
    h100_cudnn_off_pin,
    *companion_machines.MACHINES,
)
