"""The emitted bench job in a real Slurm: two tasks on its one node stand for two nodes, with gloo between them."""

from __future__ import annotations

import shutil
import site
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.bench.results import read_run
from firstlight.emit.kinds import emit
from firstlight.emit.subject import BenchJob, Choices
from tests.apply.wheels import make_wheel
from tests.emit.subjects import NEW_H100, subject, with_own_wheel, write
from tests.system.slurm_cluster import MARKS, PATH, Cluster, started
from tests.system.wheels_again import pack_again, with_needs

pytestmark = MARKS
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(Cluster(tmp_path_factory.mktemp("slurm"), cpus=2)) as made:
        yield made


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script and its wheels; torch in it is a stand-in of the right name, see `prepared`."""
    folder = tmp_path_factory.mktemp("submission")
    choices = Choices(volume=str(folder / "shared"), name="links")
    made = replace(with_own_wheel(subject(NEW_H100, "torch==2.9.0+cpu", choices=choices)), bench=BenchJob(nodes=2))
    write(emit("slurm", made), folder)
    make_wheel(folder / "wheels", "torch", "2.9.0+cpu")
    make_wheel(folder / "wheels", "numpy", "2.4.0")
    for name in with_needs("firstlight"):
        if name != "firstlight":
            pack_again(name, folder / "wheels")
    (folder / "wheels/bundle.json").write_text("{}\n")
    return folder


@pytest.fixture(scope="module")
def prepared(cluster: Cluster, submission: Path) -> Path:
    """Prepared as on a login node; then the torch of the tests in the place of the stand-in: installing it again takes
    minutes, and is what other tests are about."""
    done = cluster.call(
        "bash", "links.sbatch", "--prepare", cwd=submission, PATH=f"{Path(sys.executable).parent}:{PATH}"
    )
    assert done.returncode == 0, done.stderr
    [packages] = (submission / "shared/firstlight").glob("env-*/lib/python3*/site-packages")
    for each in packages.glob("torch*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    for each in packages.glob("numpy*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    (packages / "torch-of-the-tests.pth").write_text(f"{site.getsitepackages()[0]}\n")
    return submission


def test_two_tasks_meet_at_the_first_node_and_one_writes_the_figures(cluster: Cluster, prepared: Path) -> None:
    options = ("--nodes=1", "--ntasks=2", "--ntasks-per-node=2")
    bench = ("--only", "collective/all_reduce/cpu4-2nodes/32KiB", "--processes", "2", "--effort", "quick")
    sent = cluster.call("sbatch", "--parsable", *options, "links.sbatch", *bench, cwd=prepared, GLOO_SOCKET_IFNAME="lo")
    number = sent.stdout.strip()
    assert number, sent.stderr
    for _ in range(600):
        told = cluster.call("scontrol", "show", "job", number).stdout
        if "JobState=COMPLETED" in told or "JobState=FAILED" in told:
            break
        time.sleep(0.2)
    [output] = prepared.glob("links-*.out")
    said = output.read_text()
    assert "JobState=COMPLETED" in told, said
    assert "this node took part; rank 0 is on another, and has the figures" in said
    [case] = read_run(str(prepared / f"links-{number}.json")).cases
    assert (case.verdict.value, dict(case.params)["nodes"], dict(case.params)["ranks"]) == ("ok", "2", "4")
    assert case.figures
