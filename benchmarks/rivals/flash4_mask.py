"""The mask function that FlashAttention-4 compiles for a window with a sink; imported where it is installed."""

from __future__ import annotations

from typing import Any

import cutlass
from benchmarks.rivals.cases import SINK, WINDOW
from cutlass import cute
from flash_attn.cute.utils import scalar_to_ssa


@cute.jit  # type: ignore[untyped-decorator]
def near_or_first(batch: Any, head: Any, query: Any, key: Any, lengths: Any, given: Any) -> Any:
    """Keys up to the query's place that are near, or among the first."""
    window, sink = scalar_to_ssa(WINDOW, cutlass.Int32), scalar_to_ssa(SINK, cutlass.Int32)
    return (key <= query) & ((query <= key + window) | (key < sink))
