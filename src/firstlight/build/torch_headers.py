"""Headers that torch's own headers include: a toolkit may lack them where the wheels beside torch have them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.machine import Machine

# By ATen/cuda/CUDAContextLight.h, which an extension with CUDA code includes sooner or later.
INCLUDED = ("cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h")
WHEELS = ("nvidia-cublas", "nvidia-cusparse", "nvidia-cusolver")
_LISTED = "nvidia"  # the folder of site-packages that NVIDIA's wheels share


def probe_torch_headers(machine: Machine, facts: Facts) -> Fact[tuple[str, ...]]:
    """The include folders, of toolkits and of wheels, that have all of them."""
    return Known(tuple(each for each in _folders(machine, facts) if _has_all(machine, each)), seen_in="the folders")


def folder_for_torch(found: Fact[tuple[str, ...]], own: tuple[str, ...]) -> Fact[str]:
    """A folder to name beside the toolkit's own; "" where its own has them, or none was asked."""
    if isinstance(found, Unknown) or set(found.value) & set(own):
        return Known("", seen_in="the toolkit")
    of_wheels = [each for each in found.value if f"/{_LISTED}/" in each]
    if not of_wheels:
        return Unknown(f"the toolkit has no {', '.join(INCLUDED)}, and no wheel of this environment has them")
    return Known(of_wheels[0], seen_in="the wheels beside torch")


def _folders(machine: Machine, facts: Facts) -> Iterator[str]:
    for toolkit in facts.toolkits.toolkits:
        yield from toolkit.include_folders
    for site in facts.environment.site_packages if facts.environment else ():
        for name in machine.list(os.path.join(site, _LISTED)):
            yield os.path.join(site, _LISTED, name, "include")


def _has_all(machine: Machine, folder: str) -> bool:
    return all(machine.stat(os.path.join(folder, each)) is not None for each in INCLUDED)
