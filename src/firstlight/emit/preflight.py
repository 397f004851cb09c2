"""The gates as shell functions: what a start script asks of a machine before it does anything."""

from __future__ import annotations

from firstlight.emit.gates import Gates
from firstlight.emit.quoting import Quoted
from firstlight.emit.rendering import render
from firstlight.facts.known import Known


def preflight_functions(gates: Gates, machine: str) -> Quoted:
    """driver_version, at_least and check_gates in POSIX sh, for scripts under `set -eu`.

    check_gates says on stderr what does not fit and returns 1. Where the gates have compat branches, it sets
    needs_compat to yes or no: whether the driver that is loaded runs the wheels with the compat library only. Without
    a driver it returns 0, says so, and sets has_driver to no.
    """
    alone = str(gates.min_driver_alone.value) if isinstance(gates.min_driver_alone, Known) else ""
    branches = " ".join(str(branch) for branch in gates.compat_branches)
    capabilities = " ".join(str(each) for each in gates.capabilities)
    with_compat = f", or one of the branches {branches} with its compat library" if branches else ""
    min_l4t = str(gates.min_l4t.value) if isinstance(gates.min_l4t, Known) else ""
    cuda = f" (CUDA {gates.cuda_words} in nvidia-smi)" if gates.allowed_cuda else ""
    return Quoted(
        render(
            "gates.sh.j2",
            machine=machine,
            asks_for_gpu=gates.asks_for_gpu,
            min_driver_alone=alone,
            branches_spaced=f" {branches} " if branches else "",
            driver_words=f"torch {gates.torch} needs {alone} or newer{with_compat}. Take a machine with such a "
            f"driver{cuda}, or emit for this one: firstlight emit --for.",
            min_l4t=min_l4t,
            l4t_words=f"torch {gates.torch} needs Jetson Linux {min_l4t} or newer: a board runs no "
            "CUDA later than that of its own system. "
            "Install that on the board, or emit for this one: firstlight emit --for.",
            capabilities_spaced=f" {capabilities} " if capabilities else "",
            capability_words=f"torch {gates.torch} holds code for {capabilities}. Take another GPU, or emit for this "
            "one: firstlight emit --for.",
        )
    )
