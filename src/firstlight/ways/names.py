"""Names of projects as they are compared; apart, so that what needs no more starts without the rest."""

from __future__ import annotations

from firstlight.versions import canonical as normal

__all__ = ["normal"]
