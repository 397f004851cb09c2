"""The file in which a shelf names wheels to pip and uv, one line each, read again. Pure."""

from __future__ import annotations

import re

_LINE = re.compile(r"(?m)^([a-z0-9][a-z0-9-]*==[\w.+!]+) (--hash=sha256:[0-9a-f]{64}(?: --hash=sha256:[0-9a-f]{64})*)$")


def listed_in(text: str) -> dict[str, str]:
    """name==version -> its line, of a file that a shelf wrote."""
    return {match[1]: match[0] for match in _LINE.finditer(text)}
