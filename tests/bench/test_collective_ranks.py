"""Ranks for real: torchrun, gloo, processes on this machine; and faults planted into one of them from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from firstlight.bench.results import read_run

pytest.importorskip("torch")

# Python runs this at its start. It changes one call of torch in one rank, and nothing in the others or in torchrun.
PLANTED = """\
import os
if os.environ.get("RANK") == os.environ["PLANTED_RANK"]:
    import signal, time
    import torch.distributed as dist
    fault, name, at = os.environ["PLANTED_FAULT"], os.environ["PLANTED_CALL"], int(os.environ["PLANTED_AT"])
    real, calls = getattr(dist, name), [0]
    def planted(*given, **named):
        if named.get("group") is not None:  # how ranks agree is no part of what is measured
            return real(*given, **named)
        calls[0] += 1
        if calls[0] >= at:
            if fault == "wrong":
                given[-1][-1] += 1
            elif fault == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault == "hangs":
                time.sleep(600)
            elif fault == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
        return real(*given, **named)
    setattr(dist, name, planted)
"""

# Where only what comes out counts, a hundredth of the samples: four ranks wait for one another at full speed.
HURRIED = """\
from dataclasses import replace
from firstlight.bench.case import Effort
from firstlight.bench.patience import PATIENCE
PATIENCE[Effort.QUICK] = replace(PATIENCE[Effort.QUICK], budget_s=0.006, warm_up_s=0.0, warm_up_limit_s=0.001,
                                 block=2, least_samples=2, precise_from=2, most_samples=6, half_width=0.05)
"""


def _environ(
    folder: Path, fault: str = "", rank: int = -1, call: str = "all_reduce", at: int = 1, begins: str = ""
) -> dict[str, str]:
    environ = {**os.environ, "PLANTED_RANK": str(rank), "PLANTED_FAULT": fault, "PLANTED_CALL": call,
               "PLANTED_AT": str(at)}  # fmt: skip
    if begins or fault:
        (folder / "sitecustomize.py").write_text(begins + (PLANTED if fault else ""))
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return environ


def _argv(only: tuple[str, ...], out: Path, *more: str) -> list[str]:
    cases = ",".join(f"collective/{each}" for each in only)
    return [
        sys.executable, "-m", "firstlight", "bench", "--only", cases, "--device", "cpu", "--effort", "quick",
        "--out", str(out), *more,
    ]  # fmt: skip


def _bench(folder: Path, only: tuple[str, ...], *more: str, **plant: Any) -> subprocess.CompletedProcess[str]:
    argv = _argv(only, folder / "run.json", *more)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240, env=_environ(folder, **plant))
    assert "Traceback" not in done.stderr
    return done


def _left() -> list[int]:
    """Ranks and torchruns of ours that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"firstlight.bench.collective" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _cases(folder: Path) -> dict[str, tuple[str, str]]:
    """Verdict and reason by id."""
    return {case.id: (case.verdict.value, case.reason) for case in read_run(str(folder / "run.json")).cases}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Some operations between four ranks, of which rank 2 brings a wrong element to reduce_scatter."""
    import torch.distributed as dist

    call = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"
    folder = tmp_path_factory.mktemp("four")
    names = ("all_reduce", "reduce_scatter", "all_to_all")
    only = (*(f"{name}/cpu4/32KiB" for name in names), "pair/cpu4/1-3/8B")
    return folder, _bench(folder, only, fault="wrong", rank=2, call=call, begins=HURRIED)


def test_a_rank_that_brings_wrong_data_fails_that_case_and_no_other(
    four: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = four
    assert done.returncode == 1, done.stderr
    verdicts = _cases(folder)
    verdict, reason = verdicts.pop("collective/reduce_scatter/cpu4/32KiB")
    assert verdict == "failed"
    assert "rank 3 got" in reason  # the last element is in the part of the last rank
    assert len(verdicts) == 3
    assert set(verdicts.values()) == {("ok", "")}
    wrong = next(case for case in read_run(str(folder / "run.json")).cases if case.verdict.value == "failed")
    assert not wrong.figures
    assert "failed" in done.stdout


def test_the_figures_are_those_of_nccl_tests_and_every_sample_is_kept(
    four: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = four
    run = read_run(str(folder / "run.json"))
    factors = {"all_reduce": 1.5, "all_gather": 0.75, "all_to_all": 0.75, "broadcast": 1, "pair": 1}
    for case in (each for each in run.cases if each.figures):
        [figure] = case.figures
        params = dict(case.params)
        assert figure.rate.gbps == pytest.approx(
            int(params["size_bytes"]) / figure.time_s.median * factors[params["operation"]] / 1e9
        )
        assert len(figure.passes) == 3
        assert all(each.samples for each in figure.passes)
        assert (params["ranks"], params["backend"], case.error_rel) == ("4", "gloo", 0.0)
    assert run.software.torch is not None
    assert any("--only=collective" in word for word in run.run.argv)


def test_what_reads_other_runs_reads_this_one(
    four: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    from firstlight.bench.compare import Strictness, compare_runs, exit_code
    from firstlight.report.bench_csv import bench_csv
    from firstlight.report.bench_markdown import bench_markdown
    from firstlight.tables import load

    folder, _ = four
    run = read_run(str(folder / "run.json"))
    assert exit_code(compare_runs(run, run), Strictness.LENIENT) in (0, 1, 3)
    for text in (bench_csv(run), bench_markdown(run, load())):
        assert "collective/all_reduce/cpu4/32KiB" in text or "all_reduce" in text
    path = str(folder / "run.json")
    for argv in (
        ("bench", "report", path, "--out", str(tmp_path / "page.html")),
        ("bench", "export", path, "--to", "openmetrics", "--out", str(tmp_path / "metrics")),
        ("bench", "export", path, "--to", "junit", "--out", str(tmp_path / "junit.xml")),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "firstlight", *argv], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode in (0, 1), (argv, done.stderr)
    for name in ("page.html", "metrics", "junit.xml"):
        assert "collective/all_reduce/cpu4/32KiB" in (tmp_path / name).read_text(), name


def test_a_rank_that_dies_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    done = _bench(tmp_path, ("all_reduce/cpu2/32KiB", "broadcast/cpu2/8B"), "--processes", "2", fault="dies", rank=1)
    assert done.returncode == 1, done.stderr
    found = _cases(tmp_path)
    assert found["collective/all_reduce/cpu2/32KiB"] == ("failed", "rank 1 was ended by SIGKILL (signal 9)")
    assert found["collective/broadcast/cpu2/8B"][0] == "skipped"
    assert not _left()


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_within_its_time(tmp_path: Path) -> None:
    """It hangs in the second case: the first is kept."""
    only = ("all_reduce/cpu2/8B", "broadcast/cpu2/8B")
    began = time.monotonic()
    done = _bench(tmp_path, only, "--processes", "2", "--timeout", "5", fault="hangs", rank=1, call="broadcast")
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - began < 60
    verdict, reason = _cases(tmp_path)["collective/broadcast/cpu2/8B"]
    assert verdict == "failed"
    assert reason.startswith("rank 1 did not answer within 5 s")
    assert _cases(tmp_path)["collective/all_reduce/cpu2/8B"][0] == "ok"
    assert not _left()


@pytest.mark.slow
def test_every_operation_and_every_pair_is_right_at_every_size_of_quick_effort(tmp_path: Path) -> None:
    argv = [*_argv(("",), tmp_path / "run.json"), "--only", "collective"]
    environ = _environ(tmp_path, begins=HURRIED)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=400, env=environ)
    assert done.returncode == 0, done.stderr
    assert len(_cases(tmp_path)) == 30
    assert set(_cases(tmp_path).values()) == {("ok", "")}


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_that_is_stopped_is_named(tmp_path: Path, rank: int) -> None:
    done = _bench(tmp_path, ("all_reduce/cpu4/8B",), "--timeout", "5", fault="stopped", rank=rank, at=30)
    assert done.returncode == 1, done.stderr
    assert f"rank {rank} did not answer within 5 s" in _cases(tmp_path)["collective/all_reduce/cpu4/8B"][1]
    assert not _left()


def _started(folder: Path) -> subprocess.Popen[str]:
    """A run that has finished its first cases."""
    argv = _argv(("all_reduce",), folder / "run.json", "--max-size", "32KiB", "--processes", "2")
    environ = {**_environ(folder), "TMPDIR": str(folder)}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
    for _ in range(1200):
        if any(json.loads(path.read_text())["cases"] for path in folder.glob("firstlight-collective-*/measured.json")):
            return process
        time.sleep(0.05)
    raise AssertionError("no case was finished")


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_and_leaves_nothing(tmp_path: Path) -> None:
    process = _started(tmp_path)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    run = read_run(str(tmp_path / "run.json"))
    assert run.run.interrupted
    assert any(case.figures for case in run.cases)
    assert not list(tmp_path.glob("firstlight-collective-*"))
    assert not _left()


@pytest.mark.slow
def test_a_killed_run_leaves_no_process(tmp_path: Path) -> None:
    process = _started(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    for _ in range(50):
        if not _left():
            break
        time.sleep(0.1)
    assert not _left()


@pytest.mark.slow
def test_two_nodes_on_one_machine_meet_and_one_of_them_has_the_figures(tmp_path: Path) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    more = ("--processes", "2", "--nodes", "2", "--rendezvous", f"localhost:{port}")
    environ = {**_environ(tmp_path), "GLOO_SOCKET_IFNAME": "lo"}
    nodes = [
        subprocess.Popen(
            _argv(("all_reduce/cpu4-2nodes/32KiB", "pair/cpu4-2nodes/0-3/8B"), tmp_path / f"node-{number}.json", *more),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ,
        )
        for number in range(2)
    ]  # fmt: skip
    said = [node.communicate(timeout=180) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    [written] = tmp_path.glob("node-*.json")
    cases = read_run(str(written)).cases
    assert {dict(case.params)["nodes"] for case in cases} == {"2"}
    assert all(case.figures for case in cases)
    assert sum("rank 0 is on another, and has the figures" in error for _, error in said) == 1
