"""Names of projects as they are compared; apart, so that what needs no more starts without the rest."""

from __future__ import annotations

import re


def normal(name: str) -> str:
    """A project's name as PEP 503 compares it: flash-attn for flash_attn."""
    return re.sub(r"[-_.]+", "-", name).lower()
