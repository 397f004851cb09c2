"""Machines whose compiled packages beside torch do not fit it: another ABI, another torch release; second half."""

from __future__ import annotations

from tools.machines import parts, wheels
from tools.machines.driver_parts import RTX_3090, RTX_4090, SM_50_TO_90
from tools.machines.extension_parts import LINKED, NEW_ABI, OLD_ABI, gpu_machine, nvidia_wheel, torch_with_abi
from tools.machines.guest_parts import renamed
from tools.machines.parts import H100, SUPPOSED
from tools.machines.reconstruction import Reconstruction
from tools.machines.special_parts import extension
from tools.machines.wheels import TorchWheel

_OPEN_R1 = "huggingface/open-r1#684 (torch 2.6.0, flash_attn 2.8.0.post2, vllm 0.8.4, Python 3.11, conda openr1)"
_SDNEXT = "vladmandic/sdnext#3531 (torch 2.4.0+cu121, torchvision 0.20.1+cu124; on Windows, here on Linux)"
_DEFORUM = "deforum/deforum-stable-diffusion#377 (xFormers for 2.2.0+cu121, have 2.3.0+cu121, Python 3.10.12)"


def _openr1(name: str, about: str, *, flash: str, asks: str) -> Reconstruction:
    machine = gpu_machine(name, about, driver="550.127.05", gpu=H100, source=f"{_OPEN_R1}; GPU and driver supposed")
    prefix = "/home/user-a/miniconda3/envs/openr1"
    site = wheels.python(machine, prefix, version="3.11", source=_OPEN_R1)
    machine.file(f"{prefix}/conda-meta/history", "", source=SUPPOSED)
    machine.env(CONDA_PREFIX=prefix)
    wheel = TorchWheel("2.6.0+cu124", "12.4", SM_50_TO_90, recorded="2.6.0", tag="cp311-cp311-manylinux1_x86_64")
    torch_with_abi(machine, site, wheel, abi=OLD_ABI, source=_OPEN_R1)
    wheels.distribution(machine, site, "vllm", "0.8.4", requires=("torch==2.6.0",), source=_OPEN_R1)
    extension(machine, f"{site}/vllm/_C.abi3.so", needed=("libc10.so", "libtorch.so", "libcudart.so.12", "libc.so.6"),
              asks=(OLD_ABI,), gives=("PyInit__C",), source=SUPPOSED)  # fmt: skip
    wheels.distribution(machine, site, "flash-attn", flash, requires=("torch", "einops"), source=_OPEN_R1)
    path = f"{site}/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
    extension(machine, path, needed=(*LINKED, "libcudart.so.12", "libc.so.6"), asks=(asks,), text=b"\0sm_80\0sm_90\0",
              gives=("PyInit_flash_attn_2_cuda",), source=_OPEN_R1)  # fmt: skip
    return parts.loader_cache(machine)


def flash_attn_new_abi() -> Reconstruction:
    """The newest flash-attn has the new C++ ABI; torch 2.6.0 of PyPI, which vLLM pins, has the old one."""
    about = "H100 with torch 2.6.0+cu124 and a flash-attn 2.8.0.post2 of the new C++ ABI"
    return _openr1("flash-attn-new-abi", about, flash="2.8.0.post2", asks=NEW_ABI)


def flash_attn_new_abi_near_miss() -> Reconstruction:
    """The release before."""
    machine = _openr1("flash-attn-new-abi", "", flash="2.7.4.post1", asks=OLD_ABI)
    return renamed(machine, "The same H100 with flash-attn 2.7.4.post1 of the old C++ ABI: works")


def _sd(name: str, about: str, *, vision: str, pin: str) -> Reconstruction:
    machine = gpu_machine(name, about, driver="550.127.05", gpu=RTX_4090, source=SUPPOSED)
    site = wheels.python(machine, "/home/user-a/automatic/venv", version="3.11", source=_SDNEXT)
    wheel = TorchWheel("2.4.0+cu121", "12.1", SM_50_TO_90, tag="cp311-cp311-linux_x86_64")
    torch_with_abi(machine, site, wheel, abi=OLD_ABI, source=_SDNEXT)
    wheels.distribution(machine, site, "torchvision", vision, requires=("numpy", f"torch=={pin}"), source=_SDNEXT)
    number, cuda = vision.split("+cu")
    machine.file(f"{site}/torchvision/version.py", f"__version__ = '{number}+cu{cuda}'\ngit_version = '3ac97aa9'\n"
                 "from torchvision.extension import _check_cuda_version\n", source=_SDNEXT)  # fmt: skip
    extension(machine, f"{site}/torchvision/_C.so", needed=("libc10.so", "libtorch.so", "libcudart.so.12", "libc.so.6"),
              asks=(OLD_ABI,), source=SUPPOSED)  # fmt: skip
    return parts.loader_cache(machine)


def torchvision_of_other_torch() -> Reconstruction:
    """torchvision 0.20.1 belongs to torch 2.5.1: its operators do not register beside 2.4.0."""
    about = "RTX 4090 with torch 2.4.0+cu121 and torchvision 0.20.1+cu124, which belongs to torch 2.5.1"
    return _sd("torchvision-of-other-torch", about, vision="0.20.1+cu124", pin="2.5.1")


def torchvision_of_other_torch_near_miss() -> Reconstruction:
    """The torchvision of torch 2.4.0."""
    machine = _sd("torchvision-of-other-torch", "", vision="0.19.0+cu121", pin="2.4.0")
    return renamed(machine, "The same machine with torchvision 0.19.0+cu121: works")


def _xformers(name: str, about: str, *, version: str, torch: str) -> Reconstruction:
    machine = gpu_machine(name, about, driver="550.127.05", gpu=RTX_3090, source=SUPPOSED)
    site = wheels.python(machine, "/home/user-a/deforum/venv", version="3.10", source=_DEFORUM)
    pins = ('nvidia-cudnn-cu12==8.9.2.26; platform_system == "Linux" and platform_machine == "x86_64"', "triton==2.3.0")
    wheel = TorchWheel("2.3.0+cu121", "12.1", SM_50_TO_90, requires=pins, tag="cp310-cp310-linux_x86_64")
    torch_with_abi(machine, site, wheel, abi=OLD_ABI, source=_DEFORUM)
    wheels.distribution(machine, site, "triton", "2.3.0", source=SUPPOSED)
    nvidia_wheel(machine, site, "nvidia-cudnn-cu12", "8.9.2.26", "nvidia/cudnn/lib/libcudnn.so.8", source=SUPPOSED)
    # A plain `torch` here: the wheel was installed with --no-deps or the pin was overruled.
    wheels.distribution(machine, site, "xformers", version, requires=("numpy", "torch"), source=_DEFORUM)
    note = f'{{"version": {{"cuda": 1201, "torch": "{torch}+cu121", "python": "3.10.13"}}, "env": {{}}}}'
    machine.file(f"{site}/xformers/cpp_lib.json", note, source=_DEFORUM)
    extension(machine, f"{site}/xformers/_C.so", needed=("libc10.so", "libtorch.so", "libcudart.so.12", "libc.so.6"),
              asks=(OLD_ABI,), source=SUPPOSED)  # fmt: skip
    return parts.loader_cache(machine)


def xformers_of_other_torch() -> Reconstruction:
    """xFormers says what it was built for: torch 2.2.0; here is 2.3.0."""
    about = "RTX 3090 with torch 2.3.0+cu121 and an xFormers built for torch 2.2.0+cu121"
    return _xformers("xformers-of-other-torch", about, version="0.0.24", torch="2.2.0")


def xformers_of_other_torch_near_miss() -> Reconstruction:
    """The xFormers of torch 2.3.0."""
    machine = _xformers("xformers-of-other-torch", "", version="0.0.26.post1", torch="2.3.0")
    return renamed(machine, "The same machine with xFormers 0.0.26.post1, built for torch 2.3.0: works")


MACHINES = (flash_attn_new_abi, torchvision_of_other_torch, xformers_of_other_torch)
NEAR_MISSES = (flash_attn_new_abi_near_miss, torchvision_of_other_torch_near_miss, xformers_of_other_torch_near_miss)
