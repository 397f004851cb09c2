"""A product by block rows, started again: the launchers' arguments are kept by the addresses they were made for.

An allocator that reuses memory comes back to the same addresses, so in a steady loop nothing is put together again.
Arguments are numbers: they name addresses and hold no tensor but the lists, which stay as long as this does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firstlight.kernels.index import Index
from firstlight.kernels.lifetimes import DEFAULT_STREAM
from firstlight.kernels.prepared import empty_on
from firstlight.kernels.product import Epilogue
from firstlight.kernels.schedule import schedule_of
from firstlight.kernels.tf32 import tf32_allowed
from firstlight.kernels.torch_private import is_capturing, raw_stream
from firstlight.kernels.triton_backend.launch import DirectRunner
from firstlight.kernels.triton_backend.rows_plan import Operands, RowsPlan

MOST_KEPT = 512  # sets of addresses for one product, about 2 kB each
_raw_stream, _is_capturing = raw_stream, is_capturing


class RowsAgain:
    """A launch as firstlight.kernels.prepared wants it; one kernel, or two where rows are split."""

    __slots__ = (
        "_activation", "_add", "_alpha_beta", "_empty", "_index", "_known", "_ordinal", "_plan", "_room", "_run",
        "_schedule", "still",
    )  # fmt: skip

    def __init__(self, plan: RowsPlan, index: Index, epilogue: Epilogue) -> None:
        assert isinstance(plan.run, DirectRunner)
        self._plan, self._index, self._schedule = plan, index, schedule_of(index)  # it holds the lists
        self._run = plan.run.launch
        self._add = plan.add.launch if isinstance(plan.add, DirectRunner) else None
        self._alpha_beta, self._activation = (epilogue.alpha, epilogue.beta), epilogue.activation
        self._known: dict[tuple[int, ...], tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
        self._ordinal = plan.problem.device.index
        self._room, self._empty = (plan.room(index),), empty_on(plan.problem.device)
        # torch's setting for float32 products is compiled in
        self.still = (lambda: tf32_allowed() == plan.problem.tf32) if plan.problem.dtype is torch.float32 else None

    def __call__(
        self, values: Tensor, dense: Tensor, out: Tensor, bias: Tensor | None, addend: Tensor | None,
        addresses: tuple[int, int],
    ) -> None:  # fmt: skip
        add, stream = self._add, _raw_stream(self._ordinal)
        partials = out if add is None else self._empty(self._room, (1,), torch.float32)
        key = (
            *addresses,
            out.data_ptr(),
            stream,
            0 if bias is None else bias.data_ptr(),
            0 if addend is None else addend.data_ptr(),
            0 if add is None else partials.data_ptr(),
        )
        # a hit is of a stream that has used the lists; a graph has to be told of them, and may have some of its own
        captured = stream != DEFAULT_STREAM and _is_capturing()
        found = None if captured else self._known.get(key)
        if found is None:
            found = self._arguments(key, Operands(values, dense, out), (bias, addend, partials))
            if not captured:
                self._keep(key, found)
        self._run(*found[0])
        if add is not None:
            add(*found[1])

    def _arguments(self, key: tuple[int, ...], operands: Operands, rest: tuple[Any, Any, Tensor]) -> Any:
        bias, addend, partials = rest
        self._index.use()
        alpha, beta = self._alpha_beta
        epilogue = Epilogue(alpha, beta, addend, bias, self._activation)
        made = [
            launch.run.arguments(launch.grid, launch.args, key[3])  # type: ignore[attr-defined] # of a DirectRunner
            for launch in self._plan.launches(self._index, operands, epilogue, partials)
        ]
        return made[0], made[-1]

    def _keep(self, key: tuple[int, ...], arguments: tuple[tuple[Any, ...], tuple[Any, ...]]) -> None:
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[key] = arguments
