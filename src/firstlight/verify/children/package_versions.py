"""The versions of named distributions in the environment under proof; torch is not imported."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

from firstlight.verify.children.witness import Witness


def prove(question: dict[str, Any], witness: Witness) -> str:
    found: dict[str, str] = {"python": ".".join(str(part) for part in sys.version_info[:3])}
    for name in question["names"]:
        try:
            found.setdefault(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue
    witness.more["versions"] = found
    return f"{len(found)} versions"
