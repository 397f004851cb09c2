"""Which libraries `import torch` opens from Python before torch._C, read from the torch/__init__.py that is there.

They are then loaded under their sonames, so no search path decides about them any more.
"""

from __future__ import annotations

import re

from firstlight.elf.closure import Closure, closure_of_many
from firstlight.elf.loader import LoaderSetup
from firstlight.machine.interface import Machine

# ("cublas", "libcublas.so.*[0-9]") in 2.13 and 2.15, "cublas": "libcublas.so.*[0-9]" in older ones; the order counts
_PAIR = re.compile(r'"(\w+)"[,:] "(lib[\w-]+\.so[^"\s]*)"')
_CUDA = re.compile(r"^cuda\b[^=\n]*= *['\"](\d+)", re.MULTILINE)
_LONGEST_SOURCE = 1 << 18


def torch_preloads(
    machine: Machine,
    torch: str,
    *,
    sys_path: tuple[str, ...] = (),
    setup: LoaderSetup | None = None,
    program: str = "",
) -> tuple[str, ...]:
    """What to give as `preloaded` for torch._C, in order, e.g. (.../libtorch_global_deps.so, .../libcublasLt.so.13).

    `torch` is the installed folder, `sys_path` where its Python looks for packages (the folder above it unless given).
    Mirrors torch/__init__.py: libtorch_global_deps.so first; where that cannot be loaded, the CUDA libraries and then
    it again; where it can and brought a libcudart, the CUDA libraries behind it, in releases that look at the maps.
    Not mirrored: a file that is there and fails to open ends the row in torch, here the next are opened all the same.
    """
    source = machine.read(f"{torch}/__init__.py", limit=_LONGEST_SOURCE) or ""
    first = f"{torch}/lib/libtorch_global_deps.so"
    tried = closure_of_many(machine, (first,), setup=setup, program=program)
    if tried is None or not source:
        return ()
    pairs = tuple(dict.fromkeys(_PAIR.findall(source)))
    files = _files(machine, torch, pairs=pairs, sys_path=sys_path or (torch.rpartition("/")[0],))
    required = [path for (_, pattern), path in zip(pairs, files, strict=True) if "libnvToolsExt" not in pattern]
    # torch gives up at the first that is nowhere; behind a libcudart that is loaded, torch 2.15 goes on
    until = files.index("") if "" in required else len(files)
    opened = tuple(filter(None, files[:until]))
    if tried.missing:
        names = [pattern.partition(".")[0] for _, pattern in pairs]
        # torch gives the error back unless it names one of its own libraries
        return (*opened, first) if any(name in tried.missing[0].name for name in names) else (first,)
    if "/proc/self/maps" not in source or not _has_cudart(tried):
        return (first,)
    return (first, *(filter(None, files) if "_preload_cuda_deps(required=False)" in source else opened))


def _has_cudart(tried: Closure) -> bool:
    return any("libcudart.so" in item.found.path for item in tried.objects)


def _files(
    machine: Machine, torch: str, *, pairs: tuple[tuple[str, str], ...], sys_path: tuple[str, ...]
) -> tuple[str, ...]:
    """The file of each pair, "" where it is nowhere."""
    major = _CUDA.search(machine.read(f"{torch}/version.py", limit=4096) or "")
    return tuple(
        next(
            (
                f"{place}/{name}"
                for entry in sys_path
                for place in _places(entry, folder, major="" if major is None else major[1])
                for name in machine.list(place, pattern)
            ),
            "",
        )
        for folder, pattern in pairs
    )


def _places(entry: str, folder: str, *, major: str) -> tuple[str, ...]:
    newer = (f"{entry}/nvidia/cu{major}/lib",) if major else ()
    return (f"{entry}/nvidia/{folder}/lib", *newer, f"{entry}/{folder}/lib")
