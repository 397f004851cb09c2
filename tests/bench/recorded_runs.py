"""Runs with known pass medians, for tests of results, limits and compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from firstlight.bench.results import (
    Bound,
    CaseResult,
    Figure,
    GpuResult,
    Health,
    HostResult,
    LimitResult,
    PassResult,
    Rate,
    Regime,
    RunInfo,
    RunResult,
    SoftwareResult,
    Telemetry,
    Verdict,
)
from firstlight.bench.statistics import summarise

GPU = GpuResult(
    index=0,
    uuid="gpu-0",
    name="NVIDIA H200",
    cc="9.0",
    sms=132,
    l2_bytes=62914560,
    mem_bytes=150_000_000_000,
    mem_bus_bits=6144,
    clock_max_mhz=1980.0,
    mem_clock_max_mhz=3201.0,
    power_limit_w=700.0,
    power_default_w=700.0,
    ecc=True,
    mig=False,
    pcie_gen=5,
    pcie_width=16,
    vbios=None,
    peaks="db:h200-sxm",
)


def a_figure(
    medians: Sequence[float],
    *,
    sm_mhz: Sequence[float | None] = (),
    regime: Regime = Regime.BURST,
    bound: Bound = Bound.COMPUTE,
    mem_mhz: float | None = 3201.0,
) -> Figure:
    clocks = sm_mhz or (1755.0,) * len(medians)
    passes = tuple(
        PassResult(median, 11, sm_mhz=clock, mem_mhz=mem_mhz, samples=(median,) * 3)
        for median, clock in zip(medians, clocks, strict=True)
    )
    return Figure(
        regime=regime,
        time_s=summarise([*medians], half_width=0.005, least_n=3),
        passes=passes,
        rate=Rate(tflops=1.0995e12 / medians[0] / 1e12),
        limit=LimitResult(bound=bound, peaks="db:h200-sxm", pct_clock=80.0),
        tier="A",
        telemetry=Telemetry(sm_mhz=(1700.0, 1755.0, 1980.0), reasons_pct=(("sw_power", 31.2),), missing=("energy",)),
    )


def a_case(name: str, *figures: Figure, **changes: Any) -> CaseResult:
    case = CaseResult(
        id=name,
        family=name.partition("/")[0],
        gpu=0,
        params=(("m", "8192"), ("n", "8192"), ("k", "8192")),
        dtype="fp16",
        mode="device",
        cache="n/a",
        data="normal",
        graph_calls=1,
        flops=1099511627776,
        dense_flops=1099511627776,
        bytes=402653184,
        flops_model="gemm-2mnk",
        bytes_model="min-rw",
        peak="fp16",
        verdict=Verdict.OK if figures else Verdict.SKIPPED,
        reason="" if figures else "needs 9.7 GB, 7.9 free",
        headline=figures[0].regime if figures else None,
        figures=figures,
    )
    return replace(case, **changes)


def a_run(*cases: CaseResult, name: str = "run-a", gpu: GpuResult = GPU, torch: str = "2.11.0+cu130") -> RunResult:
    return RunResult(
        tool="firstlight 0.1.0",
        run=RunInfo(name, "2026-11-15T01:02:03Z", "standard", ("bench",), 3, 57.1, 80.0),
        host=HostResult("host-a", "Ubuntu 24.04", "x86_64", "AMD EPYC 9554", "docker", "3.12.3"),
        gpus=(gpu,),
        software=SoftwareResult("580.159.04", "13.0", torch, "9.19", None, "3.6.0"),
        health=Health(throttle_pct=(("sw_power", 31.2),)),
        cases=cases,
    )
