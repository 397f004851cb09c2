"""Runs of tiny cases on the processor: order, checks, what goes wrong, and what a result says of it."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from firstlight.bench import runner
from firstlight.bench.attempts import Attempt, Attempts, Tools, Turn, first_attempt, run_passes
from firstlight.bench.case import Case, Effort, Place, Prepared
from firstlight.bench.choice import Choice
from firstlight.bench.clocks import NoGauge
from firstlight.bench.memory import CpuMemory
from firstlight.bench.patience import PATIENCE, Patience
from firstlight.bench.results import RunResult, Verdict, from_json, to_json
from firstlight.bench.runner import BenchSetting, Request, run_bench
from firstlight.bench.stopwatch import Regimes, Stopwatch, Subject
from firstlight.bench.timers import CpuTimer
from firstlight.facts.document import read_machine_or_facts
from firstlight.tables import load
from tests.bench.tiny_cases import addition, product, raising, unavailable, wrong

CPU = Place("cpu", 0, 8 << 30, (0, 0))
HASTY = Patience(
    passes=3, sustained_passes=3, budget_s=0.006, warm_up_s=0.0, warm_up_limit_s=0.001, settle_s=0.0,
    sustain_s=0.0, block=2, least_samples=2, precise_from=2, most_samples=6, half_width=0.05, host_samples=2,
    soak_s=0.0, run_limit_s=10.0,
)  # fmt: skip


def tools(memory: CpuMemory | None = None, patience: Patience = HASTY) -> Tools:
    watch = Stopwatch(CpuTimer(), NoGauge("no NVML"), patience=patience)
    return Tools(CPU, watch, memory or CpuMemory(), patience)


def run(*cases: Case, memory: CpuMemory | None = None, patience: Patience = HASTY) -> Attempts:
    steps: list[Turn] = []
    return run_passes([first_attempt(case, CPU) for case in cases], tools(memory, patience), tell=steps.append)


def only(outcome: Attempts) -> Attempt:
    [attempt] = outcome.attempts
    return attempt


# Order


def test_passes_are_interleaved_and_each_has_buffers_of_its_own() -> None:
    prepared: list[str] = []

    def noted(name: str) -> Case:
        def prepare(place: Place, sets: int) -> Prepared:
            prepared.append(name)
            return Prepared((lambda: None,), lambda: 0.0)

        return product(name, prepare=prepare)

    outcome = run(noted("a"), noted("b"))
    assert prepared == ["a", "b"] * 3
    assert [len(attempt.passes) for attempt in outcome.attempts] == [3, 3]


def test_progress_is_told_of_every_case_in_every_pass() -> None:
    steps: list[Turn] = []
    attempts = [first_attempt(case, CPU) for case in (product("a"), product("b", needs="two GPUs"))]
    run_passes(attempts, tools(), tell=steps.append)
    assert [(step.case_id, step.number, step.pass_number) for step in steps] == [("a", 1, 1), ("a", 1, 2), ("a", 1, 3)]


def test_a_late_run_takes_fewer_samples_instead_of_leaving_cases_out() -> None:
    given: list[float] = []

    class Watch:
        def time_pass(self, subject: Any, *, budget_s: float) -> Any:
            given.append(budget_s)
            return Stopwatch(CpuTimer(), NoGauge("no NVML"), patience=HASTY).time_pass(subject, budget_s=0.001)

    late = replace(HASTY, run_limit_s=0.0)
    attempts = [first_attempt(product(name), CPU) for name in "abc"]
    outcome = run_passes(attempts, Tools(CPU, Watch(), CpuMemory(), late), tell=lambda step: None)
    assert given[0] == late.pass_budget_s
    assert given[-1] == pytest.approx(0.1 * late.pass_budget_s)
    assert all(len(attempt.passes) == 3 for attempt in outcome.attempts)


def test_sustained_figures_are_taken_in_as_many_passes_as_the_effort_has_for_them() -> None:
    asked: list[Regimes] = []

    class Watch:
        def time_pass(self, subject: Subject, *, budget_s: float) -> Any:
            asked.append(subject.regimes)
            return Stopwatch(CpuTimer(), NoGauge("no NVML"), patience=HASTY).time_pass(subject, budget_s=0.001)

    patience = replace(HASTY, sustained_passes=1)
    run_passes([first_attempt(product(), CPU)], Tools(CPU, Watch(), CpuMemory(), patience), tell=lambda step: None)
    assert asked == [Regimes.BOTH_IF_BIG, Regimes.BURST_IF_BIG, Regimes.BURST_IF_BIG]


# Correctness before speed


@pytest.mark.parametrize("error", [0.3, math.nan, math.inf])
def test_a_wrong_result_has_no_speed(error: float) -> None:
    attempt = only(run(wrong(error)))
    assert attempt.verdict is Verdict.FAILED
    assert attempt.reason == f"wrong result: relative error {error:.3g}, accepted up to 1e-05"
    assert attempt.passes == ()


def test_the_check_is_made_once_and_its_error_is_kept() -> None:
    checks: list[int] = []

    def check() -> float:
        checks.append(1)
        return 3e-6

    case = product(prepare=lambda place, sets: Prepared((lambda: None,), check))
    attempt = only(run(case))
    assert (len(checks), attempt.error_rel) == (1, 3e-6)


# What goes wrong


def test_an_exception_fails_its_case_and_the_others_go_on() -> None:
    outcome = run(raising(ValueError("bad stride\n for this")), product())
    broken, fine = outcome.attempts
    assert (broken.verdict, broken.reason) == (Verdict.FAILED, "ValueError: bad stride for this")
    assert (fine.verdict, len(fine.passes)) == (Verdict.OK, 3)


def test_an_exception_in_a_later_pass_takes_the_figures_with_it() -> None:
    passes = [0]

    def prepare(place: Place, sets: int) -> Prepared:
        passes[0] += 1
        if passes[0] == 2:
            raise RuntimeError("lost a handle")
        return Prepared((lambda: None,), lambda: 0.0)

    attempt = only(run(product(prepare=prepare)))
    assert (attempt.verdict, attempt.reason) == (Verdict.FAILED, "RuntimeError: lost a handle")


class OutOfMemoryError(RuntimeError):
    """Named as torch names it."""


def test_out_of_memory_is_a_skip_with_needed_and_free_bytes() -> None:
    outcome = run(raising(OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")), product())
    attempt = outcome.attempts[0]
    assert attempt.verdict is Verdict.SKIPPED
    assert attempt.reason.startswith("out of memory: needs 0.0 GB and working space, ")
    assert attempt.reason.endswith(" GB free")
    assert outcome.attempts[1].verdict is Verdict.OK


def test_a_real_allocation_that_fails_is_a_skip_too() -> None:
    import torch

    def prepare(place: Place, sets: int) -> Prepared:
        torch.empty(1 << 50, dtype=torch.uint8)
        raise AssertionError("nobody has a petabyte")

    assert only(run(product(prepare=prepare))).verdict is Verdict.SKIPPED


def test_a_case_that_cannot_fit_is_not_tried() -> None:
    attempt = only(run(product(set_bytes=9_700_000_000_000)))
    assert attempt.verdict is Verdict.SKIPPED
    assert attempt.reason.startswith("out of memory: needs 9700.0 GB")


def test_what_the_place_lacks_is_a_skip_with_its_reason() -> None:
    needs, absent, elsewhere = run(
        product("a", needs="fp8 needs capability 8.9"),
        unavailable("torch is built without flash attention"),
        product("c", devices=("cuda",)),
    ).attempts
    assert (needs.verdict, needs.reason) == (Verdict.SKIPPED, "fp8 needs capability 8.9")
    assert (absent.verdict, absent.reason) == (Verdict.SKIPPED, "torch is built without flash attention")
    assert (elsewhere.verdict, elsewhere.reason) == (Verdict.SKIPPED, "runs on cuda only")


class LostMemory(CpuMemory):
    """A device whose context a case has destroyed."""

    lost = False

    def finish(self) -> None:
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_lost_context_ends_the_run_and_names_the_case_that_broke_it() -> None:
    memory = LostMemory()

    def prepare(place: Place, sets: int) -> Prepared:
        memory.lost = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    first, broken, after = run(product("a"), product("b", prepare=prepare), product("c"), memory=memory).attempts
    assert (first.verdict, len(first.passes)) == (Verdict.OK, 1)
    assert broken.verdict is Verdict.FAILED
    assert after.verdict is Verdict.SKIPPED
    assert after.reason.startswith("not run: b broke the CUDA context (CUDA error: an illegal memory access")


def test_an_interrupt_keeps_what_is_finished() -> None:
    outcome = run(product("a"), raising(KeyboardInterrupt(), case_id="b"), product("c"))
    first, second, third = outcome.attempts
    assert outcome.interrupted
    assert (first.verdict, len(first.passes)) == (Verdict.OK, 1)
    assert (second.verdict, second.reason) == (Verdict.SKIPPED, "interrupted before it ran")
    assert (third.verdict, third.reason) == (Verdict.SKIPPED, "interrupted before it ran")


# A whole run


def world(*cases: Case) -> BenchSetting:
    return BenchSetting(
        suite=lambda place: cases,
        facts=read_machine_or_facts("example:h100-driver-570"),
        tables=load(),
        tell=lambda step: None,
        say=lambda text: None,
    )


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PATIENCE, Effort.QUICK, HASTY)


def bench(*cases: Case, choice: Choice | None = None) -> RunResult:
    return run_bench(Request(choice or Choice(Effort.QUICK), "cpu", ("bench", "--device=cpu")), world(*cases))


@pytest.mark.usefixtures("hasty")
def test_a_run_on_the_processor_is_a_whole_result_that_can_be_read_back() -> None:
    result = bench(product(), addition(), wrong(1.0), product("gemm/no", needs="two GPUs"))
    assert from_json(to_json(result), "run") == result
    good, stream, bad, skipped = result.cases
    assert [case.verdict for case in result.cases] == [Verdict.OK, Verdict.OK, Verdict.FAILED, Verdict.SKIPPED]
    assert good.gpu == -1
    assert good.shown is not None
    assert len(good.shown.passes) == 3
    assert good.shown.rate.tflops == pytest.approx(2 * 32**3 / good.shown.time_s.median / 1e12)
    assert stream.shown is not None
    assert stream.shown.rate.gbps == pytest.approx(3 * 4 * 16384 / stream.shown.time_s.median / 1e9)
    assert good.shown.limit is None
    assert (bad.figures, skipped.figures) == ((), ())
    assert result.gpus == ()
    assert result.run.gpu_seconds is None
    assert result.host.name == "host-a"


@pytest.mark.usefixtures("hasty")
def test_an_interrupted_run_says_so_and_is_still_a_result() -> None:
    result = bench(product("a"), raising(KeyboardInterrupt(), case_id="b"))
    assert result.run.interrupted
    assert [case.verdict for case in result.cases] == [Verdict.OK, Verdict.SKIPPED]
    assert from_json(to_json(result), "run") == result


@pytest.mark.usefixtures("hasty")
def test_garbage_is_collected_between_cases_and_not_inside_them() -> None:
    states: list[bool] = []

    def prepare(place: Place, sets: int) -> Prepared:
        return Prepared((lambda: states.append(gc.isenabled()),), lambda: 0.0)

    bench(product(prepare=prepare))
    assert set(states) == {False}
    assert gc.isenabled()


@pytest.mark.usefixtures("hasty")
def test_an_interrupt_before_the_first_case_leaves_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, keep: object) -> Sequence[Case]:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_device", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench(product())
