"""Cases of the user's own: `from firstlight.bench.user_cases import UserCase` in a file for `firstlight bench FILE`."""

from __future__ import annotations

from firstlight.bench.case import Cache
from firstlight.bench.user_cases.declare import CudaFile, Grid, Maker, UserCase

__all__ = ["Cache", "CudaFile", "Grid", "Maker", "UserCase"]
