"""Machines where compiled code beside torch, or another framework in the same environment, is the matter."""

from __future__ import annotations

from tools.machines import parts, wheels
from tools.machines.compat_machines import A100, RTX_4090, gpu_box
from tools.machines.elf_writer import ElfSpec
from tools.machines.library_machines import nvidia_wheel
from tools.machines.parts import H100, RTX_5090, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction
from tools.machines.wheels import CU128, CU130, TorchWheel

T4 = GpuSpec("Tesla T4", "7.5", 2, 15.0, "0x1eb8")
CU124 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
_STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_CHECK, _ERROR = "_ZN3c106detail14torchCheckFailEPKcS2_jRK", "_ZN3c105ErrorC2ENS_14SourceLocationE"
NEW_STRINGS = (_CHECK + _STRING, _ERROR + _STRING, "_ZN3c104cuda9SetDeviceEab")
_PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"


def flash_attn_old_strings() -> Reconstruction:
    """flash-attn from PyPI, compiled with the old C++ strings, beside torch 2.7.0+cu128, which has the new ones."""
    thread = "Dao-AILab/flash-attention#1644 (torch 2.7.0, CUDA 12.8, flash_attn 2.7.4.post1, undefined symbol)"
    machine = gpu_box(
        "flash-attn-old-strings",
        "A100 with torch 2.7.0+cu128 and a flash-attn that was compiled with the C++ strings before C++11",
        driver="570.124.06",
        gpu=A100,
        cuda="12.8",
        source=f"{thread}; GPU and driver are supposed",
    )
    site = wheels.python(machine, "/home/user/venv", version="3.10", source=thread)
    wheel = TorchWheel(
        "2.7.0+cu128", "12.8", CU128, requires=("triton==3.3.0",), tag="cp310-cp310-manylinux_2_28_x86_64",
        names=NEW_STRINGS,
    )  # fmt: skip
    wheels.torch(machine, site, wheel, source=f"{thread}; the names are those that nm shows of the PyPI wheels")
    wheels.distribution(machine, site, "triton", "3.3.0", source=SUPPOSED)
    wheels.distribution(machine, site, "flash-attn", "2.7.4.post1", requires=("torch", "einops"), source=thread)
    name = "flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so"
    spec = ElfSpec(
        needed=("libc10.so", "libtorch_cpu.so", "libtorch_cuda.so", "libcudart.so.12", "libc.so.6"),
        asks=(_ERROR + "Ss", _CHECK + "Ss", "_ZN3c104cuda9SetDeviceEab"),
        gpu_code=("sm_80", "sm_90"),
    )
    machine.elf(f"{site}/{name}", spec, source=f"{thread}; what else it asks for is supposed")
    return parts.loader_cache(machine)


def flash_attn_no_blackwell() -> Reconstruction:
    """flash-attn with code for Ampere and Hopper on an RTX 5090: the first attention call fails."""
    thread = "ostris/ai-toolkit#475 (RTX 5090, flash-attn 2.8.3: no kernel image is available)"
    machine = gpu_box(
        "flash-attn-no-blackwell",
        "RTX 5090 with torch 2.9.0+cu128 and a flash-attn that holds code for sm_80 and sm_90 alone",
        driver="580.95.05",
        gpu=RTX_5090,
        cuda="13.0",
        source=f"{thread}; the driver is supposed",
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheel = TorchWheel("2.9.0+cu128", "12.8", CU128, requires=("triton==3.5.0",), names=NEW_STRINGS)
    wheels.torch(machine, site, wheel, source=f"{thread}; there it is a nightly of 2.9.0")
    wheels.distribution(machine, site, "triton", "3.5.0", source=SUPPOSED)
    wheels.distribution(machine, site, "flash-attn", "2.8.3", requires=("torch", "einops"), source=thread)
    spec = ElfSpec(
        needed=("libc10.so", "libtorch_cuda.so", "libcudart.so.12", "libc.so.6"),
        asks=NEW_STRINGS[1:],
        gpu_code=("sm_80", "sm_90"),
    )
    name = "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
    machine.elf(f"{site}/{name}", spec, source=f"{thread}; that it lacks sm_120 is what the error says")
    return parts.loader_cache(machine)


def jax_over_torchs_cudnn() -> Reconstruction:
    """JAX built for cuDNN 9.8 in one environment with torch 2.6.0, which pins cuDNN 9.1."""
    thread = (
        "AI-Hypercomputer/maxtext#1509 (Loaded runtime CuDNN library: 9.1.0, compiled with 9.8.0; torch brought it)"
    )
    machine = gpu_box(
        "jax-over-torchs-cudnn",
        "H100 with JAX 0.6.0 for CUDA 12 and torch 2.6.0+cu124 in one environment: one cuDNN for both",
        driver="550.163.01",
        gpu=H100,
        cuda="12.4",
        source=f"{thread}; GPU and driver are supposed",
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    pins = ("triton==3.2.0", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-nccl-cu12==2.21.5")
    wheel = TorchWheel("2.6.0+cu124", "12.4", CU124, requires=pins, recorded="2.6.0")
    wheels.torch(machine, site, wheel, source=f"{thread}; the release is supposed from its cuDNN pin")
    wheels.distribution(machine, site, "triton", "3.2.0", source=SUPPOSED)
    asked = tuple(
        f'{one} ; extra == "with-cuda"'
        for one in ("nvidia-cudnn-cu12 <10.0,>=9.8", "nvidia-nccl-cu12 >=2.18.1", "nvidia-cublas-cu12 >=12.1.3.1")
    )
    metadata = "METADATA of the PyPI wheels of 0.6.0"
    for name, requires in (
        ("jax", ("jaxlib<=0.6.0,>=0.6.0",)),
        ("jaxlib", ()),
        ("jax-cuda12-plugin", ("jax-cuda12-pjrt==0.6.0", *asked)),
        ("jax-cuda12-pjrt", ()),
    ):
        wheels.distribution(machine, site, name, "0.6.0", requires=requires, source=metadata)
    library = {"nvidia/cudnn/lib/libcudnn.so.9": ElfSpec(needed=("libc.so.6",))}
    nvidia_wheel(machine, site, "nvidia-cudnn-cu12", "9.1.0.70", libraries=library, source=thread)
    return parts.loader_cache(machine)


def jax_plugin_newer() -> Reconstruction:
    """jax 0.9.0.1 with the CUDA plugin 0.9.2 that pip took: jaxlib does not use it."""
    thread = "ma-gilles/recovar#64 (jax==0.9.0.1, jax-cuda12-plugin 0.9.2)"
    machine = gpu_box(
        "jax-plugin-newer",
        "A100 with jaxlib 0.9.0.1 and jax-cuda12-plugin 0.9.2 beside torch",
        driver="570.124.06",
        gpu=A100,
        cuda="12.8",
        source=f"{thread}; GPU and driver are supposed",
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.9.0+cu128", "12.8", CU128, requires=("triton==3.5.0",)), source=SUPPOSED)
    wheels.distribution(machine, site, "triton", "3.5.0", source=SUPPOSED)
    for name, version in (
        ("jax", "0.9.0.1"),
        ("jaxlib", "0.9.0.1"),
        ("jax-cuda12-plugin", "0.9.2"),
        ("jax-cuda12-pjrt", "0.9.2"),
    ):
        wheels.distribution(machine, site, name, version, source=thread)
    return parts.loader_cache(machine)


def _with_onnxruntime(machine: Reconstruction, site: str, version: str, *, major: int, source: str) -> None:
    requires = ('nvidia-cudnn-cu12~=9.0; extra == "cudnn"',) if major == 12 else ()
    wheels.distribution(machine, site, "onnxruntime-gpu", version, requires=requires, source=source)
    record = f"{site}/onnxruntime_gpu-{version}.dist-info/RECORD"
    machine.file(record, f"onnxruntime/__init__.py,,\n{_PROVIDER},,\n", source="the RECORD of the PyPI wheel, cut")
    needed = (f"libcublasLt.so.{major}", f"libcublas.so.{major}", "libcudnn.so.9", f"libcudart.so.{major}", "libc.so.6")
    machine.elf(f"{site}/{_PROVIDER}", ElfSpec(needed=needed), source="NEEDED of the PyPI wheels")


def onnxruntime_twice() -> Reconstruction:
    """onnxruntime and onnxruntime-gpu 1.23.2 on a T4: the CUDA provider is not in the list."""
    thread = "microsoft/onnxruntime#26996 (both packages 1.23.2 on a Tesla T4)"
    machine = gpu_box(
        "onnxruntime-twice",
        "Tesla T4 with onnxruntime and onnxruntime-gpu in one folder: the CUDA provider is gone",
        driver="580.95.05",
        gpu=T4,
        cuda="13.0",
        source=f"{thread}; the driver is supposed",
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.9.0+cu128", "12.8", CU128, requires=("triton==3.5.0",)), source=SUPPOSED)
    wheels.distribution(machine, site, "triton", "3.5.0", source=SUPPOSED)
    for name in ("onnxruntime", "onnxruntime-gpu"):
        wheels.distribution(machine, site, name, "1.23.2", source=thread)
    return parts.loader_cache(machine)


def onnxruntime_of_cuda_12() -> Reconstruction:
    """onnxruntime-gpu 1.23.2, of CUDA 12, beside torch 2.9.0+cu130: nothing here brings CUDA 12."""
    thread = "microsoft/onnxruntime#21684 (the provider asks for a libcublasLt of another CUDA); versions of #26996"
    machine = gpu_box(
        "onnxruntime-of-cuda-12",
        "RTX 4090 with torch 2.9.0+cu130 and onnxruntime-gpu 1.23.2, whose CUDA provider asks for CUDA 12",
        driver="580.95.05",
        gpu=RTX_4090,
        cuda="13.0",
        source="supposed",
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheels.torch(machine, site, TorchWheel("2.9.0+cu130", "13.0", CU130, requires=("triton==3.5.0",)), source=SUPPOSED)
    wheels.distribution(machine, site, "triton", "3.5.0", source=SUPPOSED)
    _with_onnxruntime(machine, site, "1.23.2", major=12, source=thread)
    return parts.loader_cache(machine)


def onnxruntime_before_torch() -> Reconstruction:
    """onnxruntime-gpu 1.20.1 with torch 2.6.0+cu124: the libraries are in torch's wheels, where it does not look."""
    thread = "microsoft/onnxruntime#23643 (torch==2.6.0+cu124, onnxruntime-gpu==1.20.1, Python 3.11)"
    machine = gpu_box(
        "onnxruntime-before-torch",
        "RTX 4090 with torch 2.6.0+cu124 and onnxruntime-gpu 1.20.1: CUDA libraries in wheels alone",
        driver="550.163.01",
        gpu=RTX_4090,
        cuda="12.4",
        source=f"{thread}; GPU and driver are supposed",
    )
    site = wheels.python(machine, "/home/user/venv", version="3.11", source=thread)
    pins = ("triton==3.2.0", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-cublas-cu12==12.4.5.8")
    tag = "cp311-cp311-manylinux1_x86_64"
    wheel = TorchWheel("2.6.0+cu124", "12.4", CU124, requires=pins, tag=tag)
    wheels.torch(machine, site, wheel, source=thread)
    wheels.distribution(machine, site, "triton", "3.2.0", source=SUPPOSED)
    for project, version, path in (
        ("nvidia-cudnn-cu12", "9.1.0.70", "nvidia/cudnn/lib/libcudnn.so.9"),
        ("nvidia-cublas-cu12", "12.4.5.8", "nvidia/cublas/lib/libcublas.so.12"),
    ):
        nvidia_wheel(machine, site, project, version, libraries={path: ElfSpec(needed=("libc.so.6",))}, source=thread)
    _with_onnxruntime(machine, site, "1.20.1", major=12, source=thread)
    return parts.loader_cache(machine)


def wheels_left_over() -> Reconstruction:
    """torch 2.9.0+cu130 installed over a torch of CUDA 12: pip left the CUDA 12 libraries where they were."""
    machine = gpu_box(
        "wheels-left-over",
        "H100 with torch 2.9.0+cu130 and the CUDA 12 wheels of the torch before it",
        driver="580.95.05",
        gpu=H100,
        cuda="13.0",
        source="supposed: pip takes away what it is told to, and no torch names the wheels of another",
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    pins = ("triton==3.5.0", "nvidia-cublas==13.0.0.19", "nvidia-cudnn-cu13==9.13.0.50")
    wheels.torch(machine, site, TorchWheel("2.9.0+cu130", "13.0", CU130, requires=pins), source=SUPPOSED)
    wheels.distribution(machine, site, "triton", "3.5.0", source=SUPPOSED)
    for project, version, path in (
        ("nvidia-cublas", "13.0.0.19", "nvidia/cu13/lib/libcublas.so.13"),
        ("nvidia-cudnn-cu13", "9.13.0.50", "nvidia/cudnn/lib/libcudnn.so.9"),
        ("nvidia-cublas-cu12", "12.8.4.1", "nvidia/cublas/lib/libcublas.so.12"),
        ("nvidia-cuda-runtime-cu12", "12.8.90", "nvidia/cuda_runtime/lib/libcudart.so.12"),
    ):
        library = {path: ElfSpec(needed=("libc.so.6",))}
        nvidia_wheel(machine, site, project, version, libraries=library, source=SUPPOSED)
    return parts.loader_cache(machine)


MACHINES = (
    wheels_left_over,
    flash_attn_old_strings,
    flash_attn_no_blackwell,
    jax_over_torchs_cudnn,
    jax_plugin_newer,
    onnxruntime_twice,
    onnxruntime_of_cuda_12,
    onnxruntime_before_torch,
)
