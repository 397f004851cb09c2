"""`firstlight profile` as it is typed, with a stand-in for Nsight Compute (see stand_in_ncu.py) and the real torch."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from firstlight.cli import main
from firstlight.machine.live import LiveMachine
from firstlight.profile import session
from firstlight.profile.children import case_argv, program_name, run_kept, under_torch_argv
from firstlight.profile.tiers import SHIPPED, read_tiers

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/profile-1.json").read_text())
RUN = str(ROOT / "results/bench-h200-standard.json")
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(main.VERBS, "profile", ("profile", "see inside"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    stand_in = tmp_path / "bin" / "ncu"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!{sys.executable}\n" + Path(__file__).with_name("stand_in_ncu.py").read_text())
    stand_in.chmod(0o755)


def document(capsys: Said, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document, which keeps to its schema."""
    capsys.readouterr()
    options, dashes, words = list(arguments), [], []
    if "--" in arguments:
        place = arguments.index("--")
        options, dashes, words = list(arguments[:place]), ["--"], list(arguments[place + 1 :])
    code = main.run(["profile", *options, "--json", *dashes, *words])
    found = json.loads(capsys.readouterr().out)
    Draft202012Validator(SCHEMA).validate(found)
    return code, found


def values(found: dict[str, Any]) -> dict[str, float | None]:
    return {row["key"]: row["value"] for row in found["values"]}


def test_a_command_is_counted_and_its_report_kept(capsys: Said, tmp_path: Path) -> None:
    code, found = document(capsys, "--bytes", "1000000000", "--", "true")
    assert code == 0
    assert found["source"] == "ncu"
    assert found["tool"] == f"ncu 2025.3.1.0 ({tmp_path}/bin/ncu)"
    assert found["report"] == "profile-true.ncu-rep"
    assert (tmp_path / "profile-true.ncu-rep").is_file()
    assert found["excess_traffic"] == pytest.approx(1.2)
    assert values(found)["tensor_pct"] == pytest.approx(81)  # 90 % of 0.9 ms, 0 of 0.1 ms
    assert values(found)["sm_clock_hz"] == pytest.approx(1.74e9)
    assert [kernel["time_s"] for kernel in found["kernels"]] == pytest.approx([9e-4, 1e-4])
    assert found["work"]["kind"] == "tensor"
    assert [tier["met"] for tier in found["tiers"]] == ["not known", "met", "not known"]


def test_a_second_report_does_not_take_the_place_of_the_first_unless_it_is_named(capsys: Said, tmp_path: Path) -> None:
    reports = [document(capsys, *more, "--", "true")[1]["report"] for more in ((), (), ("--report", "x.ncu-rep"))]
    assert reports == ["profile-true.ncu-rep", "profile-true-2.ncu-rep", "x.ncu-rep"]
    assert all((tmp_path / report).is_file() for report in reports)


def test_a_report_is_read_again_without_running_anything(capsys: Said) -> None:
    _, first = document(capsys, "--launches", "1", "--", "true")
    code, again = document(capsys, "--from", first["report"])
    assert code == 0
    assert again["kernels"] == first["kernels"]
    assert len(again["kernels"]) == 1
    assert first["notes"] == ["counting ended at launch 1, as asked; --launches 0 counts all"]
    assert again["tiers"][0]["conditions"][0] == {"text": "ran", "met": "not known", "saw": "not seen to its end"}


def test_what_a_program_prints_goes_to_stderr_and_the_text_answers_first(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["profile", "--bytes", "1000000000", "--", "echo", "hello from the program"]) == 0
    said = capfd.readouterr()
    assert "hello from the program" in said.err
    assert said.out.count("hello") == 1  # in the command's own line
    lines = said.out.splitlines()
    assert lines[2].startswith("verdict ")
    assert "1.2 GB moved to and from memory, 1 GB at least: 1.2 times the least" in said.out
    assert "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active" in said.out
    assert "\x1b" not in said.out


def test_names_of_people_stay_out_of_the_document_unless_asked_for(capsys: Said) -> None:
    command = ("--", "sh", "-c", "true /home/alice/train.py")
    assert document(capsys, *command)[1]["what"] == "sh -c 'true /home/user-b/train.py'"
    assert document(capsys, "--identify", *command)[1]["what"] == "sh -c 'true /home/alice/train.py'"


def test_a_missing_counter_is_gone_around_or_said(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_NCU", "old-stall")
    assert values(document(capsys, "--", "true")[1])["stall_long_scoreboard_pct"] == pytest.approx(42)
    monkeypatch.setenv("STAND_IN_NCU", "no-dram")
    code, found = document(capsys, "--", "true")
    assert code == 0
    [dram] = [row for row in found["values"] if row["key"] == "dram_pct"]
    assert dram["why_not"] == "this chip has no dram__throughput.avg.pct_of_peak_sustained_elapsed"


def test_forbidden_counters_are_said_and_the_real_torch_profiler_takes_over(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STAND_IN_NCU", "forbidden")
    (tmp_path / "program.py").write_text(
        "import sys\nassert sys.argv[1:] == ['--size', '8']\n"
        "if torch := sys.modules.get('torch'):  # the second time; importing it twice would take seconds\n"
        "    torch.ones(64, 64) @ torch.ones(64, 64)\n"
    )
    code, found = document(capsys, "--", sys.executable, "-W", "ignore", "program.py", "--size", "8")
    assert code == 4
    assert found["source"] == "torch profiler"
    assert found["trouble"]["code"] == "counters-forbidden"
    assert found["trouble"]["do"]
    assert "aten::mm" in [kernel["name"] for kernel in found["kernels"]]
    assert found["report"] is None
    assert not any(kernel["on_gpu"] for kernel in found["kernels"])


def test_a_program_that_is_not_pythons_is_not_run_a_second_time(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STAND_IN_NCU", "forbidden")
    code, found = document(capsys, "--", "sh", "-c", "echo once >> ran.txt")
    assert (code, found["source"], found["kernels"]) == (4, "nobody", [])
    assert (tmp_path / "ran.txt").read_text() == "once\n"


@pytest.mark.parametrize(
    ("mode", "trouble"),
    [
        ("taken", "counters-taken"),
        ("no-kernels", "no-kernels"),
        ("dumb", "library-not-loaded"),
        ("strange", "no-report"),
    ],
)
def test_other_reasons_for_no_counters_end_with_4(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, mode: str, trouble: str
) -> None:
    monkeypatch.setenv("STAND_IN_NCU", mode)
    code, found = document(capsys, "--", "true")
    assert (code, found["trouble"]["code"]) == (4, trouble)
    assert main.run(["profile", "--", "true"]) == 4
    assert "no counters" in capsys.readouterr().out


def test_a_program_that_fails_is_the_programs_fault_and_not_run_again(capsys: Said, tmp_path: Path) -> None:
    code, found = document(capsys, "--", "sh", "-c", "echo once >> ran.txt; exit 3")
    assert (code, found["trouble"]["code"]) == (1, "program-failed")
    assert "exit status 3" in found["trouble"]["says"]
    assert (tmp_path / "ran.txt").read_text() == "once\n"


def test_a_program_that_takes_too_long_ends_with_4(capsys: Said) -> None:
    code, found = document(capsys, "--limit", "0.5", "--", "sleep", "60")
    assert (code, found["trouble"]["code"]) == (4, "timed-out")
    assert "--launches" in found["trouble"]["do"][0]


def test_a_program_without_an_end_is_ended_with_its_children(tmp_path: Path) -> None:
    ended = run_kept(("sh", "-c", "(echo $$ > pid; sleep 60); true"), limit_s=1, out=tmp_path / "out")
    assert not ended.in_time
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_no_ncu_at_all_says_how_to_get_it(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "bin" / "ncu").unlink()
    code, found = document(capsys, "--", "true")
    assert (code, found["trouble"]["code"]) == (4, "no-ncu")
    assert "Nsight Compute" in found["trouble"]["do"][0]


def test_a_tier_that_is_needed_and_not_reached_fails(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "[[tier]]\nname = 'busy'\nrequire = ['tensor_pct >= 80']\n[[tier]]\nname = 'full'\nrequire = ['warps >= 80']\n"
    )
    assert main.run(["profile", "--tiers", "mine.toml", "--", "true"]) == 2
    assert "'warps' is not a metric" in capsys.readouterr().err
    text = (tmp_path / "mine.toml").read_text().replace("warps", "sm__warps_active")
    (tmp_path / "mine.toml").write_text(text)
    code, found = document(capsys, "--tiers", "mine.toml", "--need", "busy", "--", "true")
    assert (code, found["reached"]) == (0, "busy")
    assert found["notes"] == [
        "sm__warps_active was taken as warps_active_pct: needs its suffix: .avg.pct_of_peak_sustained_active"
    ]
    assert main.run(["profile", "--tiers", "mine.toml", "--need", "full", "--", "true"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing is named; accepted: a case"),
        (["--"], "nothing is named"),
        (["a", "b"], "neither one case nor a command"),
        (["gemm", "--", "true"], "neither one case nor a command"),
        (["--need", "T9", "--", "true"], "accepted: T1, T2, T3"),
        (["--report", "x.txt", "--", "true"], ".ncu-rep"),
        (["--report", "none/x.ncu-rep", "--", "true"], "--report none/x.ncu-rep: there is no folder"),
        (["--from", "none.ncu-rep"], "no such file"),
        (["--from", "bin/ncu"], "reads no kernels"),
        (["--bench", "x", "--no-bench", "--", "true"], "give one of them"),
        (["--", "./no-such-program"], "cannot be started"),
        (["--device", "cpu", "gemm"], "means 2 cases; a profile covers one. Name it: gemm/fp32/1024x1024x1024"),
        (["--device", "cpu", "gem"], "no case is called that"),
        (["nope/case"], "'nope/case': no case is called that; accepted: a family (bandwidth, "),
        (["gemm"], "cases; a profile covers one. Name it: gemm/fp16/"),
        (["--device", "cpu", "--bench", RUN, "softmax"], "was not measured there"),
    ],
)
def test_a_bad_call_is_one_line_and_exit_code_2(capsys: Said, arguments: list[str], says: str) -> None:
    assert main.run(["profile", *arguments]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_case_on_the_processor_is_checked_and_timed_by_the_torch_profiler(capsys: Said) -> None:
    code, found = document(capsys, "--device", "cpu", "--no-bench", "softmax")
    assert code == 0
    assert found["what"] == "softmax/fp32/8x12x256x256"
    assert (found["source"], found["trouble"]) == ("torch profiler", None)
    assert found["work"]["correct"] is True
    assert found["limit"]["seen_in"] == "left out by --no-bench"
    assert found["kernels"][0]["name"] == "aten::_softmax"


def test_a_case_under_the_profiler_is_checked_before_it_is_counted(tmp_path: Path) -> None:
    """The child that Nsight Compute starts, on a processor: its marks are left out there, the rest is the same."""
    answer = tmp_path / "answer.json"
    argv = case_argv("layernorm/fp32/32x128x1024", "cpu", answer=answer, looker="counters")
    looked = session._count(
        LiveMachine(),
        argv,
        wanted=session.Wanted(read_tiers(SHIPPED)),
        work=tmp_path,
        options=("--profile-from-start", "off", "--cache-control", "all"),
        start=lambda words: run_kept(words, limit_s=100, out=tmp_path / "out"),
    )
    assert len(looked.kernels) == 2
    assert looked.answer is not None
    assert 0 <= looked.answer["error_rel"] <= looked.answer["tolerance"]


def test_the_lists_say_what_the_reports_names_are_today(capsys: Said) -> None:
    assert main.run(["profile", "--list"]) == 0
    assert "smsp__stall_memory_dependency" in capsys.readouterr().out
    assert main.run(["profile", "--show-tiers"]) == 0
    assert "[[changed]]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        (("python", "a.py", "-v"), ("a.py", "-v")),
        (("/usr/bin/python3.12", "-u", "-X", "dev", "-m", "mod"), ("-m", "mod")),
        (("python3", "-c", "pass"), ("-c", "pass")),
        (("python",), ()),
        (("python", "-m"), ()),
        (("./a.out",), ()),
        (("pythonish", "a.py"), ()),
    ],
)
def test_pythons_programs_are_told_from_others(command: tuple[str, ...], rest: tuple[str, ...], tmp_path: Path) -> None:
    argv = under_torch_argv(command, tmp_path / "answer.json")
    assert argv[len(argv) - len(rest) :] == rest
    assert bool(argv) == bool(rest)


def test_a_report_is_named_for_the_program() -> None:
    assert program_name(("python", "-u", "dir/train.py", "x")) == "train"
    assert program_name(("python", "-m", "pkg.mod")) == "pkg.mod"
    assert program_name(("python", "-c", "print(1)")) == "python"
    assert program_name(("./my_kernel", "--size", "4")) == "my_kernel"


@pytest.mark.gpu
def test_a_product_on_the_gpu_is_counted_by_the_real_ncu(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not os.path.exists("/dev/nvidiactl"):
        pytest.skip("no GPU")
    (tmp_path / "bin" / "ncu").unlink()
    monkeypatch.setenv("PATH", f"/usr/local/cuda/bin:{os.environ['PATH']}")
    code, found = document(capsys, "--no-bench", "gemm/fp16/4096x4096x4096")
    if found["trouble"] is not None and found["trouble"]["code"] in ("no-ncu", "counters-forbidden"):
        pytest.skip(found["trouble"]["says"])
    assert code == 0
    tensor = values(found)["tensor_pct"]
    assert tensor is not None
    assert 30 < tensor <= 100
    assert found["excess_traffic"] > 0.5
