"""Two small cases and their broken sisters, for tests of the runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firstlight.bench.case import Cache, Case, Effort, Place, Prepared
from firstlight.bench.cases.unavailable import Unavailable
from firstlight.bench.operator_counts import add, gemm

KIB = 1 << 10


def product(case_id: str = "gemm/fp32/32x32x32", **changed: Any) -> Case:
    """A product of 32 x 32."""
    import torch

    def prepare(place: Place, sets: int) -> Prepared:
        pairs = [(torch.randn(32, 32), torch.randn(32, 32)) for _ in range(sets)]
        calls: tuple[Callable[[], Any], ...] = tuple(lambda pair=pair: torch.mm(*pair) for pair in pairs)  # type: ignore[misc]

        def check() -> float:
            left, right = pairs[0]
            wanted = left.double() @ right.double()
            return float((calls[0]() - wanted).norm() / wanted.norm())

        return Prepared(calls, check)

    return _case(case_id, "gemm", changed.pop("prepare", prepare), **changed)


def addition(case_id: str = "bandwidth/add/fp32/64KiB", **changed: Any) -> Case:
    """An addition of 16384 numbers."""
    import torch

    def prepare(place: Place, sets: int) -> Prepared:
        one, other = torch.randn(16 * KIB), torch.randn(16 * KIB)
        return Prepared((lambda: one + other,), lambda: 0.0)

    return _case(case_id, "bandwidth", changed.pop("prepare", prepare), **changed)


def raising(error: BaseException, *, after: int = 0, case_id: str = "gemm/broken") -> Case:
    """A case that is prepared, called `after` times, and then raises."""
    left = [after]

    def call() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error

    return product(case_id, prepare=lambda place, sets: Prepared((call,), lambda: 0.0))


def wrong(error_rel: float, case_id: str = "gemm/wrong") -> Case:
    """A case whose result is off by so much."""
    return product(case_id, prepare=lambda place, sets: Prepared((lambda: None,), lambda: error_rel))


def unavailable(reason: str, case_id: str = "sdpa/absent") -> Case:
    """A case whose kernel is not there."""

    def prepare(place: Place, sets: int) -> Prepared:
        raise Unavailable(reason)

    return product(case_id, prepare=prepare)


def _case(case_id: str, family: str, prepare: Callable[[Place, int], Prepared], **changed: Any) -> Case:
    work = add(16 * KIB, element_bytes=4) if family == "bandwidth" else gemm(32, 32, 32, in_bytes=4, out_bytes=4)
    given: dict[str, Any] = {
        "params": (("m", "32"), ("n", "32"), ("k", "32")),
        "dtype": "fp32",
        "peak": "bandwidth" if family == "bandwidth" else "fp32",
        "set_bytes": 12 * KIB,
        "tolerance": 1e-5,
        "cache": Cache.WARM,
        "least_effort": Effort.QUICK,
        "devices": ("cpu", "cuda"),
        **changed,
    }
    return Case(id=case_id, family=family, work=work, prepare=prepare, **given)
