"""`firstlight bench` as it is typed: what it prints, what it writes, its exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from firstlight.bench.case import Effort
from firstlight.bench.cases.suite import ALL_CASES
from firstlight.bench.choice import Choice, chosen, estimated_run_s, estimated_s, matches
from firstlight.bench.patience import PATIENCE
from firstlight.bench.peaks import peaks_named
from firstlight.bench.place import ASSUMED
from firstlight.bench.results import RunResult, Verdict, read_run
from firstlight.bench.runner import Round
from firstlight.cli import main
from firstlight.errors import BadInput
from firstlight.tables import load
from tests.bench.test_runner import HASTY

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/bench-1.json").read_text())


@pytest.fixture(autouse=True)
def quick_and_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(main.VERBS, "bench", ("bench", "measure: the suite, each number with its limit"))
    for effort in Effort:
        monkeypatch.setitem(PATIENCE, effort, HASTY)


def on_cpu(*arguments: str) -> list[str]:
    return ["bench", "--device", "cpu", "--effort", "quick", "--only", "layernorm,softmax", *arguments]


def test_a_machine_without_a_gpu_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main.run(["bench"]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "no CUDA device is usable" in said.err
    assert "firstlight bench --device cpu" in said.err


def test_the_processor_runs_the_whole_flow(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    assert main.run(on_cpu("--out", str(out))) == 0
    said = capsys.readouterr()
    assert "none: timed on the processor" in said.out
    assert "layernorm/fp32/32x128x1024" in said.out
    assert said.out.rstrip().splitlines()[-1].startswith("2 cases measured")
    assert f"wrote {out}" in said.err
    result = read_run(str(out))
    assert [case.verdict for case in result.cases] == [Verdict.OK, Verdict.OK]
    assert result.run.argv == ("bench", "--effort=quick", "--only=layernorm,softmax", "--device=cpu")
    assert out.stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert list(tmp_path.iterdir()) == [out]


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def test_json_is_one_document_that_fits_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(on_cpu("--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["judgement"]["verdict"].startswith("This processor was measured")
    assert next(iter(document)) == "schema"
    Draft202012Validator(SCHEMA).validate(document)


def test_csv_has_one_line_per_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(on_cpu("--csv")) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["id"] for row in rows] == ["layernorm/fp32/32x128x1024", "softmax/fp32/8x12x256x256"]
    assert all(float(row["median_s"]) > 0 for row in rows)
    assert rows[0]["pct_clock"] == ""  # not known on a processor


def test_markdown_has_the_tables_people_post(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(on_cpu("--markdown")) == 0
    text = capsys.readouterr().out
    assert "## LayerNorm & Softmax" in text
    assert "| Operation | Configuration | Median | 95 % interval |" in text
    assert "| LayerNorm FP32 | [32, 128, 1024] |" in text


def with_medians(path: Path, medians: tuple[float, ...]) -> str:
    """The run in a file with these pass medians in every figure, however busy this machine was."""
    document = json.loads(path.read_text())
    for case in document["cases"]:
        case["flags"] = []
        for figure in case["figures"]:
            for each, median in zip(figure["passes"], medians, strict=True):
                each["median"] = median
    changed = path.with_name(f"{medians[0]}.json")
    changed.write_text(json.dumps(document))
    return str(changed)


def test_a_baseline_decides_the_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firstlight.cli import bench

    out = tmp_path / "run.json"
    assert main.run(on_cpu("--out", str(out))) == 0
    fast = with_medians(out, (1.000e-3, 1.001e-3, 0.999e-3))
    slow = with_medians(out, (2.000e-3, 2.002e-3, 1.998e-3))
    looks: list[tuple[str, ...]] = []

    def measured(choice: Choice, given: object, *, look: Round | None = None) -> RunResult:
        looks.append(choice.only)
        return read_run(slow)

    monkeypatch.setattr(bench, "_run", measured)
    assert main.run(on_cpu("--baseline", slow)) == 0
    looks.clear()
    assert main.run(on_cpu("--baseline", fast)) == 1
    assert looks == [("layernorm", "softmax"), ("layernorm/fp32/32x128x1024", "softmax/fp32/8x12x256x256")]
    assert "a second look at 2 cases" in capsys.readouterr().err
    assert main.run(on_cpu("--json", "--baseline", fast)) == 1
    said = capsys.readouterr()
    json.loads(said.out)  # the comparison does not spoil the document
    assert "slower" in said.err


def test_a_change_that_the_second_look_does_not_show_is_no_regression_and_no_all_clear(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firstlight.cli import bench

    out = tmp_path / "run.json"
    assert main.run(on_cpu("--out", str(out))) == 0
    fast = with_medians(out, (1.000e-3, 1.001e-3, 0.999e-3))
    slow = with_medians(out, (2.000e-3, 2.002e-3, 1.998e-3))

    def measured(choice: Choice, given: object, *, look: Round | None = None) -> RunResult:
        return read_run(fast if look is Round.AGAIN else slow)

    monkeypatch.setattr(bench, "_run", measured)
    assert main.run(on_cpu("--baseline", fast, "--out", str(out))) == 3
    said = capsys.readouterr()
    assert "0 slower" in said.out
    assert f"wrote {out}.again" in said.err
    assert main.run(["bench", "compare", fast, str(out)]) == 1
    assert main.run(["bench", "compare", fast, str(out), "--again", f"{out}.again"]) == 3


def test_a_second_look_has_five_passes_in_the_same_process_and_no_idle_check(tmp_path: Path) -> None:
    from firstlight.cli import bench

    given = {"device": "cpu", "out": str(tmp_path / "run.json"), "strict": False, "effort": "quick", "only": "softmax",
             "no_compile": False}  # fmt: skip
    again = bench._run(Choice(Effort.QUICK, ("softmax",)), given, look=Round.AGAIN)
    assert again.run.passes == 5
    assert [len(case.figures[0].passes) for case in again.cases] == [5]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "gem"], "no case is called that"),
        (["--effort", "heroic"], "heroic"),
        (["--device", "gpu"], "accepted: cuda:0"),
        (["--out", "/nonexistent/run.json"], "there is no folder"),
        (["--out", "/"], "is a folder"),
        (["--baseline", "/nonexistent.json"], "no such file"),
        (["gemm"], "firstlight bench --only gemm"),
    ],
    ids=["pattern", "effort", "device", "folder", "is a folder", "baseline", "subcommand"],
)
def test_usage_errors_are_one_line_and_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["bench", "--device", "cpu", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.strip().splitlines()[-1].startswith("firstlight: ")


def test_the_list_names_every_case_and_why_one_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", "--list", "--only", "gemm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("gemm/fp16/8192x8192x8192") for line in lines)
    assert any("skipped: nvfp4" in line for line in lines)


def test_an_estimate_is_seconds_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", "--estimate", "--only", "gemm,bandwidth"]) == 0
    text = capsys.readouterr().out
    assert "gemm" in text
    assert "about " in text.splitlines()[-1]


def test_compare_and_check_claim_are_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", "compare", "--help"]) == 0
    assert main.run(["bench", "check-claim", "--help"]) == 0
    assert "claim" in capsys.readouterr().out


def test_ctrl_c_keeps_finished_cases_and_writes_the_file(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    code = (
        "import sys\nfrom firstlight.bench import progress\nfrom firstlight.cli import main\n"
        "progress.LOG_EVERY_S = 0\nmain.VERBS['bench'] = ('bench', '')\nsys.exit(main.run(sys.argv[1:]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, "bench", "--device", "cpu", "--effort", "standard", "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert child.stderr is not None
    for line in child.stderr:
        if "[2/" in line:
            break
    child.send_signal(signal.SIGINT)
    _, rest = child.communicate(timeout=60)
    assert child.returncode == 130, rest
    result = read_run(str(out))
    assert result.run.interrupted
    assert result.cases[0].verdict is Verdict.OK
    assert {case.reason for case in result.cases[1:]} == {"interrupted before it ran"}


def test_a_killed_run_leaves_its_finished_cases_in_a_file_beside_the_result(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    part = tmp_path / "run.json.part"
    command = [
        sys.executable,
        "-m",
        "firstlight",
        "bench",
        "--device",
        "cpu",
        "--effort",
        "standard",
        "--out",
        str(out),
    ]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    while child.poll() is None and not part.exists():
        time.sleep(0.05)
    child.kill()
    child.wait(timeout=60)
    assert not out.exists()
    result = read_run(str(part))
    assert result.run.interrupted
    assert result.cases[0].verdict is Verdict.OK
    assert {case.reason for case in result.cases[1:]} == {"not reached before the run ended"}


# Which cases


def test_patterns_are_families_starts_of_ids_and_shell_patterns() -> None:
    cases = {case.id: case for case in ALL_CASES(ASSUMED)}
    large = cases["gemm/fp16/8192x8192x8192"]
    assert matches(large, "gemm")
    assert matches(large, "gemm/fp16")
    assert matches(large, "*/8192x*")
    assert not matches(large, "gemm/fp1")
    assert not matches(large, "bmm")


def test_an_effort_takes_its_own_cases_and_those_of_lesser_ones() -> None:
    cases = ALL_CASES(ASSUMED)
    counts = [len(chosen(cases, Choice(effort))) for effort in Effort]
    assert counts == sorted(counts)
    assert counts[-1] == len(cases)


def test_a_pattern_stays_inside_the_effort_unless_only_a_higher_one_has_it() -> None:
    cases = ALL_CASES(ASSUMED)
    quick = chosen(cases, Choice(Effort.QUICK, ("gemm",)))
    assert {case.least_effort for case in quick} == {Effort.QUICK}
    [rigorous] = chosen(cases, Choice(Effort.QUICK, ("gemm/fp8/8192x8192x8192/fp32-sums",)))
    assert rigorous.least_effort is Effort.RIGOROUS


def test_compiled_rows_come_last_and_can_be_left_out_with_a_reason() -> None:
    cases = chosen(ALL_CASES(ASSUMED), Choice(Effort.STANDARD, (), ("compile",)))
    flags = ["compile" in case.flags for case in cases]
    assert flags == sorted(flags)
    assert any(flags)
    assert all(case.needs == "left out by --no-compile" for case in cases if "compile" in case.flags)


def test_a_pattern_that_matches_nothing_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"Did you mean softmax\?"):
        chosen(ALL_CASES(ASSUMED), Choice(Effort.QUICK, ("softmx",)))


def test_estimates_grow_with_the_effort_and_skip_what_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cases, peaks = ALL_CASES(ASSUMED), peaks_named(load(), "h100-sxm")
    assert [estimated_s(case, Effort.QUICK, peaks) for case in cases if case.needs] == [
        0.0 for case in cases if case.needs
    ]
    seconds = {
        effort: estimated_run_s(
            [case for case in chosen(cases, Choice(effort)) if "compile" not in case.flags], effort, peaks
        )
        for effort in Effort
    }
    assert seconds[Effort.QUICK] < PATIENCE[Effort.QUICK].run_limit_s
    assert seconds[Effort.QUICK] < seconds[Effort.STANDARD] < PATIENCE[Effort.STANDARD].run_limit_s
