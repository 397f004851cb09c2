"""Machines whose torch is let down by a shared library: missing, exchanged, mixed, or too old underneath."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.wheels import CU130, CU130_ARM, TorchWheel

THOR = replace(
    HOST, user="user", home="/home/user", cwd="/home/user", uid=1000, kernel_release="6.8.12-tegra", arch="aarch64"
)
DESKTOP = replace(HOST, user="user", home="/home/user", cwd="/home/user", uid=1000)
RTX_4090_LAPTOP = GpuSpec("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9", 5, 15.99, "0x2757")
SAID_OF_WHEELS = "supposed: as read from the PyPI wheel nvidia-cusparse-cu12 12.5.8.93"


def linux(
    machine: Reconstruction, name: str, *, release: str, glibc: int, glibcxx: int, folder: str, source: str
) -> Reconstruction:
    """A distribution by its /etc/os-release, with glibc 2.<glibc> and libstdc++ 3.4.<glibcxx> in its library folder."""
    machine.file("/etc/os-release", f'PRETTY_NAME="{name}"\n{release}\n', source=source)
    versions = tuple(f"GLIBC_2.{number}" for number in range(2, glibc + 1))
    stdcxx = tuple(f"GLIBCXX_3.4.{number}" for number in range(1, glibcxx + 1))
    for library, defined in (("libc.so.6", versions), ("libm.so.6", versions), ("libstdc++.so.6", stdcxx)):
        machine.elf(f"{folder}/{library}", ElfSpec(soname=library, defines=defined), source=source)
    return machine.env(PATH="/usr/local/bin:/usr/bin:/bin")


def nvidia_wheel(
    machine: Reconstruction, folder: str, project: str, version: str, *, libraries: Mapping[str, ElfSpec], source: str
) -> Reconstruction:
    """An NVIDIA wheel with its record and its libraries, e.g. {"nvidia/nccl/lib/libnccl.so.2": ElfSpec(...)}."""
    wheels.distribution(machine, folder, project, version, source=source)
    record = f"{folder}/{project.replace('-', '_')}-{version}.dist-info/RECORD"
    machine.file(record, "".join(f"{path},,\n" for path in libraries), source=source)
    for path, spec in libraries.items():
        machine.elf(f"{folder}/{path}", replace(spec, soname=path.rpartition("/")[2]), source=source)
    return machine


def jetson(machine: Reconstruction, *, model: str, soc: str, l4t: str, source: str) -> Reconstruction:
    """What tells a Jetson: the release file and the device tree. `l4t` is written 38.2.0."""
    major, _, revision = l4t.partition(".")
    text = f"# R{major} (release), REVISION: {revision}, GCID: 0, BOARD: generic, EABI: aarch64\n"
    machine.file("/etc/nv_tegra_release", text, source=source)
    machine.file("/proc/device-tree/model", f"{model}\0", source=source)
    return machine.file("/proc/device-tree/compatible", f"nvidia,board\0nvidia,{soc}\0", source=source)


def jetson_gpu(machine: Reconstruction, spec: GpuSpec, *, cuda: str, source: str) -> Reconstruction:
    """A Jetson's libcuda in its own folder, and what it answers."""
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    machine.elf(f"{folder}/libcuda.so.1.1", ElfSpec(soname="libcuda.so.1", needed=("libc.so.6",)), source=source)
    machine.link(f"{folder}/libcuda.so.1", "libcuda.so.1.1", source=source)
    return parts.cuda_answers(machine, f"{folder}/libcuda.so.1.1", cuda=cuda, specs=(spec,))


def jetson_thor(machine: Reconstruction, *, source: str) -> Reconstruction:
    """A Jetson AGX Thor with JetPack 7 and CUDA 13.0 of the system."""
    parts.ubuntu(machine, "24.04", source="github.com/dusty-nv/jetson-containers/issues/1399 (r38.2, 24.04)")
    jetson(machine, model="NVIDIA Jetson AGX Thor Developer Kit", soc="tegra264", l4t="38.2.0", source=source)
    gpu = GpuSpec("NVIDIA Thor", "11.0", 0, 122.8)
    driver = "github.com/pollen-robotics/microduck_rl/issues/38 (JetPack 7, CUDA 13.0, driver 580)"
    parts.driver(machine, "580.00", source=driver)
    parts.gpus(machine, "580.00", gpu, source=driver)
    parts.cuda_answers(machine, "/usr/lib/aarch64-linux-gnu/libcuda.so.580.00", cuda="13.0", specs=(gpu,))
    parts.toolkit(machine, "13.0.48", source="field report 002, line 75 (/usr/local/cuda-13.0/lib64/)")
    machine.file("/proc/meminfo", "MemTotal:       128791000 kB\nMemAvailable:   120000000 kB\n", source=SUPPOSED)
    return machine.file("/proc/self/status", "Cpus_allowed_list:\t0-13\n", source=SUPPOSED)


def thor_missing_libraries() -> Reconstruction:
    """Field report 002, its second track: torch 2.9.0 of the Jetson index, three libraries missing one by one."""
    report = "field report 002"
    machine = Reconstruction(
        "thor-missing-libraries", "Jetson Thor, torch 2.9.0 from the Jetson index: NVPL and cuDSS are missing", THOR
    )
    jetson_thor(machine, source=f"{report}, line 1 (Thor)")
    site = wheels.python(machine, "/home/user/venv", source="supposed: the report does not say where torch is")
    missing = ("libnvpl_lapack_lp64_gomp.so.0", "libnvpl_blas_lp64_gomp.so.0", "libcudss.so.0")
    wheel = TorchWheel("2.9.0", "13.0", CU130_ARM, needed=missing, tag="cp312-cp312-linux_aarch64")
    wheels.torch(
        machine, site, wheel, source=f"{report}, lines 18 and 30-32; github.com/pollen-robotics/microduck_rl/pull/39"
    )
    machine.without(f"{site}/nvidia")
    # That it needs a preload for all three (the pull request above) says that its search path reaches no wheel.
    runtime = "libcudart.so.13"
    for name, needed in (
        ("libtorch_python.so", ("libtorch_cuda.so", "libc.so.6")),
        ("libtorch_cuda.so", (runtime, "libc10_cuda.so", *missing, "libc.so.6")),
        ("libc10_cuda.so", (runtime, "libc.so.6")),
        ("libtorch_cpu.so", ("libc.so.6",)),
    ):
        text = b"\0" + " ".join(CU130_ARM).encode() + b"\0" if name == "libtorch_python.so" else b""
        spec = ElfSpec(rpath="$ORIGIN", needed=needed, text=text)
        machine.elf(f"{site}/torch/lib/{name}", spec, source=f"{report}, lines 56-65; the search path is supposed")
    return parts.loader_cache(machine, "/usr/local/cuda-13.0/lib64/libcudart.so.13")  # as JetPack configures it


def cuda_lib64_first() -> Reconstruction:
    """pytorch#140797: torch 2.5.1 with toolkit 12.2 on LD_LIBRARY_PATH; libcusparse gets that one's libnvJitLink."""
    spec = ElfSpec(runpath="$ORIGIN/../../nvjitlink/lib:$ORIGIN")
    return _cuda_lib64(
        Reconstruction("cuda-lib64-first", "torch 2.5.1 with a toolkit's lib64 first on LD_LIBRARY_PATH", DESKTOP), spec
    )


def cuda_lib64_first_rpath() -> Reconstruction:
    """The same machine, but libcusparse has DT_RPATH where it has DT_RUNPATH: LD_LIBRARY_PATH comes too late."""
    spec = ElfSpec(rpath="$ORIGIN/../../nvjitlink/lib:$ORIGIN")
    return _cuda_lib64(
        Reconstruction("cuda-lib64-first-rpath", "the same as cuda-lib64-first with DT_RPATH in libcusparse", DESKTOP),
        spec,
    )


def cuda_lib64_newer_first() -> Reconstruction:
    """The same machine with a toolkit newer than torch's CUDA: it imports, on libraries nobody chose."""
    about = "torch 2.5.1 with the lib64 of a newer toolkit first on LD_LIBRARY_PATH"
    spec = ElfSpec(runpath="$ORIGIN/../../nvjitlink/lib:$ORIGIN")
    return _cuda_lib64(Reconstruction("cuda-lib64-newer-first", about, DESKTOP), spec, toolkit="12.6.85")


def _cuda_lib64(machine: Reconstruction, cusparse: ElfSpec, *, toolkit: str = "12.2.91") -> Reconstruction:
    thread = "github.com/pytorch/pytorch/issues/140797"
    machine.host = replace(machine.host, python_version="3.10.12")
    parts.ubuntu(machine, "22.04", source=f"{thread} (OS: Ubuntu 22.04.4 LTS)")
    parts.driver(machine, "535.183.01", kind="proprietary", source=f"{thread} (Nvidia driver version)")
    parts.gpus(machine, "535.183.01", RTX_4090_LAPTOP, source=f"{thread} (GPU 0)")
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01"
    parts.cuda_answers(machine, library, cuda="12.2", specs=(RTX_4090_LAPTOP,))
    said = f"{thread} (CUDA runtime version: 12.2.91)" if toolkit == "12.2.91" else SUPPOSED
    parts.toolkit(machine, toolkit, source=said, gcc_max=12)
    lib64 = f"/usr/local/cuda-{toolkit.rpartition('.')[0]}/lib64"
    for name in ("libnvJitLink.so.12", "libcusparse.so.12", "libcublas.so.12", "libcublasLt.so.12"):
        machine.elf(f"{lib64}/{name}", ElfSpec(soname=name, needed=("libc.so.6",)), source=f"{thread}; {SUPPOSED}")
    site = wheels.python(machine, "/home/user/venv", version="3.10", source=f"{thread} (Python 3.10.12)")
    names = ("cudnn", "cublas", "cuda_runtime", "cufft", "curand", "cusolver", "cusparse")
    below = ":".join((*(f"$ORIGIN/../../nvidia/{name}/lib" for name in names), "$ORIGIN"))
    wheel = TorchWheel("2.5.1+cu124", "12.4", ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"))
    wheels.torch(machine, site, wheel, source=f"{thread} (2.5.1)")
    needed = (
        "libcudart.so.12",
        "libc10_cuda.so",
        "libcusparse.so.12",
        "libcublas.so.12",
        "libcublasLt.so.12",
        "libc.so.6",
    )
    machine.elf(
        f"{site}/torch/lib/libtorch_cuda.so", ElfSpec(rpath=below, needed=needed), source=f"{thread}; {SAID_OF_WHEELS}"
    )
    cublas = ElfSpec(runpath="$ORIGIN", needed=("libcublasLt.so.12", "libc.so.6"))
    plain = ElfSpec(needed=("libc.so.6",))
    for project, version, libraries in (
        ("nvidia-cusparse-cu12", "12.3.1.170",
         {"nvidia/cusparse/lib/libcusparse.so.12": replace(cusparse, needed=("libnvJitLink.so.12", "libc.so.6"))}),
        ("nvidia-nvjitlink-cu12", "12.4.127", {"nvidia/nvjitlink/lib/libnvJitLink.so.12": plain}),
        ("nvidia-cublas-cu12", "12.4.5.8",
         {"nvidia/cublas/lib/libcublas.so.12": cublas, "nvidia/cublas/lib/libcublasLt.so.12": plain}),
        ("nvidia-cuda-runtime-cu12", "12.4.127", {"nvidia/cuda_runtime/lib/libcudart.so.12": plain}),
    ):  # fmt: skip
        nvidia_wheel(machine, site, project, version, libraries=libraries, source=SAID_OF_WHEELS)
    machine.env(LD_LIBRARY_PATH=lib64)
    machine.sources["LD_LIBRARY_PATH"] = "supposed: as in github.com/infiniflow/ragflow/issues/4466, which prints it"
    return parts.loader_cache(machine)


def cudnn_mix() -> Reconstruction:
    """pytorch#188892: the cuDNN 9.20 wheel of torch 2.12.1 opens a library that only the system's cuDNN 9.23 has."""
    thread = "github.com/pytorch/pytorch/issues/188892"
    machine = Reconstruction("cudnn-mix", "torch 2.12.1 with cuDNN 9.20 from the wheel and 9.23 from apt")
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    _h100(machine, "580.95.05", cuda="13.0")
    folder = "/usr/lib/x86_64-linux-gnu"
    for name in ("libcudnn", "libcudnn_graph", "libcudnn_engines_tensor_ir"):
        spec = ElfSpec(soname=f"{name}.so.9", runpath="$ORIGIN", needed=("libc.so.6",))
        machine.elf(f"{folder}/{name}.so.9.23.0", spec, source=f"{thread} (libcudnn9, 9.23.x, in {folder})")
        machine.link(f"{folder}/{name}.so.9", f"{name}.so.9.23.0", source=thread)
    machine.file("/usr/bin/apt-get", "", source=f"{thread} (installed with apt)")
    site = wheels.python(machine, "/root/venv", source=SUPPOSED)
    wheel = TorchWheel(
        "2.12.1+cu130", "13.0", CU130, needed=("libcudnn.so.9",), requires=("nvidia-cudnn-cu13==9.20.0.48",)
    )
    wheels.torch(machine, site, wheel, source=f"{thread} (torch==2.12.1+cu130)")
    spec = ElfSpec(runpath="$ORIGIN", needed=("libc.so.6",))
    libraries = {f"nvidia/cudnn/lib/{name}.so.9": spec for name in ("libcudnn", "libcudnn_graph")}
    source = f"{thread} (nvidia-cudnn-cu13==9.20.0.48)"
    nvidia_wheel(machine, site, "nvidia-cudnn-cu13", "9.20.0.48", libraries=libraries, source=source)
    return parts.loader_cache(machine)


def nccl_of_two_majors() -> Reconstruction:
    """pytorch#186591: nvidia-nccl-cu12 was installed over nvidia-nccl-cu13; both own nvidia/nccl/lib/libnccl.so.2."""
    thread = "github.com/pytorch/pytorch/issues/186591"
    machine = Reconstruction("nccl-of-two-majors", "torch for CUDA 13 with NCCL wheels of CUDA 12 and 13 in one folder")
    parts.ubuntu(machine, "24.04", source=SUPPOSED)
    _h100(machine, "580.95.05", cuda="13.0")
    site = wheels.python(machine, "/root/venv", source=SUPPOSED)
    wheel = TorchWheel("2.12.0+cu130", "13.0", CU130, needed=("libnccl.so.2",), requires=("nvidia-nccl-cu13==2.29.7",))
    wheels.torch(machine, site, wheel, source=f"{thread}; the version is supposed from its NCCL pin")
    library = {"nvidia/nccl/lib/libnccl.so.2": ElfSpec(needed=("libc.so.6",))}
    for project, version in (("nvidia-nccl-cu13", "2.29.7"), ("nvidia-nccl-cu12", "2.29.3")):
        nvidia_wheel(machine, site, project, version, libraries=library, source=f"{thread} ({project}=={version})")
    return parts.loader_cache(machine)


def centos_7() -> Reconstruction:
    """pytorch#150724: conda's torch on CentOS 7.9; its libcurand wants GLIBC_2.27 of a glibc 2.17."""
    thread = "github.com/pytorch/pytorch/issues/150724"
    host = replace(DESKTOP, kernel_release="3.10.0-1160.el7.x86_64", python_version="3.11.9")
    machine = Reconstruction("centos-7", "conda's torch 2.5.1 on CentOS 7.9 with glibc 2.17", host)
    release = 'ID="centos"\nVERSION_ID="7"'
    linux(machine, "CentOS Linux 7 (Core)", release=release, glibc=17, glibcxx=19, folder="/lib64",
          source=f"{thread} (CentOS 7.9, GLIBC version: 2.17)")  # fmt: skip
    parts.loader_cache(machine, "/lib64/libc.so.6", "/lib64/libm.so.6", "/lib64/libstdc++.so.6")
    prefix = "/home/user/anaconda3/envs/trl"
    _conda(machine, prefix, python="3.11", source=f"{thread} (the traceback's paths)")
    _conda_torch(machine, prefix, python="3.11", torch="2.5.1", source=f"{thread} (PyTorch version 2.5.1, conda)")
    curand = ElfSpec(soname="libcurand.so.10", needed=("libm.so.6", "libc.so.6"),
                     needs=(("libm.so.6", ("GLIBC_2.27",)),))  # fmt: skip
    machine.elf(f"{prefix}/lib/libcurand.so.10", curand, source=f"{thread} (the error message)")
    stdcxx = tuple(f"GLIBCXX_3.4.{number}" for number in range(1, 34))
    return machine.elf(
        f"{prefix}/lib/libstdc++.so.6", ElfSpec(soname="libstdc++.so.6", defines=stdcxx), source=SUPPOSED
    )


def conda_without_libstdcxx_link() -> Reconstruction:
    """pytorch#157709: conda has libstdc++.so.6.0.34 but no link libstdc++.so.6, so the system's older one loads."""
    thread = "github.com/pytorch/pytorch/issues/157709"
    host = replace(DESKTOP, python_version="3.11.9")
    machine = Reconstruction("conda-without-libstdcxx-link", "conda's torch gets the system's older libstdc++", host)
    release = 'ID=ubuntu\nVERSION_ID="20.04"'
    folder = "/usr/lib/x86_64-linux-gnu"
    linux(machine, "Ubuntu 20.04.6 LTS", release=release, glibc=31, glibcxx=28, folder=folder,
          source=f"supposed: {thread} says only that its libstdc++ lacks GLIBCXX_3.4.30")  # fmt: skip
    parts.loader_cache(machine)
    prefix = "/home/user/miniconda3/envs/torch"
    _conda(machine, prefix, python="3.11", source=thread)
    _conda_torch(machine, prefix, python="3.11", torch="2.6.0", source=f"{thread}; the version is supposed")
    return machine.file(f"{prefix}/lib/libstdc++.so.6.0.34", "", source=f"{thread} (present without its link)")


def _conda(machine: Reconstruction, prefix: str, *, python: str, source: str) -> Reconstruction:
    machine.file(f"{prefix}/conda-meta/history", "", source=source)
    machine.file(f"{prefix}/bin/python3", "#!", source=source)
    machine.file(f"{prefix}/lib/python{python}/os.py", "", source=source)
    return machine.env(CONDA_PREFIX=prefix)


def _conda_torch(machine: Reconstruction, prefix: str, *, python: str, torch: str, source: str) -> Reconstruction:
    """conda's torch: its RPATH leads to PREFIX/lib, where the CUDA libraries are as well."""
    site = f"{prefix}/lib/python{python}/site-packages"
    wheels.torch(machine, site, TorchWheel(torch, "11.8", ("sm_80", "sm_90")), source=source)
    machine.without(f"{site}/nvidia")
    versions = (("libstdc++.so.6", ("GLIBCXX_3.4.30",)), ("libc.so.6", ("GLIBC_2.17",)))
    search = "$ORIGIN/../../../../:$ORIGIN"
    for name, needed in (
        ("libtorch_python.so", ("libtorch_cuda.so", "libstdc++.so.6", "libc.so.6")),
        ("libtorch_cuda.so", ("libcurand.so.10", "libcudart.so.11.0", "libc10_cuda.so", "libc.so.6")),
        ("libc10_cuda.so", ("libcudart.so.11.0", "libc.so.6")),
        ("libtorch_cpu.so", ("libc.so.6",)),
    ):
        needs = versions if name == "libtorch_python.so" else ()
        machine.elf(f"{site}/torch/lib/{name}", ElfSpec(rpath=search, needed=needed, needs=needs), source=source)
    for name in ("libcurand.so.10", "libcudart.so.11.0"):
        machine.elf(f"{prefix}/lib/{name}", ElfSpec(soname=name, needed=("libc.so.6",)), source=source)
    return machine


def _h100(machine: Reconstruction, driver: str, *, cuda: str) -> Reconstruction:
    """An H100 that works under a driver: the threads behind these machines name neither."""
    parts.driver(machine, driver, source=SUPPOSED)
    parts.gpus(machine, driver, H100, source=SUPPOSED)
    return parts.cuda_answers(machine, f"/usr/lib/x86_64-linux-gnu/libcuda.so.{driver}", cuda=cuda, specs=(H100,))


MACHINES = (
    thor_missing_libraries,
    cuda_lib64_first,
    cuda_lib64_first_rpath,
    cuda_lib64_newer_first,
    cudnn_mix,
    nccl_of_two_majors,
    centos_7,
    conda_without_libstdcxx_link,
)
