"""The kernels' argument structs as the sources declare them: names, types and places of the fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import firstlight.kernels.sm90.compile as compiling

SOURCES: Path = compiling.SOURCES
MAP_BYTES = 128


class Field(NamedTuple):
    """E.g. Field('alpha', 'f', 668)."""

    name: str
    kind: str  # m: tensor map, Q: address, i: int, f: float
    offset: int


def struct_text(source: str, name: str) -> str:
    """The declaration of a struct in a .cu file."""
    text = (SOURCES / f"{source}.cu").read_text(encoding="utf-8")
    found = re.search(rf"struct (alignas\(64\) )?{name} \{{.*?\n\}};", text, re.DOTALL)
    assert found is not None, f"{source}.cu has no struct {name}"
    return found.group(0)


def fields_of(source: str, name: str) -> dict[str, Field]:
    """Every field of a struct, by its name, in order."""
    body = re.sub(r"//[^\n]*", "", struct_text(source, name)).partition("{")[2].rpartition("}")[0]
    found: dict[str, Field] = {}
    place = 0
    for line in filter(None, (part.strip() for part in body.split(";"))):
        kind, size = _kind(line)
        names = re.sub(r"^(const )?\w+\s*\*?", "", line)
        for field in (name.strip(" *") for name in names.split(",")):
            place = -(-place // min(size, 64)) * min(size, 64)
            found[field] = Field(field, kind, place)
            place += size
    return found


def _kind(line: str) -> tuple[str, int]:
    if line.startswith("TensorMap"):
        return "m", MAP_BYTES
    if "*" in line or line.startswith("u64"):
        return "Q", 8
    return ("f", 4) if line.startswith("float") else ("i", 4)
