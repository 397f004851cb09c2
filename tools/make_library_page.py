"""Fill docs/library.md with the surface of firstlight.api, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from firstlight import api
from tools.generate import with_part

PAGE = Path(__file__).parents[1] / "docs" / "library.md"


def made() -> dict[Path, str]:
    """The page as it should be."""
    return {PAGE: filled(PAGE.read_text())}


def filled(page: str) -> str:
    """The page with its generated part written anew."""
    return with_part(page, "api", lambda: "\n".join(_lines()) + "\n")


def _lines() -> Iterator[str]:
    members = [getattr(api, name) for name in api.__all__]
    for function in [each for each in members if inspect.isfunction(each)]:
        typed = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))  # annotations are texts here
        yield f"### `{function.__name__}{typed}`"
        yield ""
        yield inspect.cleandoc(function.__doc__ or "")
        yield ""
    for kind in [each for each in members if inspect.isclass(each)]:
        yield f"### `{kind.__name__}`"
        yield ""
        yield inspect.cleandoc(kind.__doc__ or "")
        yield ""
        yield "| | |\n|---|---|"
        for name, member in vars(kind).items():
            if name.startswith("_") or (not isinstance(member, property) and not inspect.isfunction(member)):
                continue
            text = inspect.cleandoc(member.__doc__ or "").replace("\n", " ").replace("|", "\\|")
            yield f"| `.{name}{'' if isinstance(member, property) else '()'}` | {text} |"
        yield ""
