"""Cases of a user's own on the processor: honest ones are timed like ours, planted cheats are caught by name."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator

from firstlight.bench.attempts import Attempt, first_attempt, run_passes
from firstlight.bench.case import Cache, Case, Effort
from firstlight.bench.cases.settings import switches_kept
from firstlight.bench.patience import PATIENCE
from firstlight.bench.results import Verdict
from firstlight.bench.user_cases import Maker, UserCase
from firstlight.bench.user_cases.build import buffer_bytes, cases_of, user_suite
from firstlight.bench.user_cases.guards import NotTrusted, plausible_time
from firstlight.bench.user_cases.load import Loaded
from firstlight.bench.user_cases.seal import seal
from firstlight.cli import main
from tests.bench.test_runner import CPU, HASTY, tools

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "user_kernels"
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/bench-1.json").read_text())
N = 1 << 12


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cheat patches for real; what it may have patched is put back."""
    monkeypatch.setattr(time, "perf_counter", time.perf_counter)
    gc.freeze()  # as the runner does: what is imported by now is left out of the collections between cases
    with switches_kept():
        yield
    gc.unfreeze()


def tried(*cases: Case) -> tuple[Attempt, ...]:
    attempts = [first_attempt(case, CPU) for case in cases]
    return run_passes(attempts, tools(), tell=lambda step: None).attempts


def tried_one(user: UserCase) -> Attempt:
    [attempt] = tried(*cases_of(Loaded((user,), "."), seal(), CPU))
    return attempt


def pair(make: Maker) -> tuple[Any, ...]:
    return make.normal((N,)), make.normal((N,))


def addition(run: Callable[..., Any] = torch.add, **changed: Any) -> UserCase:
    given: dict[str, Any] = {"inputs": pair, "reference": torch.add, "bytes": 12 * N, **changed}
    return UserCase(name="addition", run=run, **given)


# Honest cases


def test_a_python_function_is_timed_in_every_pass_with_its_error_kept() -> None:
    attempt = tried_one(addition())
    assert (attempt.verdict, attempt.reason) == (Verdict.OK, "")
    assert len(attempt.passes) == 3
    assert attempt.error_rel is not None
    assert attempt.error_rel < 1e-6


def test_a_function_that_writes_into_given_outputs_is_timed() -> None:
    user = addition(
        lambda x, y, total, gap: (torch.add(x, y, out=total), torch.sub(x, y, out=gap)),
        outputs=lambda make: (make.empty((N,)), make.empty((N,))),
        reference=lambda x, y: (x + y, x - y),
        bytes=16 * N,
    )
    assert tried_one(user).verdict is Verdict.OK


def test_a_function_that_keeps_a_workspace_and_writes_it_anew_is_no_cheat() -> None:
    kept = torch.empty(N)
    assert tried_one(addition(lambda x, y: torch.add(x, y, out=kept))).verdict is Verdict.OK


def test_a_function_that_is_meant_to_overwrite_its_input_says_so() -> None:
    user = addition(lambda x, y: x.copy_(y * 2), reference=lambda x, y: y * 2, in_place=(0,))
    assert tried_one(user).verdict is Verdict.OK


def test_a_copy_is_no_given_answer() -> None:
    user = UserCase("copy", lambda make: (make.normal((N,)),), torch.clone, torch.clone, bytes=8 * N)
    assert tried_one(user).verdict is Verdict.OK


def test_indices_may_repeat_and_results_may_be_whole_numbers() -> None:
    user = UserCase(
        "gather",
        lambda make: (make.integers((N,), low=0, high=4), make.integers((4,), low=0, high=1 << 40)),
        lambda index, table: table[index],
        lambda index, table: table[index],
        bytes=16 * N,
    )
    assert tried_one(user).verdict is Verdict.OK


def test_an_input_that_has_to_be_constant_is_named_and_flagged() -> None:
    user = addition(inputs=lambda make: (torch.ones(N, device=make.device), make.normal((N,))), may_repeat=(0,))
    attempt = tried_one(user)
    assert attempt.verdict is Verdict.OK
    assert "repeated_input" in attempt.flags


def test_the_memory_of_a_set_is_learned_from_shapes_alone() -> None:
    assert buffer_bytes(addition(bytes=1)) == 12 * N
    huge = addition(inputs=lambda make: (make.normal((1 << 45,)), make.normal((1 << 45,))))
    assert buffer_bytes(huge) == 12 << 45
    [case] = cases_of(Loaded((huge,), "."), seal(), CPU)
    assert "of memory" in case.needs
    by_hand = addition(inputs=lambda make: (torch.randn(N), torch.randn(N)), bytes=77)
    assert buffer_bytes(by_hand) == 77


def test_the_ceiling_is_the_memory_up_to_one_flop_a_byte() -> None:
    users = (addition(), addition(flops=12 * N), addition(flops=12 * N + 1), addition(flops=1, peak="fp64"))
    peaks = [cases_of(Loaded((each,), "."), seal(), CPU)[0].peak for each in users]
    assert peaks == ["bandwidth", "bandwidth", "fp32", "fp64"]
    [case] = cases_of(Loaded((addition(cache=Cache.WARM),), "."), seal(), CPU)
    assert case.cache is Cache.WARM


# Planted cheats


def test_every_planted_cheat_is_caught_by_the_guard_it_is_named_after() -> None:
    attempts = tried(*user_suite(str(EXAMPLES / "cheats.py"))(CPU))
    assert len(attempts) == 11
    for attempt in attempts:
        guard = attempt.case.id.split("/")[1]
        assert attempt.verdict is Verdict.FAILED, attempt.case.id
        assert guard.replace("-", " ") in attempt.reason.replace("-", " "), (attempt.case.id, attempt.reason)


def test_a_patched_clock_is_caught_when_the_file_is_read() -> None:
    [attempt] = tried(*user_suite(str(EXAMPLES / "cheat_clock.py"))(CPU))
    assert attempt.reason.startswith("NotTrusted: patched-instrument: time.perf_counter changed")
    assert attempt.passes == ()


@pytest.mark.parametrize(
    ("owner", "attribute"),
    [
        ("torch.cuda.Event", "elapsed_time"),
        ("torch.cuda.CUDAGraph", "replay"),
        ("torch.Tensor", "norm"),
        ("firstlight.bench.cases.data", "relative_error"),
        ("firstlight.bench.stopwatch", "median"),
        ("firstlight.bench.timers.CpuTimer", "series"),
        ("firstlight.bench.user_cases.prepare", "clock_gettime_ns"),
    ],
)
def test_an_instrument_that_is_replaced_during_a_call_is_caught(
    owner: str, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instruments = seal()
    assert instruments.broken() == ()
    monkeypatch.setattr(f"{owner}.{attribute}", lambda *args: 0.0)
    assert f"{owner}.{attribute}" in instruments.broken()


def test_a_tolerance_that_is_widened_and_a_function_with_new_code_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from firstlight.bench.cases import data

    instruments = seal()
    monkeypatch.setitem(data.TOLERANCE, "fp32", 1.0)
    monkeypatch.setattr(data.poison, "__code__", (lambda tensor: None).__code__)
    assert instruments.broken()[:2] == ("firstlight.bench.cases.data.TOLERANCE", "firstlight.bench.cases.data.poison")


def test_inputs_that_are_the_same_each_time_are_refused() -> None:
    def same(make: Maker) -> tuple[Any, ...]:
        torch.manual_seed(0)
        return torch.randn(N), torch.randn(N)

    assert "constant-data: inputs(make) gives the same numbers" in tried_one(addition(inputs=same)).reason


def test_a_cache_that_looks_at_the_version_of_a_tensor_is_caught() -> None:
    kept: dict[tuple[int, int], Any] = {}

    def run(x: Any, y: Any) -> Any:
        key = (x.data_ptr(), x._version)
        if key not in kept:
            kept[key] = x + y
        return kept[key]

    assert "cached-output" in tried_one(addition(run)).reason


def test_a_reference_that_is_constant_proves_nothing() -> None:
    user = addition(lambda x, y: torch.zeros_like(x), reference=lambda x, y: x * 0)
    assert "constant-output" in tried_one(user).reason


def test_an_output_that_computes_when_it_is_looked_at_is_refused() -> None:
    class Lazy(torch.Tensor):
        pass

    assert "lazy-output" in tried_one(addition(lambda x, y: (x + y).as_subclass(Lazy))).reason


@pytest.mark.parametrize(
    ("run", "guard"), [(lambda x, y: (x + y).half(), "wrong-type"), (lambda x, y: (x + y)[:-1], "wrong-shape")]
)
def test_an_output_of_another_type_or_shape_is_refused(run: Callable[..., Any], guard: str) -> None:
    assert guard in tried_one(addition(run)).reason


def test_a_figure_far_below_what_another_clock_says_is_refused() -> None:
    plausible_time(1e-3, by_other_clock=4.9e-3)
    plausible_time(1e-6, by_other_clock=4e-5)  # mostly Python
    with pytest.raises(NotTrusted, match="other-clock: the figure is 1 ms a call"):
        plausible_time(1e-3, by_other_clock=5.1e-3)


# As it is typed


def test_a_file_is_measured_written_and_judged_alike(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for effort in Effort:
        monkeypatch.setitem(PATIENCE, effort, HASTY)
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\nfrom firstlight.bench.user_cases import UserCase\n"
        "two = lambda make: (make.normal((4096,)), make.normal((4096,)))\n"
        "CASES = [UserCase('good', two, torch.add, torch.add, bytes=49152),\n"
        "         UserCase('bad', two, torch.sub, torch.add, bytes=49152)]\n"
    )
    assert main.run(["bench", "--device", "cpu", str(file), "--effort", "quick", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    Draft202012Validator(SCHEMA).validate(document)
    assert [case["verdict"] for case in document["cases"]] == ["ok", "failed"]
    assert document["cases"][0]["id"] == "user/good"
    assert document["run"]["argv"][:2] == ["bench", "mine.py"]  # so that a second look can be asked for
    assert str(tmp_path) not in json.dumps(document)
    assert main.run(["bench", str(file), "--list", "--only", "user/bad"]) == 0
    assert capsys.readouterr().out == "user/bad\n"


def test_help_names_the_file_and_what_it_has_to_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", "my_kernels.py", "--help"]) == 0
    said = capsys.readouterr().out
    assert "firstlight bench my_kernels.py [OPTIONS]" in said
    assert "Example: firstlight bench my_kernels.py" in said
    assert main.run(["bench", "--help"]) == 0
    assert "FILE.py, FILE.cu" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["torch.float16", "'fp16'", "'half'", "torch.half"])
def test_torch_s_own_dtypes_are_taken_everywhere_one_is_written(
    dtype: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for effort in Effort:
        monkeypatch.setitem(PATIENCE, effort, HASTY)
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\nfrom firstlight.bench.user_cases import UserCase\n"
        f"two = lambda make: (make.normal((4096,), {dtype}), make.uniform((4096,), dtype={dtype}))\n"
        "def run(x, y, out): torch.add(x, y, out=out)\n"
        f"CASES = [UserCase('half', two, run, torch.add, bytes=24576, flops=4096, dtype={dtype}, peak={dtype},\n"
        f"                  outputs=lambda make: (make.empty((4096,), {dtype}),))]\n"
    )
    assert main.run(["bench", str(file), "--device", "cpu", "--effort", "quick", "--json"]) == 0
    [case] = json.loads(capsys.readouterr().out)["cases"]
    assert (case["verdict"], case["dtype"], case["peak"]) == ("ok", "fp16", "fp16")


def test_other_types_of_torch_make_buffers_and_a_name_nobody_knows_is_refused() -> None:
    import torch

    from firstlight.bench.user_cases.declare import Maker

    make = Maker("cpu", torch.Generator())
    assert make.empty((2,), torch.int8).dtype is torch.int8
    with pytest.raises(TypeError, match="dtype is 'fp15'; accepted: torch's own types, fp64"):
        make.normal((2,), "fp15")
