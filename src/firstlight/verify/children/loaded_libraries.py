"""Which libraries a process that computed really has loaded, from /proc/self/maps."""

from __future__ import annotations

import os
from typing import Any

import torch

from firstlight.verify.children.witness import Witness


def prove(question: dict[str, Any], witness: Witness) -> str:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(128, 128, device=device)
    (x @ x).sum().item()
    torch.nn.functional.conv2d(
        torch.randn(1, 3, 8, 8, device=device), torch.randn(4, 3, 3, 3, device=device)
    ).sum().item()
    if device == "cuda":
        torch.linalg.solve(x, x).sum().item()
        torch.fft.fft(x).abs().sum().item()
    libraries = sorted(_mapped())
    witness.more["libraries"] = libraries
    witness.more["device"] = device
    for path in libraries:
        if os.path.basename(path).startswith(tuple(question["names"])):
            witness.saw("loaded", path)
    return f"{len(libraries)} libraries loaded after computing on {device}"


def _mapped() -> set[str]:
    """Paths of the shared libraries in this process; the kernel writes '(deleted)' behind one that was replaced."""
    found = set()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            parts = line.split(None, 5)
            if len(parts) == 6 and ".so" in os.path.basename(parts[5]):
                found.add(parts[5].strip())
    return found
