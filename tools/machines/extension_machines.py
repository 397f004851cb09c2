"""Machines whose compiled packages beside torch do not fit it: another C++ ABI, another CUDA, another cuDNN."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.driver_parts import A100_PCIE, SM_50_TO_90
from tools.machines.extension_parts import LINKED, NEW_ABI, OLD_ABI, gpu_machine, nvidia_wheel, torch_with_abi
from tools.machines.guest_parts import renamed
from tools.machines.parts import H100, SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.special_parts import extension
from tools.machines.wheels import CU128, CU130, TorchWheel

_FLASH = "Dao-AILab/flash-attention#1644 (torch 2.7.0 cu128, flash_attn-2.7.4.post1, Python 3.10, ~/.local)"
_USER_SITE = "/home/user-a/.local/lib/python3.10/site-packages"
_VLLM = "vllm-project/vllm#52300 (vllm 0.21.0, torch 2.11.0+cu126, Python 3.12, conda; libcudart.so.13: cannot open)"


def flash_attn_old_abi() -> Reconstruction:
    """A flash-attn of the old C++ ABI beside torch 2.7, whose wheels have the new one."""
    about = "A100 with torch 2.7.0+cu128 and a flash-attn 2.7.4.post1 of the old C++ ABI"
    machine = gpu_machine("flash-attn-old-abi", about, driver="570.133.20", gpu=A100_PCIE,
                          source=f"{_FLASH}; GPU and driver supposed")  # fmt: skip
    machine.host = replace(machine.host, python_version="3.10.12")
    wheels.system_python(machine, version="3.10", source=_FLASH)
    wheel = TorchWheel("2.7.0+cu128", "12.8", CU128, tag="cp310-cp310-manylinux_2_28_x86_64")
    torch_with_abi(machine, _USER_SITE, wheel, abi=NEW_ABI, source=_FLASH)
    return _flash_attn(machine, "2.7.4.post1", asks=OLD_ABI)


def _flash_attn(machine: Reconstruction, version: str, *, asks: str) -> Reconstruction:
    wheels.distribution(machine, _USER_SITE, "flash-attn", version, requires=("torch", "einops"), source=_FLASH)
    machine.file(f"{_USER_SITE}/flash_attn/__init__.py", f'__version__ = "{version}"\n', source=_FLASH)
    path = f"{_USER_SITE}/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so"
    extension(machine, path, needed=(*LINKED, "libcudart.so.12", "libc.so.6"), asks=(asks,), text=b"\0sm_80\0sm_90\0",
              gives=("PyInit_flash_attn_2_cuda",), source=_FLASH)  # fmt: skip
    return parts.loader_cache(machine)


def flash_attn_old_abi_near_miss() -> Reconstruction:
    """The release whose wheel for torch 2.7 has the new ABI."""
    machine = renamed(flash_attn_old_abi(), "The same A100 with flash-attn 2.8.0.post2 of the new C++ ABI: works")
    machine.without(f"{_USER_SITE}/flash_attn-2.7.4.post1.dist-info")
    return _flash_attn(machine, "2.8.0.post2", asks=NEW_ABI)


def _vllm(name: str, about: str, wheel: TorchWheel) -> Reconstruction:
    machine = gpu_machine(name, about, driver="580.95.05", gpu=H100, source=f"{_VLLM}; GPU and driver supposed")
    prefix = "/home/user-a/anaconda3/envs/verl_env"
    site = wheels.python(machine, prefix, source=_VLLM)
    machine.file(f"{prefix}/conda-meta/history", "", source=_VLLM)
    machine.env(CONDA_PREFIX=prefix)
    torch_with_abi(machine, site, wheel, abi=NEW_ABI, source=_VLLM)
    pins = ("torch==2.11.0", "torchaudio==2.11.0", "torchvision==0.26.0")
    wheels.distribution(machine, site, "vllm", "0.21.0", requires=pins, source=f"{_VLLM}; pins supposed")
    wheels.distribution(machine, site, "torchvision", "0.26.0", requires=("torch==2.11.0",), source=SUPPOSED)
    extension(machine, f"{site}/vllm/_C.abi3.so", needed=("libc10.so", "libtorch.so", "libcudart.so.13", "libc.so.6"),
              asks=(NEW_ABI,), gives=("PyInit__C",), source=_VLLM)  # fmt: skip
    return parts.loader_cache(machine)


def vllm_cu13_torch_cu126() -> Reconstruction:
    """PyPI's vLLM is built for CUDA 13; torch was taken from the index of CUDA 12.6."""
    wheel = TorchWheel("2.11.0+cu126", "12.6", SM_50_TO_90)
    return _vllm("vllm-cu13-torch-cu126", "H100 with vLLM 0.21.0 for CUDA 13 beside torch 2.11.0+cu126", wheel)


def vllm_cu13_torch_cu126_near_miss() -> Reconstruction:
    """The torch that PyPI's vLLM was built with."""
    machine = _vllm("vllm-cu13-torch-cu126", "", TorchWheel("2.11.0+cu130", "13.0", CU130))
    return renamed(machine, "The same H100 with torch 2.11.0+cu130: works")


def _jax(name: str, about: str, *, jax: str, asks: str) -> Reconstruction:
    source = ("AI-Hypercomputer/maxtext#1509 (Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.8.0; "
              "torch brings the older cuDNN)")  # fmt: skip
    machine = gpu_machine(name, about, driver="570.133.20", gpu=H100, source=SUPPOSED)
    site = wheels.python(machine, "/opt/venv", version="3.12", source=SUPPOSED)
    pins = ('nvidia-cudnn-cu12==9.1.0.70; platform_system == "Linux" and platform_machine == "x86_64"',)
    wheel = TorchWheel("2.6.0+cu124", "12.4", SM_50_TO_90, requires=pins, recorded="2.6.0")
    torch_with_abi(machine, site, wheel, abi=OLD_ABI, source=f"{source}; METADATA of the PyPI wheel torch 2.6.0")
    nvidia_wheel(machine, site, "nvidia-cudnn-cu12", "9.1.0.70", "nvidia/cudnn/lib/libcudnn.so.9", source=source)
    wheels.distribution(machine, site, "jax", jax, requires=(f"jaxlib=={jax}",), source=source)
    wheels.distribution(machine, site, "jaxlib", jax, source=source)
    wheels.distribution(machine, site, "jax-cuda12-pjrt", jax, source=source)
    needs = (f"jax-cuda12-pjrt=={jax}", f'nvidia-cudnn-cu12<10.0,>={asks}; extra == "with-cuda"')
    wheels.distribution(machine, site, "jax-cuda12-plugin", jax, requires=needs, source=source)
    plugin = f"{site}/jax_plugins/xla_cuda12/xla_cuda_plugin.so"
    extension(machine, plugin, needed=("libc.so.6",), asks=(), gives=("GetPjrtApi",), source=SUPPOSED)
    return parts.loader_cache(machine)


def jax_cudnn_too_old() -> Reconstruction:
    """torch's pin holds cuDNN at 9.1, JAX was built with 9.8: JAX does not start, torch does."""
    about = "H100 with torch 2.6.0 (cuDNN 9.1.0) and JAX 0.6.0, which wants cuDNN 9.8"
    return _jax("jax-cudnn-too-old", about, jax="0.6.0", asks="9.8")


def jax_cudnn_too_old_near_miss() -> Reconstruction:
    """A JAX that is content with 9.1."""
    machine = _jax("jax-cudnn-too-old", "", jax="0.4.38", asks="9.1")
    return renamed(machine, "The same H100 with JAX 0.4.38, which takes cuDNN 9.1: both work")


MACHINES = (flash_attn_old_abi, vllm_cu13_torch_cu126, jax_cudnn_too_old)
NEAR_MISSES = (flash_attn_old_abi_near_miss, vllm_cu13_torch_cu126_near_miss, jax_cudnn_too_old_near_miss)
