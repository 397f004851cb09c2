"""The benchmark of attention without a GPU: what it takes, what it counts, and a dry run through its parts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.attention import calls as calling
from benchmarks.attention import parts as measuring
from benchmarks.attention.calls import forward_error, gradient_error, heads_to_check
from benchmarks.attention.compile import tasks_of
from benchmarks.attention.limits import Traffic, limit_of, traffic_of
from benchmarks.attention.run import PARTS, parsed, told
from benchmarks.attention.verdicts import BARS, judged, verdicts
from benchmarks.attention.work import (
    TINY,
    Inputs,
    Problem,
    Scene,
    Sizes,
    State,
    Wishes,
    auto_problems,
    held_out_problems,
    inputs_of,
    mask_of,
    rows_seen,
    table_problems,
)
from benchmarks.matmul.products import Budget, Entry, Kit

from firstlight.bench.case import Place
from firstlight.kernels.block_attention.functions import attention

ROOT = Path(__file__).parents[1]
KINDS = ("causal", "full", "banded", "document", "random", "top_k")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # too small to be worth sharing
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--out", "x"], "--commit HASH is needed"),
        (["--commit", "abc"], "--out FILE is needed"),
        (["--list", "--only", "table,nothing"], "nothing is not a part; accepted: table,"),
        (["--list", "--budget-s", "0"], "--budget-s must be above 0"),
        (["--list", "--backend", "cudnn"], "invalid choice: 'cudnn'"),
    ],
)
def test_a_wrong_call_is_told_what_is_accepted(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(given)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_what_would_be_measured_is_told_without_a_gpu() -> None:
    text = told(list(PARTS), Scene())
    assert "dense causal: causal/128/fp16/b16-h96-s4096-d128" in text
    assert "64x64 top-64: top_k-0.03736-each/64/fp16/b1-h7-s109632-d128" in text
    assert "random-0.2-heads/128/fp16/b1-h32:4-s32768-d128" in text
    assert "s in all, by estimate" in text


def test_every_bar_has_its_row() -> None:
    names = {problem.name for problem in table_problems(Scene())} | {"backward, density 0.5"}
    assert {bar.row for bar in BARS} <= names


def test_no_two_problems_of_a_part_are_one() -> None:
    for problems in (table_problems(Scene()), tuple(held_out_problems(Scene())), tuple(auto_problems(Scene()))):
        assert len({problem.id for problem in problems}) == len(problems)


def test_the_lists_are_as_dense_as_they_say() -> None:
    sizes = Sizes(2, 8, 8, 4096, 8)
    for share in (3.3 / 32, 0.5, 1.0):
        mask = mask_of(Problem("one", sizes, "random", share), "cpu")
        assert mask.density == pytest.approx(share, abs=0.01)
        assert mask.kinds.shape == (2, 8, 32, 32)
    assert mask_of(Problem("one", sizes, "top_k", 0.125, block=64), "cpu").density == 0.125


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [64, 128])
def test_the_rows_that_are_checked_are_those_of_the_mask(kind: str, block: int) -> None:
    problem = Problem("one", Sizes(1, 2, 1, 300, 16), kind, 0.5, block=block, lists="heads")
    mask = mask_of(problem, "cpu")
    rows = torch.tensor([0, 1, 63, 64, 200, 299])
    seen = mask.to_bool().expand(1, 2, -1, -1)
    for head in range(2):
        assert torch.equal(rows_seen(mask, 0, head, rows), seen[0, head, rows])


def test_a_wrong_result_is_not_within_its_bound() -> None:
    problem = Problem("one", Sizes(1, 4, 2, 200, 32), "random", 0.6, lists="heads")
    inputs = inputs_of(problem, "cpu")

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = attention(q, k, v, inputs.mask, backend="reference", return_lse=True)
        assert isinstance(made, tuple)
        return made

    assert forward_error(problem, inputs, attend) < 0.5
    assert len(heads_to_check(problem)) == 3

    def spoiled(place: int) -> float:
        def attend_wrongly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out, lse = attend(q, k, v)
            if place == 0:
                out[0, 3, -1, -1] += 0.02
            elif place == 1:
                lse[0, 0, 0] += 0.01
            else:
                out[0, 1, 7] = torch.nan  # of a head that is not compared
            return out, lse

        return forward_error(problem, inputs, attend_wrongly)

    assert min(spoiled(place) for place in range(3)) > 1.0


def test_a_wrong_gradient_is_not_within_its_bound() -> None:
    problem = Problem("one", Sizes(1, 2, 1, 150, 16), "random", 0.9, lists="heads")
    inputs = inputs_of(problem, "cpu")
    leaves = tuple(one.detach().requires_grad_() for one in (inputs.q, inputs.k, inputs.v))
    out = attention(leaves[0], leaves[1], leaves[2], inputs.mask, backend="reference")
    assert isinstance(out, torch.Tensor)
    grad = torch.randn_like(out)
    graph = [(out, leaves, grad)]
    right = torch.autograd.grad(out, leaves, grad)
    assert gradient_error(inputs, inputs.mask, lambda: right, graph) < 1.0
    for place in range(3):
        wrong = tuple(one * 1.01 if at == place else one for at, one in enumerate(right))
        assert gradient_error(inputs, inputs.mask, lambda wrong=wrong: wrong, graph) > 1.0  # type: ignore[misc]


def test_the_limit_counts_what_has_to_move_and_to_be_multiplied() -> None:
    sizes = Sizes(16, 96, 96, 4096, 128)
    full = traffic_of(Problem("full", sizes, "full", 0.0), mask_of(Problem("full", sizes, "full", 0.0), "cpu"))
    assert full.issued_flops == 4 * 16 * 96 * 4096**2 * 128
    assert full.hbm_bytes == 4 * 2 * 16 * 96 * 4096 * 128 + 4 * 16 * 96 * 4096 + 8 * 1024
    assert limit_of(full, tensor=745e12, copy=4.2e12) == (full.issued_flops / 745e12, "tensor")
    assert limit_of(Traffic(full.hbm_bytes, 0), tensor=745e12, copy=4.2e12)[1] == "HBM"
    grouped = Problem("one", Sizes(1, 4, 2, 256, 16), "random", 0.5, lists="heads")
    mask = mask_of(grouped, "cpu")
    assert traffic_of(grouped, mask).issued_flops == 4 * mask.blocks * 128 * 128 * 16


def test_bars_are_judged_by_the_row_they_name() -> None:
    rows = [{"name": "dense causal", "ms": 12.0, "times_cudnn": 0.99}]
    assert judged(BARS[0], rows).endswith("12.3 wanted, 11 aimed at: met")
    assert judged(BARS[1], rows).endswith("NOT met")
    assert "not measured" in judged(BARS[2], rows)
    assert "rows that are not ok: none" in verdicts({})


@pytest.mark.parametrize(
    ("backend", "roles"),
    [("sm90", ["ours", "triton", "flex", "cudnn"]), ("triton", ["ours", "flex", "cudnn"])],
)
def test_tritons_gradients_are_timed_beside_the_hopper_kernels(
    monkeypatch: pytest.MonkeyPatch, backend: str, roles: list[str]
) -> None:
    asked: list[str] = []

    def attend(*given: object, backend: str) -> None:
        asked.append(backend)

    def timed(state: object, problem: Problem, inputs: Inputs, entries: dict[str, Entry]) -> dict[str, object]:
        assert list(entries) == roles
        for role in roles[:-2]:
            with contextlib.suppress(AttributeError):  # nothing comes back that a gradient could be asked of
                entries[role].calls[0]()
        return {"name": "backward, density 0.5"}

    monkeypatch.setattr(calling, "attention", attend)
    monkeypatch.setattr(measuring, "_timed_row", timed)
    processor: Any = SimpleNamespace(has_launches=False)
    kit = Kit(Place("cpu", 0, 0, (0, 0)), processor, processor, processor, backend)
    [row] = measuring.backwards(State(kit, TINY, Budget(10.0), {}, Wishes(flex=True, sustain_s=0.0)))
    assert row["computed_by"] == backend
    assert asked == [backend, "triton"][: len(roles) - 2]


def test_what_is_compiled_first_covers_every_kernel_of_the_table() -> None:
    tasks = tasks_of(Scene(), Wishes(flex=True, sustain_s=1.0), "sm90")
    of_ours = 16 + 4  # the one pass has two builds, each with a kernel for its rows
    assert len([task for task in tasks if task[0] == "sm90"]) == of_ours
    assert len([task for task in tasks if task[0] == "flex"]) == 3
    assert ("flex backward", 0) in tasks
    assert len(set(tasks)) == len(tasks)
    assert not [task for task in tasks_of(Scene(), Wishes(flex=False, sustain_s=0.0), "triton") if "flex" in task[0]]


def test_a_dry_run_goes_through_its_parts(tmp_path: Path) -> None:
    out = tmp_path / "dry.json"
    argv = ["-m", "benchmarks.attention", "--dry", "--out", str(out), "--only", "backward,lists,overheads"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *argv], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(out.read_text())
    assert found["dry"]
    assert found["not_reached"] == []
    assert set(found["parts"]) == {"rates", "backward", "lists", "overheads"}
    [row] = found["parts"]["backward"]
    assert row["verdict"] == "ok"
    assert row["error_over_bound"] < 1
    assert "says nothing of speed" in done.stdout


def test_an_input_is_the_same_in_every_process() -> None:
    problem = next(iter(held_out_problems(TINY)))
    one, other = inputs_of(problem, "cpu"), inputs_of(problem, "cpu")
    assert isinstance(one, Inputs)
    assert torch.equal(one.q, other.q)
    assert torch.equal(one.mask.kinds, other.mask.kinds)
