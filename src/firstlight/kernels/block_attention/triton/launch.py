"""Launching an attention kernel: as the products do it, with the named tuples of this package."""

from __future__ import annotations

from typing import Any

import torch

from firstlight.kernels.block_attention.triton.arguments import NUMBERS, POINTERS
from firstlight.kernels.triton_backend import launch
from firstlight.kernels.triton_backend.launch import NO_HOOKS, PLAIN_LAUNCH, DirectRunner, Runner, Spec

_address = torch.Tensor.data_ptr


def flattened(args: tuple[Any, ...]) -> list[Any]:
    """The arguments as the launcher takes them: addresses for tensors."""
    flat: list[Any] = []
    for arg in args:
        kind = type(arg)  # not isinstance: torch.Tensor's takes a microsecond to say no
        if kind in POINTERS:
            flat.append(tuple(map(_address, arg)))
        else:
            flat.append(arg if kind in NUMBERS else arg.data_ptr())
    return flat


class AttentionRunner(DirectRunner):
    """Calls the launcher of Triton 3.6's compiled kernel."""

    def arguments(self, grid: int, args: tuple[Any, ...], stream: int) -> tuple[Any, ...]:
        """All that `launch` takes, as numbers: valid as long as the tensors lie where they are."""
        return (grid, 1, 1, stream, self._function, *PLAIN_LAUNCH, self._packed, *NO_HOOKS, *flattened(args))


def runner_for(spec: Spec, device: torch.device) -> Runner:
    """The runner of a spec on a device; compiled at the first call."""
    return launch.runner_for(spec, device, AttentionRunner)
