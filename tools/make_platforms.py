"""Fill docs/platforms.md: what each system calls things, and the machines that hold the answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firstlight.tables import load
from firstlight.tables.system_rows import Family, Role, SystemName
from tools.generate import with_part

PAGE = Path(__file__).parents[1] / "docs" / "platforms.md"
EXPECTED = Path(__file__).parents[1] / "tests" / "platforms" / "expected"
_SHOWN = (
    (Role.DRIVER, "driver, first choice"),
    (Role.KERNEL_HEADERS, "headers"),
    (Role.MACHINE_KEY, "key of modules built here"),
    (Role.EARLY_IMAGE, "early boot image"),
)
_KINDS = ("family", "container", "guest")


def made() -> dict[Path, str]:
    """The page as it should be."""
    return {PAGE: filled(PAGE.read_text())}


def filled(page: str) -> str:
    """The page with its generated parts written anew."""
    for name, make in (("names", _names), ("kinds", _kinds), ("machines", _machines)):
        page = with_part(page, name, lambda make=make: "".join(make()))  # type: ignore[misc]
    return page


def _names() -> Iterator[str]:
    rows = load().system_name_rows
    yield f"| system | {' | '.join(title for _, title in _SHOWN)} |\n|---|{'---|' * len(_SHOWN)}\n"
    for family in Family:
        cells = [_cell([row for row in rows if row.family is family and row.role is role]) for role, _ in _SHOWN]
        if any(cells):
            yield f"| {family.value} | {' | '.join(cell or 'no row' for cell in cells)} |\n"
    counts = Counter(row.confidence.value for row in rows)
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    yield f"\n{len(rows)} rows in all ({told}); `firstlight tables system_names` prints them with their sources.\n"


def _cell(rows: list[SystemName]) -> str:
    return f"`{' '.join(rows[0].names)}`" if rows and rows[0].names else ""


def _cases() -> dict[str, dict[str, Any]]:
    files = sorted(EXPECTED.glob("*.json"))
    return {name: case for path in files for name, case in json.loads(path.read_text()).items()}


def _kinds() -> Iterator[str]:
    cases = _cases()
    yield f"{len(cases)} machines, each with a near-miss.\n\n"
    for kind in _KINDS:
        counts = Counter(case["platform"][kind] for case in cases.values())
        in_order = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        told = ", ".join(f"{name} {count}" for name, count in in_order)
        yield f"- {kind}: {told}\n"


def _machines() -> Iterator[str]:
    yield "| machine | first finding | first option | read in |\n|---|---|---|---|\n"
    for name, case in sorted(_cases().items()):
        code, option = case["code"] or "none", case["option"] or "none"
        yield f"| {name} | {code} | {option} | {str(case['source']).replace('|', '/')[:110]} |\n"
