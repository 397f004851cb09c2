"""Packages that must fit torch and its CUDA: which torch and which CUDA each was made for, read from its files."""

from __future__ import annotations

import re

from firstlight.elf.reader import read_elf
from firstlight.errors import BadVersion
from firstlight.facts.distributions import (
    Distribution,
    InstalledFrom,
    Requirement,
    installed_from,
    read_headers,
    requirements,
    search_file,
)
from firstlight.facts.known import Fact, Known, Unknown, value_or
from firstlight.facts.python_environments import PythonEnvironment
from firstlight.frozen import dataclass
from firstlight.machine import Machine
from firstlight.versions import CudaVersion

# Regexes are texts: compiled where a companion is met, not at import.
# Where each keeps compiled code: a folder in site-packages ("" is site-packages itself) and a file pattern. One file
# of a package is read: all of them are linked in one build.
_EXTENSIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "apex": (("", "amp_C*.so"), ("", "fused_layer_norm_cuda*.so")),
    "causal-conv1d": (("", "causal_conv1d_cuda*.so"),),
    "flash-attn": (("", "flash_attn_2_cuda*.so"),),
    "flash-attn-3": (("flash_attn_3", "_C*.so"), ("", "flash_attn_3_cuda*.so")),
    "mamba-ssm": (("", "selective_scan_cuda*.so"),),
    "onnxruntime-gpu": (("onnxruntime/capi", "libonnxruntime_providers_cuda.so"),),
    "sageattention": (("sageattention", "_*.so"),),
    "sgl-kernel": (("sgl_kernel", "*_ops*.so"), ("sgl_kernel/sm90", "common_ops*.so")),
    "torch-cluster": (("torch_cluster", "_*_cuda.so"),),
    "torch-scatter": (("torch_scatter", "_*_cuda.so"),),
    "torch-sparse": (("torch_sparse", "_*_cuda.so"),),
    "torch-spline-conv": (("torch_spline_conv", "_*_cuda.so"),),
    "torchao": (("torchao", "_C*.so"),),
    "torchaudio": (("torchaudio/lib", "libtorchaudio*.so"), ("torchaudio/lib", "_torchaudio*.so")),
    "torchcodec": (("torchcodec", "libtorchcodec_core*.so"),),
    "torchvision": (("torchvision", "_C*.so"),),
    "transformer-engine": (("transformer_engine", "*.so"), ("transformer_engine/wheel_lib", "*.so")),
    "vllm": (("vllm", "_C*.so"),),
    "xformers": (("xformers", "_C*.so"),),
}
NOT_COMPANIONS = ("torch", "numpy", "setuptools")
NVIDIA_PROJECTS = ("nvidia-", "cuda-", "nvpl", "cutensor")
_LIBRARY_LINE = rb"(?:nvidia/\w+|nvpl|cutensor|cusparselt)/lib(?:64)?/lib[^/,\n]*\.so[.\d]*"
# Packages whose own version.py has the local part that the record of a PyPI wheel lacks.
_VERSION_FILES = {"torchvision": "torchvision", "torchaudio": "torchaudio", "torchcodec": "torchcodec"}
WATCHED = ("torch", "triton", "pytorch-triton", "nvidia-", "cuda-", "xformers", "flash", "vllm", "numpy", "sgl-kernel")
_FRAMEWORKS = ("jax-cuda", "tensorflow", "onnxruntime-gpu", "cupy")
_CUDA_EXTRAS = ("with-cuda", "and-cuda", "cuda", "cudnn", "ctk")
_LOCAL_VERSION = r"__version__\s*=\s*['\"][^'\"+]*\+([^'\"]+)['\"]"
_CUDA_TAG = r"(?<![a-z])cu(\d{2,3})(?!\d)"
_CUDA_IN_NAME = r"-(?:cuda|cu)(1[0-9])x?\b"
_TORCH_TAG = r"torch(\d+\.\d+(?:\.\d+)?)|(?:^|[^a-z])pt(\d)(\d{1,2})cu"
_FLASH_FILE = rb"cu\d{2,3}torch[\d.]+cxx11abi[A-Za-z]+"
_DEEPSPEED_SAYS = rb"'(?:cuda_version|version)': '\d+\.\d+[\d.]*'"
_LINKED = r"lib(?:cudart|cublas)(?:[.-][0-9a-f]{8})?\.so\.(\d+)(?:\.\d+)*"
_BITSANDBYTES = r"libbitsandbytes_cuda(\d{3})(?:_nocublaslt)?\.so"
_SMALL = 64 << 10


@dataclass(frozen=True, slots=True)
class Companion:
    """A package that must fit torch or CUDA, e.g. xformers 0.0.33, built for torch 2.9.0+cu130 and CUDA 13.0."""

    name: str
    version: str
    folder: str  # its site-packages
    installed_from: Fact[InstalledFrom]
    local_tag: Fact[str]  # cu128; cu12torch2.8cxx11abiTRUE; pt28cu128
    torch_required: Fact[str]  # ==2.9.0; "" is any
    built_for_torch: Fact[str]  # 2.9.0+cu130, or 2.8 where only that is told
    built_for_cuda: Fact[CudaVersion]
    cuda_major: Fact[int]  # of built_for_cuda, else of the CUDA runtime that its compiled code is linked to
    cuda_choices: tuple[CudaVersion, ...]  # bitsandbytes carries one library for each
    requires: tuple[Requirement, ...]  # on torch, triton, NVIDIA packages and other companions
    gpu_requires: tuple[Requirement, ...]  # on NVIDIA packages by the extra that brings CUDA, whether it was asked for


@dataclass(frozen=True, slots=True)
class NvidiaWheel:
    """An NVIDIA package from a wheel, e.g. nvidia-cudnn-cu13 9.19.0.56 with its libraries in .../nvidia/cudnn/lib."""

    name: str
    version: str
    folder: str  # its site-packages
    library_folder: Fact[str]  # of the first library that its RECORD lists


def probe_companions(machine: Machine, environment: PythonEnvironment) -> tuple[Companion, ...]:
    """Every package here that must fit torch or CUDA; of one installed twice, the one found first."""
    seen: dict[str, Companion] = {}
    for each in environment.distributions:
        if each.name not in seen and each.name not in NOT_COMPANIONS and not each.name.startswith(NVIDIA_PROJECTS):
            seen[each.name] = _look(machine, each, environment=environment)
    return tuple(seen.values())


def _look(machine: Machine, each: Distribution, *, environment: PythonEnvironment) -> Companion:
    headers = read_headers(machine, each)
    python = value_or(environment.python_version, "")
    lines = value_or(headers, ())
    required = requirements(lines, asked_by=each.name, arch=machine.host.arch, python=python)
    on_torch = next((one.specifier for one in required if one.name == "torch"), None)
    torch_required: Fact[str]
    if isinstance(headers, Unknown):
        torch_required = headers
    elif on_torch is None:
        torch_required = Unknown(f"{headers.seen_in} does not ask for torch")
    else:
        torch_required = Known(on_torch, headers.seen_in)
    local = _local_tag(machine, each)
    told_torch, told_cuda = _build_notes(machine, each)
    cuda = _built_for_cuda(told_cuda, local, name=each.name)
    return Companion(
        name=each.name,
        version=each.version,
        folder=each.folder,
        installed_from=installed_from(machine, each),
        local_tag=local,
        torch_required=torch_required,
        built_for_torch=_built_for_torch(told_torch, local, required=torch_required),
        built_for_cuda=cuda,
        cuda_major=_cuda_major(machine, each, cuda=cuda, local=local),
        cuda_choices=_cuda_choices(machine, each),
        requires=tuple(one for one in required if one.name.startswith(WATCHED)),
        gpu_requires=_gpu_requires(lines, each.name, arch=machine.host.arch, python=python),
    )


def _gpu_requires(lines: tuple[str, ...], name: str, *, arch: str, python: str) -> tuple[Requirement, ...]:
    """What jax-cuda12-plugin[with-cuda], tensorflow[and-cuda] and the like ask for: no installer writes down extras."""
    if not name.startswith(_FRAMEWORKS):
        return ()
    found = requirements(lines, asked_by=name, arch=arch, python=python, extras=_CUDA_EXTRAS)
    return tuple(one for one in found if one.name.startswith(NVIDIA_PROJECTS))


def _local_tag(machine: Machine, each: Distribution) -> Fact[str]:
    """The local part of its version, e.g. cu128, from the record, its version.py, or the name of the wheel file."""
    if "+" in each.version:
        return Known(each.version.partition("+")[2], each.record_path)
    if each.name in _VERSION_FILES:
        path = f"{each.folder}/{_VERSION_FILES[each.name]}/version.py"
        if match := re.search(_LOCAL_VERSION, machine.read(path, limit=_SMALL) or ""):
            return Known(match.group(1), path)
    if each.name == "flash-attn":  # its release wheels have the tag in the file name alone
        path = f"{each.record_path}/direct_url.json"
        if found := search_file(machine, path, pattern=_FLASH_FILE):
            return Known(found[0].decode("ascii", "replace"), path)
    return Unknown(f"{each.record} has no local version")


def _build_notes(machine: Machine, each: Distribution) -> tuple[Fact[str], Fact[CudaVersion]]:
    """What a package wrote down about its own build: torch and CUDA. xformers and deepspeed do."""
    if each.name == "xformers":
        return _xformers_notes(machine, f"{each.folder}/xformers/cpp_lib.json")
    if each.name == "deepspeed":
        path = f"{each.folder}/deepspeed/git_version_info_installed.py"
        said = dict(_pair(text) for text in search_file(machine, path, pattern=_DEEPSPEED_SAYS) or ())
        torch, cuda = said.get("version", "0.0"), _parse_cuda(said.get("cuda_version", ""))
        silent = Unknown(f"{path} does not say")
        return (
            silent if torch == "0.0" else Known(torch, path),
            silent if cuda is None or cuda.major == 0 else Known(cuda, path),
        )
    return Unknown(f"{each.name} keeps no build notes"), Unknown(f"{each.name} keeps no build notes")


def _pair(text: bytes) -> tuple[str, str]:
    key, _, value = text.decode("ascii", "replace").partition(": ")
    return key.strip("'"), value.strip("'")


def _xformers_notes(machine: Machine, path: str) -> tuple[Fact[str], Fact[CudaVersion]]:
    """cpp_lib.json says {"version": {"cuda": 1300, "torch": "2.9.0+cu130"}}: CUDA 13.0 is 1300, 12.8 is 1208."""
    import json

    text = machine.read(path, limit=_SMALL)
    if text is None:
        missing = Unknown(f"{path}: {machine.why_not(path)}")
        return missing, missing
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        broken = Unknown(f"{path} is not JSON")
        return broken, broken
    said = document.get("version") if isinstance(document, dict) else None
    torch = said.get("torch") if isinstance(said, dict) else None
    cuda = said.get("cuda") if isinstance(said, dict) else None
    return (
        Known(torch, path) if isinstance(torch, str) and torch else Unknown(f"{path} names no torch"),
        Known(CudaVersion(cuda // 100, cuda % 100), path)
        if isinstance(cuda, int) and 900 <= cuda < 10_000
        else Unknown(f"{path} names no CUDA"),
    )


def _built_for_torch(told: Fact[str], local: Fact[str], *, required: Fact[str]) -> Fact[str]:
    """Its own note, else its local tag (torch2.8, pt28), else an exact pin: who pins one torch was built for it."""
    if isinstance(told, Known):
        return told
    if isinstance(local, Known) and (match := re.search(_TORCH_TAG, local.value)):
        return Known(match.group(1) or f"{match.group(2)}.{match.group(3)}", local.seen_in)
    if isinstance(required, Known) and re.fullmatch(r"===?[\w.+!]+", required.value):
        return Known(required.value.lstrip("="), required.seen_in)
    return Unknown("neither a build note nor a local version nor an exact requirement names its torch")


def _built_for_cuda(told: Fact[CudaVersion], local: Fact[str], *, name: str) -> Fact[CudaVersion]:
    if isinstance(told, Known):
        return told
    digits = _cuda_digits(local)
    if isinstance(local, Known) and len(digits) == 3:
        return Known(CudaVersion.from_tag(f"cu{digits}"), local.seen_in)
    return Unknown(f"nothing in {name} names its CUDA version to the minor")


def _cuda_digits(local: Fact[str]) -> str:
    """128 of cu128 or pt28cu128, 12 of cu12torch2.8; '' when there is no such tag."""
    match = re.search(_CUDA_TAG, local.value) if isinstance(local, Known) else None
    return match.group(1) if match else ""


def _cuda_major(machine: Machine, each: Distribution, *, cuda: Fact[CudaVersion], local: Fact[str]) -> Fact[int]:
    if isinstance(cuda, Known):
        return Known(cuda.value.major, cuda.seen_in)
    if isinstance(local, Known) and _cuda_digits(local):
        return Known(int(_cuda_digits(local)[:2]), local.seen_in)
    if match := re.search(_CUDA_IN_NAME, each.name):  # cupy-cuda12x, jax-cuda13-plugin, tensorrt-cu12
        return Known(int(match.group(1)), each.record_path)
    return _linked_major(machine, each)


def _linked_major(machine: Machine, each: Distribution) -> Fact[int]:
    """The major of the CUDA runtime in the NEEDED of its compiled code, e.g. 13 for libcudart.so.13."""
    known = next((name for name in _EXTENSIONS if each.name == name or each.name.startswith(f"{name}-cu")), "")
    looked_at = ""
    for folder, pattern in _EXTENSIONS.get(known, ()):
        where = f"{each.folder}/{folder}".rstrip("/")
        for name in machine.list(where, pattern)[:2]:
            looked_at = f"{where}/{name}"
            elf = read_elf(machine, looked_at)
            for needed in elf.needed if elf is not None else ():
                if match := re.fullmatch(_LINKED, needed):
                    return Known(int(match.group(1)), looked_at)
    if looked_at:
        return Unknown(f"{looked_at} is not linked to a CUDA runtime, or could not be read")
    return Unknown(f"no compiled file of {each.name} was found")


def _cuda_choices(machine: Machine, each: Distribution) -> tuple[CudaVersion, ...]:
    if each.name != "bitsandbytes":
        return ()
    names = machine.list(f"{each.folder}/bitsandbytes", "libbitsandbytes_cuda*.so")
    found = {
        CudaVersion.from_tag(f"cu{match.group(1)}") for name in names if (match := re.fullmatch(_BITSANDBYTES, name))
    }
    return tuple(sorted(found))


def _parse_cuda(text: str) -> CudaVersion | None:
    try:
        return CudaVersion.parse(text)
    except BadVersion:
        return None


def probe_nvidia_wheels(machine: Machine, environment: PythonEnvironment) -> tuple[NvidiaWheel, ...]:
    """NVIDIA's libraries and CUDA parts that came as wheels, e.g. nvidia-nccl-cu13 2.28.9."""
    return tuple(
        NvidiaWheel(each.name, each.version, each.folder, _library_folder(machine, each))
        for each in environment.distributions
        if each.name.startswith(NVIDIA_PROJECTS)
    )


def _library_folder(machine: Machine, each: Distribution) -> Fact[str]:
    """The folder of the first library that its RECORD lists, where that file is really there."""
    path = f"{each.record_path}/RECORD"
    seen = machine.stat(path)
    if seen is None:
        return Unknown(f"{path}: no such file")
    if seen.size > _SMALL:  # cuda-cccl and cudnn-frontend: headers by the thousand, no library
        return Unknown(f"{path} has {seen.size} bytes and was not searched")
    found = search_file(machine, path, pattern=_LIBRARY_LINE, limit=1)
    if not found:
        return Unknown(f"{path} lists no shared library")
    library = found[0].decode("ascii", "replace")
    if machine.stat(f"{each.folder}/{library}") is None:
        return Unknown(f"{path} lists {library}, which is not there")
    return Known(f"{each.folder}/{library.rpartition('/')[0]}", path)
