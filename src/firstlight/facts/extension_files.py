"""Which compiled files of an environment are loaded into torch's process: found by their records and their NEEDED."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from firstlight.elf.reader import read_elf
from firstlight.facts.distributions import Distribution
from firstlight.facts.python_environments import PythonEnvironment
from firstlight.machine import Machine
from firstlight.versions import canonical

# Packages that bring code for CUDA without asking for torch's libraries; of the others only what asks for them counts.
_ALSO = ("bitsandbytes", "onnxruntime-gpu", "transformer-engine")
_NOT_READ = ("torch", "numpy", "triton", "pytorch-triton", "setuptools", "tensorflow", "tensorflow-cpu")
_NOT_READ_PREFIXES = ("nvidia-", "cuda-", "nvpl", "cutensor", "cupy", "jax", "tensorrt")
_NO_PACKAGES = ("torch", "functorch", "torchgen", "nvidia", "numpy", "triton", "scipy", "pandas", "sklearn", "bin")
_MODULES = {"selective_scan_cuda": "mamba-ssm", "amp_C": "apex", "fused_layer_norm_cuda": "apex"}
_OF_TORCH = ("libtorch", "libc10")
_DIGEST = "compiled files for torch"
_LARGEST_RECORD = 8 << 20
_MOST_OF_ONE = 8
_MOST = 48


class ExtensionFile(NamedTuple):
    """One file and the package that it belongs to, e.g. flash-attn and .../flash_attn_2_cuda.cpython-312-....so."""

    package: str
    path: str


def extension_files(machine: Machine, environment: PythonEnvironment) -> tuple[ExtensionFile, ...] | None:
    """The compiled files of an environment that ask for torch's libraries, and those of packages known for CUDA code.

    A recording keeps the names of these alone: what else is installed is nobody's business. None where an older one
    kept none.
    """
    said = {site: _said(machine, environment, site) for site in dict.fromkeys(environment.site_packages)}
    if all(lines is None for lines in said.values()):
        return None
    found: list[ExtensionFile] = []
    for site, lines in said.items():
        for line in lines or ():
            package, _, path = line.partition(" ")
            if package and path and ".." not in path.split("/"):
                found.append(ExtensionFile(package, f"{site}/{path}"))
    return tuple(found[:_MOST])


def _said(machine: Machine, environment: PythonEnvironment, site: str) -> tuple[str, ...] | None:
    own = tuple(
        each
        for each in environment.distributions
        if each.folder == site and each.name not in _NOT_READ and not each.name.startswith(_NOT_READ_PREFIXES)
    )
    return machine.digest(site, _DIGEST, lambda inner: _search(inner, site, own))


def _search(machine: Machine, site: str, own: tuple[Distribution, ...]) -> tuple[str, ...]:
    kept: dict[str, str] = {}
    for each in own:
        files = [path for path in _recorded(machine, each) if _counts(machine, f"{site}/{path}", package=each.name)]
        kept |= {path: each.name for path in files[:_MOST_OF_ONE] if path not in kept}
    for package, path in _others(machine, site):
        if path not in kept and len(kept) < _MOST and _counts(machine, f"{site}/{path}", package=""):
            kept[path] = _owner(package, own)
    return tuple(f"{package} {path}" for path, package in kept.items())


def _recorded(machine: Machine, each: Distribution) -> Iterator[str]:
    """The shared libraries that a package's RECORD lists, those that it carries for others left out."""
    text = machine.read(f"{each.record_path}/RECORD", limit=_LARGEST_RECORD) or ""
    for line in text.splitlines() if ".so" in text else ():
        path = line.partition(",")[0]
        if path.endswith(".so") and ".libs/" not in path and not path.startswith(("..", "/")):
            yield path


def _others(machine: Machine, site: str) -> Iterator[tuple[str, str]]:
    """Extension modules beside the packages and at the top of each: whoever built them left no record that is read."""
    for name in machine.list(site):
        if name.endswith(".so"):
            yield name.partition(".")[0], name
        elif "." not in name and name not in _NO_PACKAGES and not name.startswith("_"):
            for file in machine.list(f"{site}/{name}", keep=_is_library)[:_MOST_OF_ONE]:
                yield name, f"{name}/{file}"


def _is_library(name: str) -> bool:
    return name.endswith(".so")


def _owner(module: str, own: tuple[Distribution, ...]) -> str:
    """The package that a module is of by its name: flash-attn for flash_attn_2_cuda; else the module's own name."""
    name = _MODULES.get(module) or canonical(module)
    return max((each.name for each in own if name.startswith(each.name)), key=len, default=name)


def _counts(machine: Machine, path: str, *, package: str) -> bool:
    if package.startswith(_ALSO):
        return _is_cuda_part(posixpath.basename(path))
    elf = read_elf(machine, path)
    return elf is not None and any(needed.startswith(_OF_TORCH) for needed in elf.needed)


def _is_cuda_part(name: str) -> bool:
    """Of packages with several builds in one, the parts for CUDA: not libbitsandbytes_rocm70.so."""
    return "cuda" in name or name.startswith(("libtransformer_engine", "transformer_engine_torch"))
