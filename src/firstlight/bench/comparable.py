"""May two runs be compared at all, and what is different about them."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.bench.results import CaseResult, GpuResult, RunResult
from firstlight.frozen import dataclass

# A change of one of these makes two times two different questions.
_CASE_FIELDS = (("dtype", "dtype"), ("data", "data"), ("cache", "cache state"), ("flops_model", "FLOP model"),
                ("bytes_model", "byte model"), ("flops", "FLOP count"), ("bytes", "byte count"), ("mode", "mode"),
                ("params", "parameters"))  # fmt: skip
_SHOWN_REFUSALS = 5


@dataclass(frozen=True, slots=True)
class Label:
    """Something that differs and may be the point of the comparison: torch, 2.9.1+cu128, 2.11.0+cu130."""

    what: str
    base: str
    new: str


def refusals(base: RunResult, new: RunResult) -> tuple[str, ...]:
    """Why the runs cannot be compared, in sentences; () when they can."""
    reasons = list(_gpu_refusals(base, new))
    pairs = list(paired(base, new))
    if not pairs:
        reasons.append("no case is in both runs")
    cases = [reason for first, second in pairs for reason in _case_refusals(first, second)]
    reasons += cases[:_SHOWN_REFUSALS]
    if len(cases) > _SHOWN_REFUSALS:
        reasons.append(f"{len(cases) - _SHOWN_REFUSALS} more differences between cases of the same name")
    return tuple(reasons)


def labels(base: RunResult, new: RunResult) -> tuple[Label, ...]:
    """What differs but does not forbid a comparison: driver, torch, host, power limit and the like."""
    found = [
        *((f"{name}", getattr(base.software, name), getattr(new.software, name)) for name in _SOFTWARE),
        *((f"host {name}", getattr(base.host, name), getattr(new.host, name)) for name in _HOST),
        ("profile", base.run.profile, new.run.profile),
        ("commit", base.run.commit, new.run.commit),
        ("tool", base.tool, new.tool),
    ]
    for first, second in zip(base.gpus, new.gpus, strict=False):
        where = f"gpu {first.index} " if len(base.gpus) > 1 else ""
        found += [(f"{where}{name}", getattr(first, name), getattr(second, name)) for name in _GPU]
    return tuple(Label(what, _word(old), _word(now)) for what, old, now in found if old != now)


def paired(base: RunResult, new: RunResult) -> Iterator[tuple[CaseResult, CaseResult]]:
    """The cases that both runs have, in the order of the base."""
    again = {(case.id, case.gpu): case for case in new.cases}
    for case in base.cases:
        if (case.id, case.gpu) in again:
            yield case, again[case.id, case.gpu]


_SOFTWARE = ("driver", "cuda", "torch", "cudnn", "nccl", "triton")
_HOST = ("name", "cpu", "os", "container", "python")
_GPU = ("power_limit_w", "clock_max_mhz", "mem_clock_max_mhz", "pcie_gen", "pcie_width", "vbios")


def _gpu_refusals(base: RunResult, new: RunResult) -> Iterator[str]:
    used = sorted({first.gpu for first, _ in paired(base, new)})
    for index in (each for each in used if each >= 0):
        yield from _one_gpu(base.gpus[index], new.gpus[index])
    if -1 in used and base.host.cpu != new.host.cpu and None not in (base.host.cpu, new.host.cpu):
        yield f"CPU model is {base.host.cpu} in the base and {new.host.cpu} in the new run"


def _one_gpu(first: GpuResult, second: GpuResult) -> Iterator[str]:
    for name, meaning in (("name", "GPU model"), ("sms", "number of SMs"), ("ecc", "ECC mode"), ("mig", "MIG mode")):
        old, now = getattr(first, name), getattr(second, name)
        if old != now and None not in (old, now):
            yield f"{meaning} of GPU {first.index} is {_word(old)} in the base and {_word(now)} in the new run"


def _case_refusals(first: CaseResult, second: CaseResult) -> Iterator[str]:
    for name, meaning in _CASE_FIELDS:
        old, now = getattr(first, name), getattr(second, name)
        if old != now:
            yield f"{first.id}: {meaning} is {_word(old)} in the base and {_word(now)} in the new run"
            return


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{name}={each}" for name, each in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not known" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
