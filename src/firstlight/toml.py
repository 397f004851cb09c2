"""TOML as values, on every Python: tomllib came with 3.11, tomli is for 3.10, and tomlkit is there in any case."""

from __future__ import annotations

import importlib
import sys
from typing import Any

_READER = "tomllib" if sys.version_info >= (3, 11) else "tomli"


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a document; ValueError ends in '(at line 3, column 7)' where it is none.

    What a fleet's host is sent was packed by a Python that may be newer than the host's 3.10: no tomli is among it.
    """
    try:
        found: dict[str, Any] = importlib.import_module(_READER).loads(text)
    except ModuleNotFoundError:
        return _by_tomlkit(text)
    return found


def _by_tomlkit(text: str) -> dict[str, Any]:
    tomlkit = importlib.import_module("tomlkit")
    try:
        found: dict[str, Any] = tomlkit.parse(text).unwrap()
    except tomlkit.exceptions.ParseError as error:
        said = str(error).removesuffix(f" at line {error.line} col {error.col}")
        raise ValueError(f"{said} (at line {error.line}, column {error.col})") from None
    except tomlkit.exceptions.TOMLKitError as error:  # e.g. a key that stands there twice, without its line
        raise ValueError(f"{error} (at end of document)") from None
    return found
