"""A fact is Known (with where it was seen) or Unknown (with the reason). Never None, "" or -1."""

from __future__ import annotations

import enum
from typing import Generic, TypeVar, Union

from firstlight.frozen import dataclass

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
PRETENDED_BY = "--set"  # a facts document has no other mark of a what-if


class Origin(enum.Enum):
    """Where a value comes from: this machine, or a supposition about it."""

    SEEN = "seen"
    WANTED = "wanted"  # --want: judged as if it were installed
    PRETENDED = "pretended"  # --set: a what-if
    ASSUMED = "assumed"  # nobody measured or said it; printed wherever something rests on it
    PLANNED = "planned"  # the machine on paper, after a way was carried out


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """A value and where it was seen, e.g. Known(DriverVersion 570.133.20, '/sys/module/nvidia/version')."""

    value: T_co
    seen_in: str
    origin: Origin = Origin.SEEN


@dataclass(frozen=True, slots=True)
class Unknown:
    """What could not be learned, and why, e.g. Unknown('no nvidia module is loaded')."""

    reason: str


Fact = Union[Known[T], Unknown]


def value_or(fact: Known[T] | Unknown, default: T) -> T:
    """The value where it is known, else the default the caller chose."""
    return fact.value if isinstance(fact, Known) else default
