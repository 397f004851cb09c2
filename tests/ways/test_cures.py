"""After the right ways a finding is gone because its facts changed; after others it stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal, Question, Severity
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.facts.override import override
from firstlight.tables import load
from firstlight.versions import CudaVersion, DriverVersion
from firstlight.ways.effects import after_all, open_after
from firstlight.ways.kinds import (
    FetchCompat,
    Flavour,
    InstallDriver,
    InstallWheels,
    Package,
    Restart,
    SetComputeMode,
    Unwire,
    WireCompat,
    WiredBy,
)
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import facts_of
from tests.ways.cures import CURES, Cure

TABLES = load()


def _codes(facts: Facts, goal: Goal) -> dict[str, Severity]:
    diagnosis = judge(Question(facts, TABLES, goal), RULES)
    return {finding.code: finding.severity for finding in diagnosis.findings}


def _name(cure: Cure) -> str:
    return f"{cure.machine}: {', '.join(type(way).__name__ for way in cure.ways)}"


@pytest.mark.parametrize("cure", CURES, ids=_name)
def test_the_right_ways_take_a_finding_away_and_others_do_not(cure: Cure) -> None:
    facts = facts_of(cure.machine)
    before = _codes(facts, cure.goal)
    mended = after_all(cure.ways, facts, TABLES)
    left = _codes(mended, cure.goal)
    assert {*cure.gone, *cure.stays} <= before.keys()
    assert not set(cure.gone) & left.keys()
    assert set(cure.stays) <= left.keys()
    assert set(cure.opens) <= set(open_after(facts, mended))
    assert cure.opens or not open_after(facts, mended), "what only running can tell is not said"
    new = {code for code, severity in left.items() if severity is Severity.BLOCKS and code not in before}
    # A shim that reported a newer CUDA hid that the driver is too old for the wheel.
    assert new == ({"driver-too-old-for-wheel"} if cure.machine == "h100-spoofed-version" else set())


def test_a_newer_driver_brings_a_stale_compat_library_to_light() -> None:
    facts = facts_of("h100-driver-570-compat")
    newer = after_all((InstallDriver(595, Flavour.OPEN), Restart()), facts, TABLES)
    assert "compat-stale" in _codes(newer, Goal.INFER)
    wired = (Unwire(("/usr/local/cuda-13.0/compat",), WiredBy.LIBRARY_PATH),)
    assert "compat-stale" not in _codes(after_all(wired, newer, TABLES), Goal.INFER)


def test_a_compat_library_gives_a_wheel_no_code_for_a_gpu() -> None:
    facts = override(facts_of("v100-torch-cu130"), ("driver=535.104.05",))
    library = "cuda_compat-linux-x86_64-590.48.01_cuda13.1-archive.tar.xz"
    fetched = FetchCompat(library, CudaVersion(13, 1), DriverVersion.parse("590.48.01"), "~/compat")
    wired = after_all((fetched, WireCompat("~/compat", CudaVersion(13, 1), (535,))), facts, TABLES)
    left = _codes(wired, Goal.INFER)
    assert "driver-too-old-for-wheel" in _codes(facts, Goal.INFER)
    assert "driver-too-old-for-wheel" not in left
    assert left["arch-not-in-wheel"] is Severity.BLOCKS


def test_another_torch_leaves_the_one_that_hides_it() -> None:
    facts = facts_of("pytorch-checkout-shadows")
    assert isinstance(facts.torch, Known)
    hidden = replace(facts, torch=replace(facts.torch, value=replace(facts.torch.value, found_via="PYTHONPATH")))
    changed = after_all((InstallWheels((Package("torch", "2.15.0"),)),), hidden, TABLES)
    assert changed.torch == hidden.torch
    assert changed.environment != hidden.environment


@pytest.mark.parametrize(
    ("way", "paths"),
    [
        (Restart(), ("libcuda.init_code", "driver.nvml_code")),
        (SetComputeMode("0"), ()),
        (InstallWheels((Package("torch", "2.9.0+cu128"),)), ()),
    ],
)
def test_what_only_running_can_tell_is_named_by_its_path(way: Way, paths: tuple[str, ...]) -> None:
    facts = facts_of("ubuntu-half-upgraded")
    opened = open_after(facts, after_all((way,), facts, TABLES))
    assert set(paths) <= set(opened)
    assert bool(paths) == bool(opened)
