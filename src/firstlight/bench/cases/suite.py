"""Every case of a place, in the order in which it should run.

What a runner has to know:
- A case whose `needs` is not empty cannot run at this place: it is skipped with that sentence as its reason.
- `prepare` raises Unavailable when only trying could tell that there is no such kernel: skipped with its text.
- Cases flagged 'compile' come last and are dropped by --no-compile; the first of a batch size compiles in `prepare`.
- Params 'items' and 'item' (image, sequence, token) say how many of what one call processes.
- Prepared.flags 'uncaptured': the calls cannot be captured in a graph, or are one already.
- Every call sets the process-wide switches of torch that it depends on, so cases may be interleaved;
  `settings.switches_kept` puts them back after a run.
"""

from __future__ import annotations

import dataclasses

from firstlight.bench.case import Case, Place
from firstlight.bench.cases import (
    attention,
    bandwidth,
    block_sparse,
    convolution,
    cpu,
    decoder,
    encoder,
    gemm,
    resnet,
    rows,
    transfer,
)
from firstlight.bench.cases.needs import is_cpu, memory_needs

WORKSPACE_BYTES = 500_000_000  # beside the buffers: library workspaces, activations, the slices of a check


def ALL_CASES(place: Place) -> tuple[Case, ...]:
    """The cases of a place, each with the reason in `needs` if it cannot run there; ids are unique."""
    if is_cpu(place):
        return cpu.cases()
    families = (
        *gemm.cases(place),
        *bandwidth.cases(place),
        *transfer.cases(place),
        *convolution.cases(place),
        *attention.cases(place),
        *rows.cases(place),
        *block_sparse.cases(place),
        *resnet.cases(place),
        *encoder.cases(place),
        *decoder.cases(place),
        *resnet.compiled_cases(),
    )
    return tuple(_with_memory(case, place) for case in families)


def _with_memory(case: Case, place: Place) -> Case:
    needs = case.needs or memory_needs(case.set_bytes + WORKSPACE_BYTES, place)
    return dataclasses.replace(case, needs=needs)
