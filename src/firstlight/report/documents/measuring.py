"""The documents of `bench`, `verify`, `profile` and `kernels`."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from firstlight.bench.claim import Remark
from firstlight.bench.comparable import Label
from firstlight.bench.compare import CaseChange, FamilyChange, Lost
from firstlight.bench.results import LimitResult
from firstlight.bench.statistics import Change


class Claimed(TypedDict):
    """The number as it was given; null where it was not."""

    case: str
    shape: str
    dtype: str
    gpu: str | None
    peaks: str
    link: str | None
    ms: float | None
    tflops: float | None
    gbps: float | None
    saturates: bool


class Counted(TypedDict):
    """What the call has to do, and the speed that the claimed time would mean."""

    time_s: float
    flops: int
    dense_flops: int
    bytes: int
    flops_model: str
    bytes_model: str
    tflops: float
    gbps: float
    limit: LimitResult


class ClaimDocument(TypedDict):
    schema: str
    made_by: str
    claim: Claimed
    can_be_true: bool | None
    remarks: list[Remark]
    counted: Counted


class ComparedRun(TypedDict):
    """One of the two runs."""

    id: str
    started: str
    gpus: list[str]
    torch: str | None
    driver: str | None
    passes: int


class CompareDocument(TypedDict):
    schema: str
    made_by: str
    exit_code: Literal[0, 1, 3]
    comparable: bool
    counts: dict[Annotated[str, Change], int]
    base: ComparedRun
    new: ComparedRun
    margin: float
    refused: list[str]
    labels: list[Label]
    cases: list[CaseChange]
    families: list[FamilyChange]
    lost: list[Lost]
    only_in_base: list[str]
    only_in_new: list[str]
    looks: int
    identical: bool
