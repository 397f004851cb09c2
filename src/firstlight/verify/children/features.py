"""Every feature of the table: is it in this build, and does it work on GPU 0."""

from __future__ import annotations

import importlib.metadata
import mmap
import os
from typing import Any

import torch

from firstlight.verify.children.witness import Witness

BUILT, NOT_BUILT, WORKS, BROKEN = "built", "not built", "works", "broken"
UNSEEN, ABSENT, REFUSED = "unseen", "absent", "refused"


def prove(question: dict[str, Any], witness: Witness) -> str:
    from firstlight.verify.children.feature_probes import PROBES

    capability = tuple(torch.cuda.get_device_capability(0)) if torch.cuda.is_available() else ()
    found: dict[str, list[str]] = {}
    for name, least in question["features"].items():
        if name not in PROBES:
            found[name] = [UNSEEN, "no way to look is known"]
            continue
        runs = bool(capability) and (not least or capability >= tuple(least))
        try:
            state, saw = PROBES[name]("runs" if runs else "only looks")
        except (AttributeError, TypeError) as error:  # private names come and go between releases of torch
            state, saw = UNSEEN, f"this torch cannot be asked: {error}"
        except (RuntimeError, AssertionError, ValueError, OSError, ImportError) as error:
            state, saw = BROKEN, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        found[name] = [state, saw]
    witness.more.update(features=found, capability=list(capability))
    return f"{len(found)} features looked at"


def has_package(name: str) -> tuple[str, str]:
    """Whether a distribution is installed: ('built', 'triton 3.6.0')."""
    try:
        return BUILT, f"{name} {importlib.metadata.version(name)} is installed"
    except importlib.metadata.PackageNotFoundError:
        return ABSENT, f"the package {name} is not installed"


def holds(path: str, text: bytes) -> bool:
    """Whether a (large) file has a string in it."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return view.find(text) >= 0


def torch_library(name: str) -> str:
    """The path of one of torch's own libraries, e.g. libtorch_cpu.so."""
    return os.path.join(os.path.dirname(str(torch.__file__)), "lib", name)


def flag(name: str) -> bool:
    """Whether torch.__config__.show() says that a part is built in: 'USE_NCCL=ON' or '-DUSE_FBGEMM'."""
    text = torch.__config__.show()
    return any(f"{name}={word}" in text for word in ("ON", "1", "True")) or f"-D{name} " in text
