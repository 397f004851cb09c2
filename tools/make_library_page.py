"""Fill docs/library.md and docs/kernels/api.md with the surface of their packages, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from firstlight import api, kernels
from tools.generate import with_part

DOCS = Path(__file__).parents[1] / "docs"
PAGE, KERNELS = DOCS / "library.md", DOCS / "kernels" / "api.md"


def made() -> dict[Path, str]:
    """The pages as they should be."""
    return {PAGE: filled(PAGE.read_text()), KERNELS: filled(KERNELS.read_text(), kernels)}


def filled(page: str, module: ModuleType = api) -> str:
    """The page with its generated part written anew."""
    return with_part(page, "api", lambda: "\n".join(_lines(module)) + "\n")


def _lines(module: ModuleType) -> Iterator[str]:
    members = [getattr(module, name) for name in module.__all__]
    for function in [each for each in members if inspect.isfunction(each)]:
        yield f"### `{function.__name__}{_signature(function)}`"
        yield ""
        yield inspect.cleandoc(function.__doc__ or "")
        yield ""
    for kind in [each for each in members if inspect.isclass(each)]:
        yield f"### `{kind.__name__}`"
        yield ""
        yield inspect.cleandoc(kind.__doc__ or "")
        yield ""
        if rows := list(_rows(kind)):
            yield "| | |\n|---|---|"
            yield from rows
            yield ""


def _rows(kind: type) -> Iterator[str]:
    """What an object of it has: properties, methods and what makes one."""
    for name, member in vars(kind).items():
        plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or (not isinstance(plain, property) and not inspect.isfunction(plain)):
            continue
        if text := inspect.cleandoc(plain.__doc__ or "").replace("\n", " "):
            called = (
                "" if isinstance(plain, property) else "()" if kind.__module__ == api.__name__ else _signature(plain)
            )
            owner = kind.__name__ if plain is not member else ""
            cells = (f"`{owner}.{name}{called}`", text)
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _signature(function: Any) -> str:
    """As it is typed, without self; annotations are texts here."""
    told = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
    return re.sub(r"\((self|cls)(, )?", "(", told, count=1)
