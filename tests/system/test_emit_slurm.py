"""The emitted batch script in a real Slurm of one node: parsed by sbatch, prepared once, run behind the gates."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.emit.kinds import emit
from firstlight.emit.subject import Choices
from tests.apply.wheels import make_wheel
from tests.emit.subjects import NEW_H100, subject, with_own_wheel, write
from tests.system.slurm_cluster import MARKS, Cluster, started
from tests.system.wheels_again import pack_again, with_needs

pytestmark = MARKS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with started(Cluster(folder)) as made:
        yield made


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script, the wheels it installs and firstlight's own, and a shared folder beside."""
    folder = tmp_path_factory.mktemp("submission")
    choices = Choices(volume=str(folder / "shared folder"), name="bring-up")
    write(emit("slurm", with_own_wheel(subject(NEW_H100, choices=choices))), folder)
    make_wheel(folder / "wheels", "torch", "2.9.0+cu130")
    make_wheel(folder / "wheels", "numpy", "2.4.0")
    for name in with_needs("firstlight"):
        if name != "firstlight":
            pack_again(name, folder / "wheels")
    (folder / "wheels/bundle.json").write_text("{}\n")
    return folder


def test_sbatch_takes_the_script(cluster: Cluster, submission: Path) -> None:
    done = cluster.call("sbatch", "--test-only", "bring-up.sbatch", cwd=submission)
    assert done.returncode == 0, done.stderr
    assert "to start at" in done.stderr


def test_a_directive_of_the_script_is_read_and_an_impossible_one_refused(cluster: Cluster, submission: Path) -> None:
    done = cluster.call("sbatch", "--test-only", "--gres=gpu:9", "bring-up.sbatch", cwd=submission)
    assert done.returncode != 0
    assert "not available" in done.stderr or "cannot be satisfied" in done.stderr


def _job(cluster: Cluster, submission: Path, *command: str, **environ: str) -> tuple[int, str]:
    for old in submission.glob("bring-up-*.out"):
        old.unlink()
    number = cluster.call("sbatch", "--parsable", "bring-up.sbatch", *command, cwd=submission, **environ).stdout.strip()
    for _ in range(600):
        told = cluster.call("scontrol", "show", "job", number).stdout
        if match := re.search(r"JobState=(?:COMPLETED|FAILED) .*?ExitCode=(\d+):", told, re.DOTALL):
            [output] = submission.glob("bring-up-*.out")
            return int(match[1]), output.read_text()
        time.sleep(0.2)  # sbatch --wait asks after 2, 4, 8 ... seconds
    raise AssertionError(told)


def test_a_node_without_a_driver_starts_nothing(cluster: Cluster, submission: Path) -> None:
    if Path("/sys/module/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    code, output = _job(cluster, submission, "echo", "started")
    assert code == 1, output
    assert "no NVIDIA driver, so no GPU" in output
    assert "started" not in output.splitlines()


def test_a_command_runs_in_the_environment_and_the_second_job_makes_nothing(cluster: Cluster, submission: Path) -> None:
    program = "import os, sys, torch; print(torch.VERSION, sys.prefix, sys.argv[1:], os.environ['SLURM_STEP_ID'])"
    for number in range(2):
        code, output = _job(cluster, submission, "python", "-c", program, "a b", "$(c)", NVIDIA_DISABLE_REQUIRE="1")
        assert code == 0, output
        line = next(each for each in output.splitlines() if each.startswith("2.9.0+cu130"))
        assert f"{submission}/shared folder/firstlight/env-" in line
        assert line.endswith("['a b', '$(c)'] 0")
        assert number == 0 or "making" not in output
        assert "making" not in output or "/tool-" not in output  # a command is not proved, and needs no firstlight


def test_it_can_be_prepared_where_no_job_runs(cluster: Cluster, submission: Path) -> None:
    done = cluster.call("bash", "bring-up.sbatch", "--prepare", cwd=submission)
    assert done.returncode == 0, done.stderr
    assert "firstlight: ready: " in done.stderr
    shared = submission / "shared folder/firstlight"
    [program] = shared.glob("tool-*/bin/firstlight")
    assert cluster.call(str(program), "--version").stdout.startswith("firstlight")
    again = cluster.call("bash", "bring-up.sbatch", "--prepare", cwd=submission)
    assert again.stderr.startswith("firstlight: ready: ")


def test_fleet_doctor_looks_at_the_nodes_of_a_partition(cluster: Cluster, tmp_path: Path) -> None:
    """The real sinfo names the node; no ssh leads to it, which is said of it by name."""
    config = tmp_path / "ssh_config"
    config.write_text("Host *\n    ProxyCommand false\n")
    doctor = (str(Path(sys.executable).parent / "firstlight"), "fleet", "doctor", "--ssh-config", str(config))
    done = cluster.call(*doctor, "--slurm", "gpu", "--json", "--identify")
    assert done.returncode == 4, done.stderr
    [row] = json.loads(done.stdout)["rows"]
    assert (row["hosts"], row["verdict"]) == ([cluster.host], "not looked at")
    done = cluster.call(*doctor, "--slurm", "nosuch")
    assert done.returncode == 2
    assert "sinfo names no node of it" in done.stderr
