"""Every case at full size on a real GPU: right results, and the memory that the case says it takes."""

from __future__ import annotations

import gc

import pytest
import torch

from firstlight.bench.case import Case, Place
from firstlight.bench.cases.settings import switches_kept
from firstlight.bench.cases.suite import ALL_CASES
from firstlight.bench.cases.unavailable import Unavailable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]
ROUNDING_BYTES = 4 << 20  # the allocator hands out blocks of 2 MiB
WORKSPACE_BYTES = 3 * (32 << 20)  # cuBLAS takes this much on each stream it meets first: plain, warm-up, capture


def place_here() -> Place:
    properties = torch.cuda.get_device_properties(0)
    free, _ = torch.cuda.mem_get_info()
    return Place("cuda:0", properties.L2_cache_size, free, (properties.major, properties.minor))


def fault_of(case: Case, place: Place) -> str:
    """What is wrong with a case here; '' when it is right or cannot run."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    try:
        prepared = case.prepare(place, 1)
        error = prepared.check()
        prepared.calls[0]()
    except Unavailable:
        return ""
    gc.collect()
    held = torch.cuda.memory_allocated() - before
    if not error <= case.tolerance:
        return f"{case.id}: error {error:.1e}, accepted {case.tolerance:.1e}"
    if (
        "compile" not in case.flags
        and not case.set_bytes <= held + 1 <= 1.01 * case.set_bytes + ROUNDING_BYTES + WORKSPACE_BYTES
    ):
        return f"{case.id}: holds {held} bytes, says {case.set_bytes}"
    return ""


def test_every_case_is_right_at_full_size_and_takes_the_memory_it_says() -> None:
    place = place_here()
    cases = [case for case in ALL_CASES(place) if not case.needs and "compile" not in case.flags]
    with switches_kept():
        faults = [fault for case in cases if (fault := fault_of(case, place))]
    assert not faults, "\n".join(faults)


def test_compiled_rows_are_right() -> None:
    place = place_here()
    cases = [case for case in ALL_CASES(place) if "compile" in case.flags and "/b1/" in case.id]
    with switches_kept():
        faults = [fault for case in cases if (fault := fault_of(case, place))]
    assert not faults, "\n".join(faults)
