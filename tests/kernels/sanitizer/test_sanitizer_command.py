"""The command that runs compute-sanitizer: what it accepts, finds, starts and writes down."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from benchmarks.sanitizer.orders import UNNAMED
from benchmarks.sanitizer.run import Ask, command_of, find_sanitizer, main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tool", "memchek"], "--tool: memchek is not known; accepted: memcheck,racecheck,synccheck,initcheck"),
        (
            ["--what", "multiply,divide"],
            "--what: divide is not known; accepted: multiply,epilogue,sample,turn,pitch,lists,mask_lists,"
            "attention,gradient",
        ),
        ([], "--out FILE and --commit HASH are needed"),
        (["--judge", "/nonexistent"], "--judge /nonexistent: no result of this script"),
    ],
)
def test_a_bad_call_says_what_is_accepted(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_tool_is_found_on_the_path_then_in_cuda_home_then_under_usr_local(tmp_path: Path) -> None:
    assert find_sanitizer({"PATH": str(tmp_path)}, root=tmp_path) == ""
    old = executable(tmp_path / "usr/local/cuda-12.9/bin/compute-sanitizer", "")
    new = executable(tmp_path / "usr/local/cuda-13.0/compute-sanitizer/compute-sanitizer", "")
    assert find_sanitizer({"PATH": ""}, root=tmp_path) == str(new)
    assert find_sanitizer({"PATH": "", "CUDA_HOME": str(old.parents[1])}, root=tmp_path) == str(old)
    first = executable(tmp_path / "bin/compute-sanitizer", "")
    assert find_sanitizer({"PATH": str(first.parent)}, root=tmp_path) == str(first)


def test_without_the_tool_the_answer_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_sanitizer({"PATH": ""}):
        pytest.skip("this machine has one under /usr/local")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        main(["--out", str(tmp_path / "x.json"), "--commit", "abc"])
    assert stop.value.code == 2
    assert "was not found on PATH, in CUDA_HOME" in capsys.readouterr().err


def test_only_our_kernels_are_slowed_but_initcheck_sees_all_writes() -> None:
    race = command_of("/x/compute-sanitizer", Ask("racecheck", ("multiply",), 5.0))
    assert [word for word in race if word.startswith("kne=")] == ["kne=multiply", "kne=turn"]
    assert "--num-cuda-barriers" in race
    assert "--report-api-errors" not in race
    assert not any("kernel-name" in word for word in command_of("x", Ask("initcheck", ("multiply",), 5.0)))
    memory = command_of("x", Ask("memcheck", ("attention",), 5.0))
    assert memory[memory.index("--report-api-errors") + 1] == "no"


STAND_IN = """\
#!{python}
import subprocess, sys
if sys.argv[1:] == ["--version"]:
    print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.1.0 (build 36398880) (public-release)")
    sys.exit(0)
tool = sys.argv[sys.argv.index("--tool") + 1]
child = sys.argv[sys.argv.index("-m") - 1:]
child[child.index("--child")] = "--dry"
print("========= COMPUTE-SANITIZER", flush=True)
status = subprocess.call(child)
if tool == "racecheck":
    print("========= Error: Race reported between Write access at turn+0x10 in turn.cu:43")
    print("=========     and Read access at turn+0x20 in turn.cu:53 [2 hazards]\\n=========")
    print("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)")
else:
    print("========= ERROR SUMMARY: 0 errors")
sys.exit(status or (86 if tool == "racecheck" else 0))
"""


def test_a_whole_run_is_written_down_and_an_unnamed_race_can_be_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stand-in speaks the tool's language and runs the child on the processor."""
    executable(tmp_path / "bin/compute-sanitizer", STAND_IN.format(python=sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{Path.cwd() / 'src'}:{Path.cwd()}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    out = tmp_path / "result.json"
    common = ["--out", str(out), "--commit", "abc", "--what", "turn", "--most", "1", "--jobs", "0", "--budget-s", "500"]
    assert main([*common, "--tool", "memcheck,racecheck"]) == 1
    found = json.loads(out.read_text())
    assert (found["schema"], found["commit"]) == ("firstlight.kernels-sanitizer/1", "abc")
    assert found["sanitizer"] == "2025.3.1.0 (build 36398880)"
    assert found["tools"]["memcheck"]["verdict"] == "clean: 1 cases, no report"
    race = found["tools"]["racecheck"]
    assert race["groups"][0]["order"] == UNNAMED
    assert race["command"][:3] == ["compute-sanitizer", "--tool", "racecheck"]
    assert main(["--judge", str(out)]) == 1
    assert main([*common, "--tool", "memcheck"]) == 1  # racecheck's of the same commit stays
    assert json.loads(out.read_text())["tools"].keys() == {"memcheck", "racecheck"}
    race["output"] = [line for line in race["output"] if "Race" not in line and "and Read" not in line]
    out.write_text(json.dumps(found))
    assert main(["--judge", str(out)]) == 0
    assert "racecheck: clean: 1 cases, no report" in capsys.readouterr().out
