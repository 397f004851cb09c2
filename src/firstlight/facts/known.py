"""A fact is Known (with where it was seen) or Unknown (with the reason). Never None, "" or -1."""

from __future__ import annotations

from typing import Generic, TypeVar, Union

from firstlight.frozen import dataclass

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """A value and where it was seen, e.g. Known(DriverVersion 570.133.20, '/sys/module/nvidia/version')."""

    value: T_co
    seen_in: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """What could not be learned, and why, e.g. Unknown('no nvidia module is loaded')."""

    reason: str


Fact = Union[Known[T], Unknown]


def value_or(fact: Known[T] | Unknown, default: T) -> T:
    """The value where it is known, else the default the caller chose."""
    return fact.value if isinstance(fact, Known) else default
