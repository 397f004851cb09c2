"""What autotune keeps: rows of other types and of longer runs stay, nothing is written where nothing was measured."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from firstlight.cli import kernels as cli
from firstlight.errors import BadInput, CouldNotLook, UnsupportedInput
from firstlight.kernels import autotune as tuning
from firstlight.kernels.autotune import Drawn, Tuned, autotune, write_whole
from firstlight.kernels.choice.cases import AttentionCase, ProductCase
from firstlight.kernels.choice.models import models_for
from firstlight.kernels.choice.rows import Card, Machine, Row, cache_file, document, own, with_rows
from firstlight.report.kernels_text import tuned_text
from tests.kernels.choice.measured import H100, UNKNOWN

HALF = ProductCase("multiply", "tokens", 64, "float16", 8192, 8192, 1638, 4096)
SAMPLED = HALF._replace(operation="sample")
WHOLE = HALF._replace(dtype="float32")
PASS = AttentionCase("forward", "full", 128, "float16", 128, 2, 16, 4, 4096, 4096, 1, 0)


def machine(*rows: Row, card: Card = UNKNOWN) -> Machine:
    return Machine(card, "2.11.0", "3.6.0", "2026-11-16", "a test", rows)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """A card without a family; every case takes as many us as the last number of the list says."""
    us = [1]
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "card_of", lambda device: UNKNOWN)
    monkeypatch.setattr(tuning, "_backends_here", lambda device, dtype: ("triton",))
    monkeypatch.setattr(tuning, "Stopwatch", lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())

    def measured(case: Drawn, watch: object, *, backends: tuple[str, ...], seed: int) -> Row:
        return Row(case if isinstance(case, ProductCase) else case.case, (("triton", float(us[-1])),))

    monkeypatch.setattr(tuning, "measured", measured)
    models_for.cache_clear()
    return us


@pytest.mark.parametrize("budget", [0.0, -5.0, 0.5, float("nan")])
def test_a_budget_in_which_nothing_can_be_measured_is_refused(budget: float) -> None:
    with pytest.raises(UnsupportedInput, match=r"the budget is .* seconds; 1 or more is accepted, e\.g\. 110"):
        autotune(budget_s=budget)


def test_a_refused_budget_leaves_the_file_as_it_was(gpu: list[int]) -> None:
    path = cache_file(UNKNOWN.gpu)
    write_whole(path, document((machine(Row(HALF, (("triton", 83.0),))),)))
    before = path.read_bytes()
    for given in ("0", "-5"):
        with pytest.raises(UnsupportedInput):
            cli.command(["autotune", f"--budget={given}"], standalone_mode=False)
    assert path.read_bytes() == before


def test_a_device_below_0_is_refused() -> None:
    with pytest.raises(CouldNotLook, match="CUDA device -1"):
        autotune(budget_s=1, device=-1)


def test_another_type_adds_its_rows_and_the_same_type_measures_its_own_anew(gpu: list[int]) -> None:
    autotune(budget_s=600)
    first = own(UNKNOWN.gpu)
    assert first is not None
    gpu.append(2)
    assert autotune(budget_s=600, dtype="float32").kept == len(first.rows)
    both = own(UNKNOWN.gpu)
    assert both is not None
    assert set(first.rows) < set(both.rows)
    assert {row.case.dtype for row in both.rows} == {"float16", "float32"}
    gpu.append(3)
    autotune(budget_s=600)
    again = own(UNKNOWN.gpu)
    assert again is not None
    assert len(again.rows) == len(both.rows)
    assert {(row.case.dtype, dict(row.us)["triton"]) for row in again.rows} == {("float16", 3.0), ("float32", 2.0)}


def test_a_shorter_run_keeps_what_a_longer_one_measured(gpu: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    long = autotune(budget_s=600)
    clock = iter(range(10_000))
    monkeypatch.setattr(tuning, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    gpu.append(2)
    tuned = autotune(budget_s=10)
    kept = own(UNKNOWN.gpu)
    assert kept is not None
    assert len(tuned.machine.rows) == 10
    assert {row.case for row in kept.rows} == {row.case for row in long.machine.rows}
    assert sum(dict(row.us)["triton"] == 2.0 for row in kept.rows) == 10


def test_nothing_is_written_where_no_case_could_be_timed(gpu: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(case: Drawn, watch: object, *, backends: tuple[str, ...], seed: int) -> Row:
        return Row(case if isinstance(case, ProductCase) else case.case, ())

    monkeypatch.setattr(tuning, "measured", out_of_memory)
    with pytest.raises(CouldNotLook, match="no case could be timed"):
        autotune(budget_s=600)
    assert not cache_file(UNKNOWN.gpu).exists()


def test_a_file_that_cannot_be_read_is_not_written_over(gpu: list[int], tmp_path: Path) -> None:
    target = tmp_path / "mine.json"
    target.write_text("{}")
    with pytest.raises(BadInput, match=r"mine\.json"):
        autotune(budget_s=600, path=target)
    assert target.read_text() == "{}"


def test_rows_of_another_gpu_in_the_same_file_stay(gpu: list[int], tmp_path: Path) -> None:
    target = tmp_path / "mine.json"
    other = machine(Row(HALF, (("sm90", 50.0),)), card=H100)
    write_whole(target, document((other,)))
    autotune(budget_s=600, path=target)
    assert document((other,)).splitlines()[1] in target.read_text().splitlines()


def test_rows_meet_by_their_case_and_keep_the_times_that_were_not_taken_anew() -> None:
    old = machine(
        Row(HALF, (("triton", 83.0), ("sm90", 61.0))), Row(SAMPLED, (("triton", 9.0),)), Row(WHOLE, (("dense", 4.0),))
    )
    new = machine(Row(HALF, (("triton", 80.0),)), Row(PASS, (("dense", 900.0),)))
    [merged] = with_rows((old,), new)
    assert {row.case: dict(row.us) for row in merged.rows} == {
        HALF: {"triton": 80.0, "sm90": 61.0}, SAMPLED: {"triton": 9.0}, WHOLE: {"dense": 4.0}, PASS: {"dense": 900.0},
    }  # fmt: skip
    assert with_rows((), new) == (new,)


def test_the_rows_that_stay_and_the_cases_that_were_too_large_are_told() -> None:
    tuned = Tuned(machine(Row(HALF, (("triton", 83.0),))), "/cache/file", 3, 60.4, kept=12, too_large=2)
    assert tuned_text(tuned).splitlines() == [
        "measured   1 case of 3 in 60 s on NVIDIA Test",
        "           2 cases left out, which no backend had the memory for",
        "           12 rows of earlier runs kept",
        "written    /cache/file",
    ]
