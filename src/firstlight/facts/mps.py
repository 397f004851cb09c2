"""The Multi-Process Service: whose pipes lie there, and whether the daemon behind them still runs."""

from __future__ import annotations

from firstlight.facts.gpus import GpuFacts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.present import runs_as
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_NAME = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class MpsFacts:
    """The daemon behind the pipes; every CUDA program that finds the pipes goes through it."""

    running: Fact[bool]
    owner_uid: Fact[int]  # a server serves one user at a time


def probe_mps(machine: Machine, gpus: GpuFacts) -> MpsFacts:
    """Whether the control daemon of the pipes that programs would use is alive."""
    pipe = gpus.mps_control
    if isinstance(pipe, Unknown):
        return MpsFacts(pipe, pipe)
    folder = pipe.value.rpartition("/")[0]
    seen = machine.stat(pipe.value)
    owner = Unknown(f"{pipe.value}: {machine.why_not(pipe.value)}") if seen is None else Known(seen.uid, pipe.value)
    return MpsFacts(runs_as(machine, f"{folder}/{_NAME}.pid", _NAME), owner)
