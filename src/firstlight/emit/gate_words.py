"""The gates for documents that people and programs read beside the place where they are enforced."""

from __future__ import annotations

from typing import Any

from firstlight.emit.gates import Gates
from firstlight.facts.known import Fact, Known


def gates_as_json(gates: Gates) -> dict[str, Any]:
    """The gates as a small JSON object; what is not asked is left out."""
    found: dict[str, Any] = {"torch": str(gates.torch)}
    for name, fact in (
        ("min_driver", gates.min_driver),
        ("min_driver_without_compat", gates.min_driver_alone),
        ("min_cuda", gates.min_cuda),
        ("min_jetson_linux", gates.min_l4t),
    ):
        if text := text_of(fact):
            found[name] = text
    if gates.compat_branches:
        found["compat_branches"] = list(gates.compat_branches)
    if gates.capabilities:
        found["capabilities"] = [str(each) for each in gates.capabilities]
    return found


def text_of(fact: Fact[Any]) -> str:
    """The value as text, "" where it is not known."""
    return str(fact.value) if isinstance(fact, Known) else ""
