"""Facts of a machine that was asked by its sh alone: what nobody asked there is unknown, with that reason."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts, collect
from firstlight.facts.known import Unknown
from firstlight.machine.recorded import RecordedMachine

BY_SH = "sh"  # what such evidence says that it was recorded by
NO_PYTHON = "the host has no Python 3.10 or newer; its sh was asked, and not for this"


def is_by_sh(machine: RecordedMachine) -> bool:
    return machine.evidence.recorded_by == BY_SH


def collected(machine: RecordedMachine, *, python: str = "") -> Facts:
    """Every fact of a machine elsewhere."""
    facts = collect(machine, python=python)
    if not is_by_sh(machine):
        return facts
    nobody = Unknown(NO_PYTHON)
    libcuda = replace(
        facts.libcuda, would_load=nobody, loaded_path=nobody, driver_cuda=nobody, init_code=nobody, init_name=nobody,
        init_text=nobody, device_count=nobody,
    )  # fmt: skip
    return replace(facts, torch=nobody, torch_libraries=nobody, libcuda=libcuda)
