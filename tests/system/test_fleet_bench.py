"""`fleet verify` and `fleet bench`: the real Ansible over real ssh, on roots with a torch for processors."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.bench.results import read_run
from firstlight.fleet.inventory import ansible_program
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.system.fleet_hosts import OF_THIS_MACHINE, PACKAGES, Room, free_port, make_base, python_of
from tests.system.fleet_lab import Lab, files, jobs, stop

TORCH = importlib.util.find_spec("torch")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(shutil.which("ssh") is None or TORCH is None, reason="needs ssh and torch"),
    pytest.mark.skipif(not ansible_program("ansible-playbook"), reason="needs ansible-core"),
    pytest.mark.skipif(
        not all(Path("/usr/share/doc", name).exists() for name in PACKAGES), reason=f"needs {', '.join(PACKAGES)}"
    ),
]
NODES = ("node01", "node02")
PYTHON = ("--python", "/opt/venv/bin/python3")
CASES = ("--device", "cpu", "--only", "softmax", *PYTHON)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("fleet-bench")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200g", "fleet", str(folder)], check=True)
    made = Lab(Room(folder), {}, folder / "state")
    make_base(made.room.base)
    assert TORCH is not None
    assert TORCH.origin is not None
    packages = Path(TORCH.origin).parents[1]
    for name in NODES:
        upper = made.room.folder / name / "upper"
        inside = f"opt/venv/lib/{python_of(made.room.base)}/site-packages"
        (upper / inside).mkdir(parents=True)
        (upper / "opt/venv/bin").mkdir()
        (upper / "opt/venv/bin/python3").symlink_to("/usr/bin/python3")
        (upper / "opt/venv/pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
        mounts = f'{OF_THIS_MACHINE} && mount --bind "{packages}" "$2/root/{inside}"'
        made.hosts[name] = made.room.start(name, devices=mounts)
    try:
        yield made
    finally:
        stop(made)


def words(lab: Lab, *names: str) -> tuple[str, ...]:
    return ("--json", "--hosts", ",".join(names), "--ssh-config", str(lab.room.config))


def test_every_host_is_measured_and_a_lost_one_is_done_by_retry_alone(lab: Lab) -> None:
    before = {name: files(host) for name, host in lab.hosts.items()}
    [port] = lab.hosts["node02"].ports
    lab.lose("node02", port=free_port())
    first = lab.fleet("bench", *CASES, *words(lab, *NODES))
    assert (first.code, first.ends) == (4, {"node01": "done", "node02": "not reached over ssh"}), first
    kept = Path(first.document["folder"]) / "hosts"
    runs = [read_run(str(kept / "node01" / f"cpu-run-{number}.json")) for number in (1, 2)]
    assert runs[0].run.id != runs[1].run.id
    assert all(case.family == "softmax" for run in runs for case in run.cases)
    assert any(case.figures for case in runs[0].cases), first

    done = jobs(lab.hosts["node01"])
    lab.lose("node02", port=port)
    again = lab.fleet("bench", "--retry", "--json")
    assert (again.code, set(again.ends.values())) == (0, {"done"}), again
    assert jobs(lab.hosts["node01"]) == done
    assert (kept / "node02/cpu-run-2.json").exists()
    assert {name: files(host) for name, host in lab.hosts.items()} == before
    shown = lab.fleet("status")
    assert "cpu-run-1: " in shown.out
    assert "cases measured" in shown.out


def test_a_host_without_a_gpu_says_so_and_verify_keeps_what_it_found(lab: Lab) -> None:
    ran = lab.fleet("bench", *PYTHON, *words(lab, "node01"))
    assert (ran.code, ran.ends) == (1, {"node01": "failed"}), ran
    assert "sees no GPU" in ran.document["hosts"][0]["reason"]
    bare = lab.fleet("bench", *words(lab, "node01"))
    assert "/usr/bin/python3" in bare.document["hosts"][0]["reason"], "the environment that doctor judges"
    proved = lab.fleet("verify", "--only", "cpu", *PYTHON, *words(lab, "node01"))
    assert (proved.code, proved.ends) == (0, {"node01": "done"}), proved
    document = json.loads((Path(proved.document["folder"]) / "hosts/node01/verify.json").read_text())
    assert [each["outcome"] for each in document["results"]] == ["ok"]
    failed = lab.fleet("verify", "--only", "gpus", *PYTHON, *words(lab, "node01"))
    assert (failed.code, failed.ends) == (1, {"node01": "failed"}), failed


def test_a_document_of_a_run_names_no_host_unless_asked_to(lab: Lab) -> None:
    lab.lose("node02", port=free_port())
    argv = [word for word in lab.argv("verify", *words(lab, *NODES)) if word != "--identify"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=150, env=lab.environment)
    assert [each["name"] for each in json.loads(done.stdout)["hosts"]] == ["host-a", "host-b"]
    assert "node0" not in done.stdout
    assert "127.0.0.1" not in done.stdout


@pytest.mark.parametrize("verb", ["verify", "bench"])
def test_read_only_refuses(lab: Lab, verb: str) -> None:
    argv = [lab.argv("status")[0], "fleet", "--read-only", verb, *words(lab, "node01")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=lab.environment)
    assert (done.returncode, "--read-only was given" in done.stderr) == (2, True), done.stderr
