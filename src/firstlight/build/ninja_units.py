"""The units of a build by its build.ninja: which rule makes each object, from which source; where that file lies."""

from __future__ import annotations

import glob
import os
import re
from functools import lru_cache

from firstlight.build.backend import BY_NINJA
from firstlight.build.ninja_output import ATTENTION, kind_of_unit
from firstlight.build.spec import BuildSpec
from firstlight.frozen import dataclass
from firstlight.tables.build_rows import UnitKind

_LINE = re.compile(r"build ((?:[^:$]|\$.)+): (\S+)([^|]*)")
_CUDA_RULE = re.compile(r"cuda(?!_device_link|_devlink)", re.I)
_LINK_RULE = re.compile(r"device_link|devlink", re.I)
# Where a setup.py has ninja work: setuptools' build/temp*, below it for each module, scikit-build's own folder.
_BELOW_TREE = ("build/build.ninja", "build/*/build.ninja", "build/temp*/*/build.ninja", "build/temp*/*/*/build.ninja",
               "_skbuild/*/cmake-build/build.ninja")  # fmt: skip


@dataclass(frozen=True, slots=True)
class NinjaUnit:
    """An object file that ninja makes, e.g. build/temp/csrc/fwd.o, CUDA: its rule is cuda_compile."""

    output: str
    kind: UnitKind | None  # None: linked


def units_of_ninja_file(folder: str) -> tuple[NinjaUnit, ...]:
    """The object files that a build.ninja makes, by its `build` lines; () where there is none."""
    path = os.path.join(folder, "build.ninja")
    try:
        seen = os.stat(path)
    except OSError:
        return ()
    return _read(path, seen.st_mtime_ns, seen.st_size)


@lru_cache(maxsize=4)
def _read(path: str, mtime_ns: int, size: int) -> tuple[NinjaUnit, ...]:
    """PyTorch's file has tens of megabytes, and is asked for every two seconds while it is compiled."""
    found = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("build ") and (match := _LINE.match(line)):
                    outputs = [each.replace("$", "") for each in match[1].partition(" | ")[0].split()]
                    made = [each for each in outputs if each.endswith((".o", ".obj"))]
                    found += [NinjaUnit(each, _kind(each, match[2], match[3], os.path.dirname(path))) for each in made]
    except OSError:
        return ()
    return tuple(found)


def _kind(output: str, rule: str, inputs: str, folder: str) -> UnitKind | None:
    if _LINK_RULE.search(rule):
        return None
    if _CUDA_RULE.search(rule) or inputs.rstrip().endswith(".cu"):
        name = output.removeprefix(folder)  # all of a tree that lies in flash-attn/ would be attention
        return UnitKind.ATTENTION if ATTENTION.search(name) else UnitKind.CUDA
    return kind_of_unit(output)


def kinds_of(folder: str) -> dict[str, UnitKind | None]:
    """The kind of each object of a build.ninja."""
    return {each.output: each.kind for each in units_of_ninja_file(folder)}


def ninja_folder(spec: BuildSpec) -> str:
    """Where ninja works for a build; with a setup.py of its own the newest of those it left; "" = none yet."""
    if spec.backend in BY_NINJA:
        return spec.build_dir
    found = [*glob.glob(f"{glob.escape(spec.folder)}/build/build.ninja")]
    for each in _BELOW_TREE:
        found += glob.glob(f"{glob.escape(spec.tree)}/{each}")
    newest = max(found, key=os.path.getmtime, default="")
    return os.path.dirname(newest)
