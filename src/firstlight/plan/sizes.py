"""How much a set of packages downloads."""

from __future__ import annotations

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.plan.sets import PackageSet
from firstlight.tables import Tables

# Its requirements reach far beyond the projects that have rows: kernels, tokenizers, servers.
_BRINGS_MUCH = ("vllm",)


def download_bytes(packages: PackageSet, tables: Tables) -> Fact[int]:
    """What pip fetches for a set, e.g. 4057767342 bytes for torch 2.9.0 from PyPI with the nvidia-* wheels it pulls.

    Unknown where one piece has no row. Small requirements (sympy, networkx and others, some 10 MB) are not counted.
    """
    torch = packages.torch
    row = tables.wheel_size("torch", torch.version, machine=packages.machine) if not torch.index else None
    if row is None:
        return Unknown(f"the sizes of {torch.requirement} and of what it pulls are not in the tables")
    total, dates = 0, {row.date}
    for pick in packages.picks:
        if isinstance(pick.bytes, Unknown):
            return Unknown(pick.bytes.reason)
        total += pick.bytes.value
    chosen = {pick.project for pick in packages.picks}
    for pin in row.pulls:
        if pin.project in chosen:
            continue
        piece = tables.wheel_size(pin.project, pin.version, machine=packages.machine)
        if piece is None:
            return Unknown(f"the size of {pin} is not in the tables")
        total += piece.bytes
        dates.add(piece.date)
    if much := [pick.requirement for pick in packages.picks if pick.project in _BRINGS_MUCH]:
        return Unknown(f"at least {total / 1e9:.1f} GB; what else {much[0]} brings is not in the tables")
    return Known(total, f"sizes on PyPI, {min(dates)}; small requirements, some 10 MB, are not counted")
