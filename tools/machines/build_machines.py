"""Machines on which building an extension fails or surprises: toolkit, host compiler, flags, memory, rights."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.elf_writer import ElfSpec
from tools.machines.library_machines import DESKTOP, THOR, jetson, jetson_gpu, jetson_thor, linux, nvidia_wheel
from tools.machines.parts import H100, RTX_5090, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import CU128, CU130, TorchWheel

ORIN = replace(THOR, kernel_release="5.15.148-tegra", python_version="3.10.12")
PLAIN_CUDA = ElfSpec(needed=("libc.so.6",))


def gcc(machine: Reconstruction, version: str, *, source: str) -> Reconstruction:
    """gcc and g++ of one version on PATH, with cc and c++ leading to them."""
    for name, link in (("gcc", "cc"), ("g++", "c++")):
        machine.file(f"/usr/bin/{name}", "", source=source)
        machine.link(f"/usr/bin/{link}", name, source=source)
        machine.command(f"{name} -dumpfullversion -dumpversion", f"{version}\n")
        machine.command(f"{link} -dumpfullversion -dumpversion", f"{version}\n")
    return machine


def tools(machine: Reconstruction, *names: str) -> Reconstruction:
    for name in names:
        machine.file(f"/usr/bin/{name}", "", source=SUPPOSED)
    return machine


def memory(machine: Reconstruction, *, gib: float, processors: int, source: str) -> Reconstruction:
    """What /proc says of memory and processors."""
    kib = int(gib * 2**20)
    machine.file("/proc/meminfo", f"MemTotal:       {kib} kB\nMemAvailable:   {kib // 2} kB\n", source=source)
    return machine.file("/proc/self/status", f"Cpus_allowed_list:\t0-{processors - 1}\n", source=source)


def gpu(machine: Reconstruction, driver: str, spec: GpuSpec, *, cuda: str, source: str) -> Reconstruction:
    """A GPU that works under a driver."""
    parts.driver(machine, driver, source=source)
    parts.gpus(machine, driver, spec, source=source)
    return parts.cuda_answers(machine, f"/usr/lib/x86_64-linux-gnu/libcuda.so.{driver}", cuda=cuda, specs=(spec,))


def h100_nvcc_13_torch_cu128() -> Reconstruction:
    """Field report 001: nvcc 13.0 on PATH and torch 2.8.0+cu128 on driver 550; the extension build is refused."""
    report = "field report 001"
    machine = Reconstruction(
        "h100-nvcc-13-torch-cu128", "H100 pod, driver 550: torch 2.8.0+cu128 works, nvcc 13.0 cannot build for it"
    )
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    gpu(machine, "550.163.01", H100, cuda="12.4", source=f"{report}, lines 39-42 (H100, Driver: 550.163.01)")
    parts.toolkit(machine, "13.0.88", source=f"{report}, lines 14-16 (13.0.88, /usr/local/cuda-13.0)")
    folder = wheels.system_python(machine, source=SUPPOSED)
    wheels.torch(machine, folder, TorchWheel("2.8.0+cu128", "12.8", CU128), source=f"{report}, line 62 (2.8.0+cu128)")
    memory(machine, gib=1536, processors=192, source=f"{report}, line 41 (RAM: 1.5TB); the processors are supposed")
    tools(gcc(machine, "12.3.0", source=SUPPOSED), "ninja", "git")
    machine.env(CUDA_HOME="/usr/local/cuda-13.0", NVCC_APPEND_FLAGS="-gencode arch=compute_90,code=sm_90a")
    machine.sources["CUDA_HOME"] = f"{report}, line 193"
    machine.sources["NVCC_APPEND_FLAGS"] = f"{report}, line 24 has the flag; that it stands in a variable is supposed"
    machine.environ["PATH"] = f"/usr/local/cuda-13.0/bin:{machine.environ['PATH']}"
    machine.env(RUNPOD_POD_ID="pod-a")
    machine.file("/usr/bin/apt-get", "", source=f"{report}, line 160 (apt-get install)")
    machine.file("/.dockerenv", "", source=f"{report}, line 4 (Pod)")
    return parts.loader_cache(machine)


def nvcc_12_9_torch_cu128() -> Reconstruction:
    """torch 2.9.0+cu128 beside toolkit 12.9: another minor, which cpp_extension only remarks on."""
    machine = Reconstruction("nvcc-12-9-torch-cu128", "torch 2.9.0+cu128 beside CUDA toolkit 12.9: it builds")
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    gpu(machine, "575.57.08", H100, cuda="12.9", source=SUPPOSED)
    parts.toolkit(machine, "12.9.86", source=SUPPOSED, gcc_max=14)
    folder = wheels.python(machine, "/root/venv", source=SUPPOSED)
    wheels.torch(machine, folder, TorchWheel("2.9.0+cu128", "12.8", CU128), source=SUPPOSED)
    tools(gcc(machine, "13.3.0", source=SUPPOSED), "ninja", "git")
    return parts.loader_cache(memory(machine, gib=503, processors=64, source=SUPPOSED))


def fedora_44_cuda_12_8() -> Reconstruction:
    """pytorch#185698: CUDA 12.8 on Fedora 44, whose gcc 15 and whose glibc are both too new for it."""
    thread = "github.com/pytorch/pytorch/issues/185698"
    host = replace(DESKTOP, kernel_release="6.19.8-300.fc44.x86_64", python_version="3.14.3")
    machine = Reconstruction("fedora-44-cuda-12-8", "CUDA 12.8 on Fedora 44 with gcc 15", host)
    release = 'ID=fedora\nVERSION_ID="44"'
    linux(machine, "Fedora Linux 44", release=release, glibc=43, glibcxx=34, folder="/usr/lib64",
          source=f"{thread} (Fedora 44); that its glibc is 2.43 is supposed")  # fmt: skip
    machine.link("/lib64", "/usr/lib64", source=SUPPOSED)
    machine.without("/etc/ld.so.cache")
    parts.toolkit(machine, "12.8.93", source=f"{thread} (CUDA 12.8)", gcc_max=14)
    folder = wheels.python(machine, "/home/user/venv", version="3.14", source=f"{thread} (Python 3.14)")
    wheels.torch(
        machine, folder, TorchWheel("2.11.0+cu128", "12.8", CU128), source=f"{thread}; the version is supposed"
    )
    tools(gcc(machine, "15.2.1", source=f"{thread} (GCC 15)"), "ninja", "git")
    return memory(machine, gib=62, processors=12, source=SUPPOSED)


def pip_toolkit_without_lib64() -> Reconstruction:
    """The compiler as wheels, as cuda-toolkit[nvcc,cudart,cccl,crt,nvvm] leaves it: no lib64, no libcudart.so."""
    machine = _pip_torch(Reconstruction("pip-toolkit-without-lib64", "nvcc 13.0 from wheels, CUDA_HOME not set"))
    site = "/root/venv/lib/python3.12/site-packages"
    root = f"{site}/nvidia/cu13"
    listed = "file lists of the PyPI wheels that cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==13.0.2 brings"
    for path in ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc", "lib/libcudart_static.a",
                 "lib/libcudadevrt.a", "include/cuda_runtime.h"):  # fmt: skip
        machine.file(f"{root}/{path}", "", source=listed)
    machine.file(f"{root}/include/cuda.h", "#define CUDA_VERSION 13000\n", source=listed)
    machine.file(f"{root}/include/crt/host_config.h", "#if __GNUC__ > 15\n", source=listed)
    machine.command(f"{root}/bin/nvcc --version", "Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0\n")
    for project, version in (("cuda-toolkit", "13.0.2"), ("nvidia-cuda-nvcc", "13.0.88"), ("nvidia-nvvm", "13.0.88")):
        wheels.distribution(machine, site, project, version, source=listed)
    return tools(gcc(machine, "13.3.0", source=SUPPOSED), "ninja", "git")


def no_toolkit() -> Reconstruction:
    """pytorch#197483: torch with its own wheels and nothing else: no nvcc, no compiler, no ninja."""
    return _pip_torch(Reconstruction("no-toolkit", "torch 2.13.0 from wheels on a machine without compilers"))


def _pip_torch(machine: Reconstruction) -> Reconstruction:
    thread = "github.com/pytorch/pytorch/pull/197483 (torch and its wheels, no toolkit of the system)"
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    gpu(machine, "580.95.05", H100, cuda="13.0", source=SUPPOSED)
    site = wheels.python(machine, "/root/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.13.0+cu130", "13.0", CU130), source=f"{thread}; the version is supposed")
    library = {"nvidia/cu13/lib/libcudart.so.13": PLAIN_CUDA}
    nvidia_wheel(machine, site, "nvidia-cuda-runtime", "13.0.96", libraries=library, source=thread)
    memory(machine, gib=251, processors=32, source=SUPPOSED)
    return parts.loader_cache(machine)


def orin_flash_attention() -> Reconstruction:
    """flash-attention#1581: building it on a Jetson AGX Orin took 65 GB with 3 jobs; here 12 would run."""
    thread = "github.com/Dao-AILab/flash-attention/issues/1581"
    machine = Reconstruction("orin-flash-attention", "Jetson AGX Orin 64 GB about to build flash-attention", ORIN)
    parts.ubuntu(machine, "22.04", source=SUPPOSED)
    jetson(machine, model="NVIDIA Jetson AGX Orin Developer Kit", soc="tegra234", l4t="36.4.3", source=thread)
    jetson_gpu(machine, GpuSpec("Orin", "8.7", 14, 61.4), cuda="12.6", source=SUPPOSED)
    parts.toolkit(machine, "12.6.68", source=f"{thread} (release 12.6, V12.6.68)", gcc_max=13)
    site = wheels.python(machine, "/home/user/venv", version="3.10", source=SUPPOSED)
    wheel = TorchWheel("2.8.0", "12.6", ("sm_87",), tag="cp310-cp310-linux_aarch64")
    wheels.torch(machine, site, wheel, source="supposed: the wheel of the Jetson index for JetPack 6")
    tools(gcc(machine, "11.4.0", source=SUPPOSED), "ninja", "git")
    memory(machine, gib=61.4, processors=12, source=f"{thread} (JETSON AGX Orin); sizes of the 64 GB board")
    machine.env(FLASH_ATTENTION_FORCE_BUILD="TRUE")
    machine.sources["FLASH_ATTENTION_FORCE_BUILD"] = "supposed: how flash-attention is told to build itself"
    libraries = ("/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1", "/usr/local/cuda-12.6/lib64/libcudart.so.12")
    return parts.loader_cache(machine, *libraries)


def nvcc_wrapper() -> Reconstruction:
    """A script /usr/local/bin/nvcc that starts the real one: cpp_extension takes /usr/local for the toolkit."""
    machine = Reconstruction("nvcc-wrapper", "nvcc on PATH is a script outside the toolkit; CUDA_HOME is not set")
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    gpu(machine, "580.95.05", RTX_5090, cuda="13.0", source=SUPPOSED)
    parts.toolkit(machine, "13.0.88", source=SUPPOSED)
    script = '#!/bin/sh\nexec /usr/local/cuda-13.0/bin/nvcc -t 0 "$@"\n'
    machine.file("/usr/local/bin/nvcc", script, source="supposed: a wrapper, as build caches and site scripts make one")
    folder = wheels.python(machine, "/root/venv", source=SUPPOSED)
    wheels.torch(machine, folder, TorchWheel("2.11.0+cu130", "13.0", CU130), source=SUPPOSED)
    tools(gcc(machine, "13.3.0", source=SUPPOSED), "ninja", "git")
    machine.env(TORCH_CUDA_ARCH_LIST="7.0;8.0;9.0;12.0")
    machine.sources["TORCH_CUDA_ARCH_LIST"] = (
        "supposed; compute_70 with CUDA 13 is what github.com/Dao-AILab/fast-hadamard-transform/issues/16 asks for"
    )
    return parts.loader_cache(memory(machine, gib=125, processors=16, source=SUPPOSED))


def thor_source_build() -> Reconstruction:
    """Field report 002, its first track: a source build that fails at its end, installing for the system's Python."""
    report = "field report 002"
    machine = Reconstruction("thor-source-build", "Jetson Thor, source build for the system's Python, not root", THOR)
    jetson_thor(machine, source=f"{report}, line 1 (Thor)")
    wheels.system_python(machine, source=f"{report}, line 98 (/usr/local/lib/python3.12/dist-packages)")
    machine.file("/usr/local/lib/python3.12/dist-packages/README", "", source=f"{report}, line 98")
    machine.file(
        "/usr/lib/python3.12/EXTERNALLY-MANAGED", "", source="file list of Ubuntu 24.04's libpython3.12-stdlib"
    )
    tools(gcc(machine, "13.3.0", source=SUPPOSED), "ninja", "cmake", "git")
    return parts.loader_cache(machine)


MACHINES = (
    h100_nvcc_13_torch_cu128,
    nvcc_12_9_torch_cu128,
    fedora_44_cuda_12_8,
    pip_toolkit_without_lib64,
    no_toolkit,
    orin_flash_attention,
    nvcc_wrapper,
    thor_source_build,
)
