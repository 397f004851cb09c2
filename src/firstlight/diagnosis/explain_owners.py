"""Whose a header or a symbol is that a text names (helper_cuda.h: cuda-samples), and what causes an error code."""

from __future__ import annotations

import functools
import pkgutil
import re
from typing import Any

OWNERS = "data/error_owners.json"
CAUSES = "data/error_causes.json"
_NESTED = re.compile(r"_ZN[KVrRO]*(?:St)?(?P<parts>(?:\d+[A-Za-z_]\w*)+)")
_PLAIN = re.compile(r"_Z(?P<parts>\d+[A-Za-z_]\w*)")
_LENGTH = re.compile(r"\d+")


def header_owner(name: str) -> str:
    """Who brings a header: ' It belongs to cuDNN's development files.'; '' where no row knows it."""
    owner = _longest(_owners()["headers"], name)
    return f" It belongs to {owner}." if owner else ""


def symbol_owner(name: str) -> str:
    """Who would have a symbol: ' (at::Tensor::item) It belongs to torch.'; '' where nothing is known."""
    owner = _longest(_owners()["symbols"], name)
    if not owner and re.match(r"cu[A-Z][a-z]", name):
        owner = "the driver's libcuda"
    plain = demangled(name)
    said = f" In C++ its name is {plain}." if plain != name else ""
    return said + (f" It belongs to {owner}." if owner else "")


def demangled(name: str) -> str:
    """A C++ name as it is written in source, without its arguments; what is no such name stays as it is."""
    match = _NESTED.match(name) or _PLAIN.match(name)
    if match is None:
        return name
    rest, parts = match["parts"], []
    while length := _LENGTH.match(rest):
        size = int(length[0])
        part = rest[length.end() : length.end() + size]
        if len(part) < size or not size:
            return name
        parts.append(part)
        rest = rest[length.end() + size :]
        if match.re is _PLAIN:
            break
    return "::".join(parts) if parts else name


def _longest(rows: dict[str, str], name: str) -> str:
    fitting = [beginning for beginning in rows if name.startswith(beginning)]
    return rows[max(fitting, key=len)] if fitting else ""


def code_causes(code: int) -> str:
    """What is known to cause an error code of CUDA, e.g. of 710; '' where only its meaning is known."""
    return _causes().get(str(code), "")


@functools.cache
def _owners() -> dict[str, dict[str, str]]:
    document = _read(OWNERS)
    return {kind: dict(document[kind]) for kind in ("headers", "symbols")}


@functools.cache
def _causes() -> dict[str, str]:
    return dict(_read(CAUSES)["causes"])


def _read(name: str) -> dict[str, Any]:
    import json

    text = pkgutil.get_data("firstlight.diagnosis", name)
    assert text is not None, f"{name} is not in the package"
    document: dict[str, Any] = json.loads(text)
    return document
