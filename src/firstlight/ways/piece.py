"""One download among those of a way."""

from __future__ import annotations

from firstlight.facts.known import Origin
from firstlight.frozen import dataclass
from firstlight.tables.cost_rows import Work


@dataclass(frozen=True, slots=True)
class Piece:
    """A file that is fetched, e.g. torch 2.9.0 with 899738273 bytes, unpacked by pip."""

    name: str
    bytes: int
    basis: str  # sizes on PyPI, 2026-11-15; or: size estimated from torch 2.7.0 of CUDA 12.6
    unpacked_by: Work
    origin: Origin = Origin.SEEN  # ASSUMED: about as something else
