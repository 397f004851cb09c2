"""Where a built library looks for libraries that only wheels have, when it is loaded.

The loader does not look into site-packages: a library that is linked with NCCL's wheel imports only if it says itself
where that is. Wheels of NVIDIA lie side by side with the built one, so the way is told from the library's own folder.
"""

from __future__ import annotations

import os
import re

from firstlight.build.backend import Backend
from firstlight.build.case import BuildCase
from firstlight.facts.known import Known, Unknown

_DEEPEST = 3  # folders between site-packages and a library of the wheel: lightgbm/lib/lib_lightgbm.so has two
_SITE = re.compile(r"/(?:site|dist)-packages/")


def wheel_folders(case: BuildCase) -> tuple[str, ...]:
    """Folders below site-packages of the libraries that only wheels have here: nvidia/nccl/lib."""
    found = []
    for each in case.libraries:
        if isinstance(each.found, Known) and isinstance(each.link, Unknown):
            parts = _SITE.split(os.path.dirname(each.found.value))
            found += parts[-1:] if len(parts) > 1 else []
    return tuple(dict.fromkeys(found))


def run_paths(case: BuildCase) -> tuple[str, ...]:
    """What an RPATH says to find them, from a library at any of the usual depths; () where none is needed.

    PyTorch opens the libraries of wheels by itself before its own, and sets its own RPATH.
    """
    if case.project.backend is Backend.PYTORCH:
        return ()
    ways = ("$ORIGIN" + "/.." * depth for depth in range(_DEEPEST + 1))
    return tuple(f"{way}/{folder}" for way in ways for folder in wheel_folders(case))
