"""`doctor --gate`: one line, 0 or 1, within its time even where the driver hangs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.cli.main import run

MACHINES = Path(__file__).parents[1] / "machines"


def _gate(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(["doctor", "--gate", *argv])
    said = capsys.readouterr()
    assert said.out.count("\n") == 1, said
    assert said.err == ""
    return code, said.out


def test_a_good_and_a_bad_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert _gate("--facts", str(MACHINES / "h200"), capsys=capsys) == (0, "firstlight gate: good: nothing blocks\n")
    code, said = _gate("--facts", str(MACHINES / "cudnn-mix"), capsys=capsys)
    assert code == 1
    assert said.startswith("firstlight gate: bad: ")
    assert said.endswith("[cudnn-mix]\n")


def test_a_node_that_only_degrades_is_good_and_says_what_degrades_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert _gate("--facts", str(MACHINES / "l40-seven-of-eight"), capsys=capsys) == (
        0,
        (
            "firstlight gate: good: nothing blocks; what degrades it: Not all GPUs of this machine can be used. "
            "[gpu-left-out]\n"
        ),
    )


@pytest.mark.parametrize(
    ("locked", "here"),
    [("h200", "h200"), ("h200", "h200-no-torch"), ("h200-no-torch", "h200"), ("h200-healthy", "h200-compat-stale")],
)
def test_gate_check_and_fleet_say_the_same_of_a_recording_and_a_lock(
    locked: str, here: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock, folder = str(tmp_path / "firstlight.lock"), tmp_path / "fleet"
    shutil.copytree(MACHINES / here, folder / "n1")
    assert run(["lock", "--facts", str(MACHINES / locked), "--out", lock]) == 0
    by_check = run(["check", "--facts", str(folder / "n1"), "--lock", lock])
    by_fleet = run(["fleet", "doctor", "--facts", str(folder), "--lock", lock])
    capsys.readouterr()
    by_gate, _ = _gate("--facts", str(folder / "n1"), "--lock", lock, capsys=capsys)
    assert (by_check, by_fleet, by_gate) in ((0, 0, 0), (3, 3, 1), (3, 1, 1))


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a driver here")
def test_unknown_counts_as_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _gate(capsys=capsys)
    assert code == 1
    assert said.startswith("firstlight gate: unknown (counts as bad): ")
    code, said = _gate("--unknown", "good", capsys=capsys)
    assert code == 0
    assert said.startswith("firstlight gate: unknown (counts as good): ")


def test_a_drift_from_the_lock_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "firstlight.lock"
    machine = str(MACHINES / "h200")
    assert run(["lock", "--facts", machine, "--out", str(lock)]) == 0
    capsys.readouterr()
    code, said = _gate("--facts", machine, "--lock", str(lock), capsys=capsys)
    assert (code, said.partition(", ")[2]) == (0, "digests of files not compared: these are facts alone\n")
    code, said = _gate("--facts", machine, "--lock", str(lock), "--set", "torch.version=2.5.0+cu118", capsys=capsys)
    assert code == 1
    assert "the lock has" in said


def test_the_verdict_of_health_validation_stands_beside_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verdict.json"
    file.write_text(json.dumps({"overall_severity": "CRITICAL", "affected_components": []}))
    where = ("--facts", str(MACHINES / "h200"), "--node-verdict", str(file))
    code, said = _gate(*where, capsys=capsys)
    assert (code, said) == (0, "firstlight gate: good: nothing blocks; NVIDIA health-validation: CRITICAL\n")
    for text, says in (
        ("{", "not JSON"),
        ("{}", "overall_severity is missing"),
        ('{"overall_severity": "\\u001b"}', "x1b"),
    ):
        file.write_text(text)
        assert run(["doctor", "--gate", *where]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gate", "--json"), "--gate and --json were both given"),
        (("--gate", "--host", "node01"), "a gate runs on its node"),
        (("--lock", "x"), "works only with --gate"),
        (("--gate", "--lock", "/nowhere"), "accepted is a lock"),
    ],
)
def test_a_bad_call(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_driver_that_hangs_is_not_waited_for_and_nothing_of_slurm_is_called(tmp_path: Path) -> None:
    """An nvidia-smi that would answer after a minute: the gate has ended long before."""
    for name in ("nvidia-smi", "sinfo", "scontrol", "squeue", "sacct"):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\ntouch {tmp_path}/{name}.called\nexec sleep 60\n")
        script.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = [sys.executable, "-m", "firstlight", "doctor", "--gate"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=50, env=env)
    assert done.returncode == 1
    assert done.stdout.startswith("firstlight gate: ")
    assert not any((tmp_path / f"{name}.called").exists() for name in ("sinfo", "scontrol", "squeue", "sacct"))
