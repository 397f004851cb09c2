"""The machines of the field reports behind the project, rebuilt from their prose."""

from __future__ import annotations

from tools.machines import parts, wheels
from tools.machines.parts import H100
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import CU130, TorchWheel


def h100_driver_570() -> Reconstruction:
    """Field report 000 before its repair: an H100 pod, driver 570.133.20, torch 2.9.0+cu130, no compat library."""
    report = "field report 000"
    machine = Reconstruction(
        "h100-driver-570", "H100 pod with driver 570.133.20 and torch 2.9.0+cu130: imports, sees no GPU"
    )
    parts.ubuntu(machine, "24.04", source=f"{report}, line 66 (OS: Ubuntu 24.04.3 LTS)")
    parts.driver(machine, "570.133.20", source=f"{report}, line 67 (Driver: 570.133.20)")
    parts.gpus(machine, "570.133.20", H100, source=f"{report}, line 83 (GPU: NVIDIA H100 80GB HBM3)")
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20"
    parts.cuda_answers(machine, library, cuda="12.8", specs=(H100,))
    parts.toolkit(machine, "13.0.88", source=f"{report}, line 68 (CUDA Toolkit: 13.0.88)")
    folder = wheels.system_python(machine, source=f"{report}, line 77 (Python: 3.12.3)")
    wheels.torch(
        machine,
        folder,
        TorchWheel("2.9.0+cu130", "13.0", CU130, requires=('triton==3.5.0; platform_system == "Linux"',)),
        source=f"{report}, line 70 (PyTorch: 2.9.0+cu130)",
    )
    for name, version, line, requires in (
        ("torchvision", "0.24.0+cu130", 71, ("numpy", "torch==2.9.0")),
        ("torchaudio", "2.9.0", 72, ("torch==2.9.0",)),
        ("torchaudio", "2.8.0+cu128", 72, ("torch==2.8.0",)),
        ("xformers", "0.0.32.post1", 73, ("numpy", "torch==2.8.0")),
        ("vllm", "0.11.0", 74, ("torch==2.8.0", "torchvision==0.23.0", "xformers==0.0.32.post1")),
        ("triton", "3.4.0", 75, ()),
    ):
        wheels.distribution(machine, folder, name, version, requires=requires, source=f"{report}, line {line}")
    machine.file("/opt/cutlass/include/cutlass/version.h", "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 3\n"
                 "#define CUTLASS_PATCH 0\n", source=f"{report}, line 76 (CUTLASS: 4.3.0)")  # fmt: skip
    machine.file("/opt/cutlass/include/cute/tensor.hpp", "", source=f"{report}, line 76")
    machine.env(CUDA_HOME="/usr/local/cuda-13.0", CUTLASS_HOME="/opt/cutlass", RUNPOD_POD_ID="pod-a")
    machine.environ["PATH"] = f"/usr/local/cuda-13.0/bin:{machine.environ['PATH']}"
    machine.file("/.dockerenv", "", source=f"{report}, line 4 (Pod)")
    return parts.loader_cache(machine)


MACHINES = (h100_driver_570,)
