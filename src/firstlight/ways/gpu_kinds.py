"""Ways that set something of GPUs, by nvidia-smi; `kinds.py` has them with all others."""

from __future__ import annotations

from firstlight.frozen import dataclass
from firstlight.ways.way import Way


@dataclass(frozen=True, slots=True)
class ResetGpu(Way):
    """A GPU reset by nvidia-smi with every program off it; "" = all."""

    gpu: str


@dataclass(frozen=True, slots=True)
class SetComputeMode(Way):
    """The compute mode of a GPU back to DEFAULT."""

    gpu: str


@dataclass(frozen=True, slots=True)
class TurnOffMig(Way):
    """MIG switched off on a GPU."""

    gpu: str


@dataclass(frozen=True, slots=True)
class SetPowerLimit(Way):
    """The power limit of a GPU, until the machine is restarted."""

    gpu: str
    watts: int


@dataclass(frozen=True, slots=True)
class MakeImexChannel(Way):
    """The node of IMEX's channel 0, with the number that the driver was given, until the machine is restarted."""
