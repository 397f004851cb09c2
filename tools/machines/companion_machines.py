"""Machines where the packages around torch are the matter: made for another torch or CUDA, or there twice."""

from __future__ import annotations

from dataclasses import replace

from tools.machines import parts, wheels
from tools.machines.compat_machines import gpu_box
from tools.machines.elf_writer import ElfSpec
from tools.machines.parts import H100, RTX_5090, SUPPOSED, GpuSpec
from tools.machines.reconstruction import HOST, Reconstruction
from tools.machines.wheels import CU128, CU130, TorchWheel

RTX_A6000 = GpuSpec("NVIDIA RTX A6000", "8.6", 13, 47.99, "0x2230")


def vllm_torch_2_9() -> Reconstruction:
    """vLLM 0.11.0 first, then torch 2.9.0 on top of it: its compiled code and xFormers' are for 2.8.0."""
    thread = "vllm-project/vllm#27228 (pip install vllm==0.11.0; pip install torch==2.9.0; std::bad_alloc)"
    machine = gpu_box(
        "vllm-torch-2-9",
        "H100 with vLLM 0.11.0 and torch 2.9.0 installed over it",
        driver="580.95.05",
        gpu=H100,
        cuda="13.0",
        source=f"{thread}; the GPU is supposed",
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    pins = ("triton==3.5.0",)
    wheel = TorchWheel("2.9.0+cu128", "12.8", CU128, requires=pins, recorded="2.9.0")
    wheels.torch(machine, site, wheel, source=thread)
    metadata = f"{thread}; METADATA of the PyPI wheels"
    for name, version, requires in (
        ("triton", "3.5.0", ()),
        ("vllm", "0.11.0", ("torch==2.8.0", "torchvision==0.23.0", "xformers==0.0.32.post1")),
        ("torchvision", "0.23.0", ("torch==2.8.0",)),
        ("torchaudio", "2.8.0", ("torch==2.8.0",)),
        ("xformers", "0.0.32.post1", ("numpy", "torch==2.8.0")),
    ):
        wheels.distribution(machine, site, name, version, requires=requires, source=metadata)
    note = '{"version": {"cuda": 1208, "torch": "2.8.0+cu128", "python": "3.9.23"}}'
    machine.file(f"{site}/xformers/cpp_lib.json", note, source="supposed: as xFormers 0.0.32.post1 writes it")
    needed = ("libc10.so", "libtorch.so", "libcudart.so.12", "libc.so.6")
    machine.elf(f"{site}/vllm/_C.abi3.so", ElfSpec(needed=needed), source="NEEDED of the PyPI wheel vllm 0.11.0")
    return parts.loader_cache(machine)


def h100_triton_3_4() -> Reconstruction:
    """One pair of field report 000's set: torch 2.9.0 with the Triton of torch 2.8.0."""
    report = "field report 000"
    machine = gpu_box(
        "h100-triton-3-4",
        "H100 with torch 2.9.0+cu130 and Triton 3.4.0, which belongs to torch 2.8.0",
        driver="580.95.05",
        gpu=H100,
        cuda="13.0",
        source="supposed: a driver that runs CUDA 13, so that this is the only fault",
    )
    site = wheels.python(machine, "/opt/venv", source=SUPPOSED)
    wheel = TorchWheel("2.9.0+cu130", "13.0", CU130, requires=('triton==3.5.0; platform_system == "Linux"',))
    wheels.torch(machine, site, wheel, source=f"{report}, line 70 (PyTorch: 2.9.0+cu130)")
    wheels.distribution(machine, site, "triton", "3.4.0", source=f"{report}, line 75 (Triton: 3.4.0)")
    return parts.loader_cache(machine)


def flash_attn_cu12() -> Reconstruction:
    """A flash-attn wheel for CUDA 12 and torch 2.8 beside torch 2.9.1+cu130."""
    thread = "Dao-AILab/flash-attention#2118 (PyTorch 2.9.1+cu130, Python 3.12, libcudart.so.12: cannot open)"
    machine = gpu_box(
        "flash-attn-cu12",
        "RTX 5090 with torch 2.9.1+cu130 and a flash-attn built for CUDA 12 and torch 2.8",
        driver="580.95.05",
        gpu=RTX_5090,
        cuda="13.0",
        source=f"{thread}; the GPU is supposed",
    )
    prefix = "/opt/miniconda/envs/comfyui"
    site = wheels.python(machine, prefix, source=thread)
    pins = ("triton==3.5.1",)
    wheels.torch(machine, site, TorchWheel("2.9.1+cu130", "13.0", CU130, requires=pins), source=thread)
    wheels.distribution(machine, site, "triton", "3.5.1", source=SUPPOSED)
    wheels.distribution(machine, site, "flash-attn", "2.8.3", requires=("torch", "einops"), source=thread)
    file = "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    machine.file(
        f"{site}/flash_attn-2.8.3.dist-info/direct_url.json",
        f'{{"archive_info": {{}}, "url": "file:///root/{file}"}}',
        source=f"{thread}; that it is the wheel of torch 2.8 is supposed",
    )
    needed = ("libc10.so", "libtorch.so", "libtorch_cuda.so", "libcudart.so.12", "libc.so.6")
    name = "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
    machine.elf(f"{site}/{name}", ElfSpec(needed=needed), source=thread)
    return parts.loader_cache(machine)


def duplicate_torch() -> Reconstruction:
    """Two records of torch in one site-packages: pip shows one version, Python imports the other."""
    thread = "pytorch/vision#9174 (torch.__version__ is 2.6.0, pip uninstalls 2.8.0; driver 570.124.04, Python 3.12)"
    machine = gpu_box(
        "duplicate-torch",
        "conda environment with records of torch 2.6.0 and 2.8.0: torchvision does not load",
        driver="570.124.04",
        gpu=H100,
        cuda="12.8",
        source=f"{thread}; the GPU is supposed",
    )
    prefix = "/home/user/conda/envs/abj"
    site = wheels.python(machine, prefix, source=thread)
    archs = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    wheels.torch(machine, site, TorchWheel("2.6.0+cu124", "12.4", archs, recorded="2.6.0"), source=thread)
    wheels.distribution(machine, site, "torch", "2.8.0", requires=("triton==3.4.0",), source=thread)
    wheels.distribution(machine, site, "torchvision", "0.23.0", requires=("torch==2.8.0",), source=thread)
    return parts.loader_cache(machine)


def uv_lock_would_undo() -> Reconstruction:
    """A uv project whose lock has 2.8.0 from PyPI and from the CPU index; 2.9.0+cu130 was put in by hand."""
    thread = "talmolab/sleap-nn#662 (`uv run` resyncs on every invocation, back to the CPU wheel)"
    machine = gpu_box(
        "uv-lock-would-undo",
        "RTX A6000 with torch 2.9.0+cu130 in a uv project whose lock says 2.8.0",
        driver="580.95.05",
        gpu=RTX_A6000,
        cuda="13.0",
        source="talmolab/sleap-nn#632 (Linux x86_64, RTX A6000); the driver is supposed",
    )
    project = "/home/user/sleap-nn"
    machine.host = replace(HOST, cwd=project, home="/home/user", user="user-a", uid=1000)
    lock = ""
    for version, registry in (
        ("2.8.0", "https://pypi.org/simple"),
        ("2.8.0+cpu", "https://download.pytorch.org/whl/cpu"),
    ):
        lock += f'[[package]]\nname = "torch"\nversion = "{version}"\nsource = {{ registry = "{registry}" }}\n\n'
    machine.file(f"{project}/uv.lock", f"version = 1\nrevision = 3\n\n{lock}", source=thread)
    machine.file(
        f"{project}/pyproject.toml",
        '[project]\nname = "sleap-nn"\ndependencies = ["torch>=2.8"]\n\n[tool.uv]\ndefault-groups = ["dev"]\n',
        source=thread,
    )
    machine.file(f"{project}/.git/HEAD", "ref: refs/heads/main\n", source=SUPPOSED)
    site = wheels.python(machine, f"{project}/.venv", source=thread)
    machine.file(f"{project}/.venv/pyvenv.cfg", "home = /usr/bin\nuv = 0.9.2\nversion_info = 3.12.3\n", source=SUPPOSED)
    pins = ("triton==3.5.0",)
    wheels.torch(machine, site, TorchWheel("2.9.0+cu130", "13.0", CU130, requires=pins), source=SUPPOSED)
    wheels.distribution(machine, site, "triton", "3.5.0", source=SUPPOSED)
    return parts.loader_cache(machine)


MACHINES = (vllm_torch_2_9, h100_triton_3_4, flash_attn_cu12, duplicate_torch, uv_lock_would_undo)
