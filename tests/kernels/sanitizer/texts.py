"""What compute-sanitizer prints of a race, with the sources' own lines."""

from __future__ import annotations

from firstlight.kernels.sm90.compile import SOURCES
from firstlight.profile.children import Ended

ENDED = Ended(0, in_time=True)
CLEAN = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
CASE = "multiply/16/tokens/n600/scattered"


def line_of(file: str, text: str) -> int:
    """Where a text stands in a kernel's source."""
    lines = (SOURCES / file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def item_race() -> str:
    write, read = line_of("roles.cuh", "shared->items[place.slot] = item"), line_of("roles.cuh", "Item item = shared->")
    publish = "publish_item(Shared *, Place &, unsigned int &, const Item &, int)"
    return f"""\
========= COMPUTE-SANITIZER
about: {{"torch": "2.11.0+cu130", "gpu": "NVIDIA H200"}}
case begin: {CASE}
========= Error: Race reported between Write access at {publish}+0x1430 in roles.cuh:{write}
=========     and Read access at next_item(Shared *, const Place &)+0x770 in roles.cuh:{read} [8 hazards]
=========     and Read access at next_item(Shared *, const Place &)+0x780 in roles.cuh:{read} [24 hazards]
=========
case end: {CASE} | 1.25 s | ok
not reached: turn/32/tokens/n70/scattered/cols101
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
